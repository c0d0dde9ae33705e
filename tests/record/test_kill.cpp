#include <gmock/gmock.h>
#include <sys/wait.h>

#include <csignal>
#include <random>

#include "folder.hpp"
#include "record/recorder.hpp"
#include "sample.hpp"

namespace minitaw::record {
namespace {

using Kill = InFolder;

/// Appends cases for ever and tells through the pipe how many are done. Never returns.
[[noreturn]] void append_for_ever(const std::string& file, int pipe) {
  try {
    Recorder recorder(file, {});
    for (int done = static_cast<int>(recorder.rows().size());; ++done) {
      recorder.append(sample_case("tawpipe", 1 + done));
      const int count = done + 1;
      if (::write(pipe, &count, sizeof count) != sizeof count) ::_exit(3);
    }
  } catch (...) {
    ::_exit(2);
  }
}

/// The last count that the child reported, after it has been killed.
int last_report(int pipe, int before) {
  int count = before;
  while (::read(pipe, &count, sizeof count) == sizeof count) {
  }
  return count;
}

TEST_F(Kill, at_any_moment_loses_nothing_that_was_reported) {
  std::mt19937 random(1);
  int done = 0;
  int interrupted_writes = 0;
  for (int round = 0; round < 50; ++round) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) append_for_ever(path("r.h5"), ends[1]);
    ::close(ends[1]);
    ::usleep(1000 + random() % 40000);
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself with " << WEXITSTATUS(status);
    done = last_report(ends[0], done);
    ::close(ends[0]);
    interrupted_writes += std::filesystem::exists(path("r.h5.part"));
    if (!std::filesystem::exists(path("r.h5"))) {
      ASSERT_EQ(done, 0);
      continue;
    }
    const std::vector<Row> rows = read_rows(path("r.h5"));
    ASSERT_GE(static_cast<int>(rows.size()), done) << "round " << round;
    done = static_cast<int>(rows.size());
    for (int i = 0; i < done; ++i) ASSERT_EQ(rows[static_cast<std::size_t>(i)].integer("seq"), 1 + i);
  }
  EXPECT_GT(done, 10) << "too few cases for the test to mean anything";
  RecordProperty("interrupted_writes", interrupted_writes);
}

}  // namespace
}  // namespace minitaw::record
