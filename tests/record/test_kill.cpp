#include <gmock/gmock.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <random>

#include "folder.hpp"
#include "record/read.hpp"
#include "record/recorder.hpp"
#include "sample.hpp"
#include "sanitized.hpp"

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

/// Counts that a child reports, read until it is dead.
class Reports {
public:
  explicit Reports(int pipe) : pipe_(pipe) {}

  /// Waits for one; false if the child is gone.
  bool next() { return ::read(pipe_, &count_, sizeof count_) == sizeof count_; }
  [[nodiscard]] int last() const { return count_; }

private:
  int pipe_;
  int count_ = 0;
};

/// Kills the child at a random moment of one of its appends, however fast this machine is.
void kill_at_random(pid_t child, Reports& reports, std::mt19937& random) {
  using Clock = std::chrono::steady_clock;
  ASSERT_TRUE(reports.next());
  const auto begin = Clock::now();
  ASSERT_TRUE(reports.next());
  const auto append = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
  ::usleep(static_cast<useconds_t>(random() % static_cast<unsigned>(2 * append.count() + 2)));
  ::kill(child, SIGKILL);
}

TEST_F(Kill, at_any_moment_loses_nothing_that_was_reported) {
  std::mt19937 random(1);
  int interrupted_writes = 0;
  for (int round = 0; round < (test::sanitized ? 10 : 50); ++round) {
    int embeddings[2];
    ASSERT_EQ(::pipe(embeddings), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) append_for_ever(path("r.h5"), embeddings[1]);
    ::close(embeddings[1]);
    Reports reports(embeddings[0]);
    ASSERT_NO_FATAL_FAILURE(kill_at_random(child, reports, random));
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself with " << WEXITSTATUS(status);
    while (reports.next()) {
    }
    ::close(embeddings[0]);
    interrupted_writes += std::filesystem::exists(path("r.h5.part"));
    const std::vector<Row> rows = read_rows(path("r.h5"));
    // Of a case that was finished but not yet reported the file may know as well.
    ASSERT_GE(std::ssize(rows), reports.last()) << "round " << round;
    ASSERT_LE(std::ssize(rows), reports.last() + 1) << "round " << round;
    for (std::size_t i = 0; i < rows.size(); ++i) ASSERT_EQ(rows[i].integer("seq"), static_cast<int>(i) + 1);
  }
  RecordProperty("interrupted_writes", interrupted_writes);
}

}  // namespace
}  // namespace minitaw::record
