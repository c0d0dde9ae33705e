#include "record/file.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>
#include <span>

#include "base/error.hpp"
#include "folder.hpp"
#include "record/read.hpp"
#include "record/recorder.hpp"
#include "refusal.hpp"
#include "sample.hpp"

namespace minitaw::record {
namespace {

using testing::HasSubstr;

class Disk : public InFolder {
protected:
  static std::span<const std::byte> bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

  static std::string refusal(const std::string& file) {
    return refusal_of([&] { Recorder recorder(file, {}); });
  }

  [[nodiscard]] static int mode_of(const std::string& file) {
    struct stat s{};
    return ::stat(file.c_str(), &s) == 0 ? static_cast<int>(s.st_mode & 0777) : -1;
  }
};

TEST_F(Disk, a_new_state_for_every_content) {
  const FileState first = replace_file(path("f"), bytes("one"), std::nullopt);
  EXPECT_EQ(state_of(path("f")), first);
  const FileState second = replace_file(path("f"), bytes("two"), first);
  EXPECT_EQ(state_of(path("f")), second);
  EXPECT_NE(first, second);
  EXPECT_EQ(read(path("f")), "two");
}

TEST_F(Disk, what_another_program_has_written_stays) {
  const FileState first = replace_file(path("f"), bytes("one"), std::nullopt);
  (void)replace_file(path("f"), bytes("another"));
  EXPECT_THROW(replace_file(path("f"), bytes("two"), first), std::runtime_error);
  EXPECT_THROW(replace_file(path("f"), bytes("two"), std::nullopt), std::runtime_error);
  EXPECT_EQ(read(path("f")), "another");
  EXPECT_FALSE(std::filesystem::exists(copy_name(path("f"))));
}

TEST_F(Disk, a_copy_that_another_program_writes_stays) {
  (void)write("f.part", "half of it");
  const int theirs = ::open(path("f.part").c_str(), O_RDONLY);
  ASSERT_EQ(::flock(theirs, LOCK_EX), 0);
  try {
    (void)replace_file(path("f"), bytes("one"));
    ADD_FAILURE() << "the lock was not heeded";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("another program is writing it"));
  }
  remove_stale_copy(path("f"));
  EXPECT_EQ(read(path("f.part")), "half of it");
  ::close(theirs);
  remove_stale_copy(path("f"));
  EXPECT_FALSE(std::filesystem::exists(path("f.part")));
}

TEST_F(Disk, the_new_file_is_as_private_as_the_old_one) {
  (void)write("f", "old");
  ASSERT_EQ(::chmod(path("f").c_str(), 0600), 0);
  (void)replace_file(path("f"), bytes("new"));
  EXPECT_EQ(mode_of(path("f")), 0600);
}

TEST_F(Disk, a_write_protected_file_is_not_added_to) {
  (void)Recorder(path("r.h5"), {});
  ASSERT_EQ(::chmod(path("r.h5").c_str(), 0444), 0);
  EXPECT_THAT(refusal(path("r.h5")), HasSubstr("write-protected"));
  EXPECT_EQ(mode_of(path("r.h5")), 0444);
}

TEST_F(Disk, a_folder_that_takes_no_files_is_said_at_once) {
  EXPECT_THAT(refusal("/proc/r.h5"), HasSubstr("/proc/r.h5 cannot be written"));  // not even for root
}

TEST_F(Disk, a_link_to_nowhere_is_refused) {
  std::filesystem::create_symlink("missing.h5", path("link.h5"));
  EXPECT_THAT(refusal(path("link.h5")), HasSubstr("cannot be read"));
  EXPECT_TRUE(std::filesystem::is_symlink(path("link.h5")));
}

/// Replaces the file for ever. Never returns.
[[noreturn]] void append_for_ever(const std::string& file) {
  try {
    Recorder recorder(file, {});
    for (int seq = 1;; ++seq) recorder.append(sample_case("tawpipe", 1 + seq % 3));
  } catch (...) {
    ::_exit(1);
  }
}

TEST_F(Disk, who_reads_while_another_program_writes_sees_whole_files) {
  (void)Recorder(path("r.h5"), {});
  const pid_t writer = ::fork();
  if (writer == 0) append_for_ever(path("r.h5"));
  for (int i = 0; i < 30; ++i) EXPECT_NO_THROW((void)read_rows(path("r.h5")));
  ::kill(writer, SIGKILL);
  int status = 0;
  ::waitpid(writer, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status)) << "the writer ended by itself";
}

/// Writers that all want the same file.
TEST_F(Disk, of_many_writers_at_once_each_wins_or_is_told) {
  constexpr int writers = 4, rounds = 20;
  const auto write_often = [&](int who) {
    for (int i = 0; i < rounds; ++i) {
      try {
        (void)replace_file(path("f"), bytes(std::string(20'000, static_cast<char>('a' + who))));
      } catch (const std::runtime_error& error) {
        if (std::string(error.what()).find("another program") == std::string::npos) ::_exit(2);
      }
    }
    ::_exit(0);
  };
  std::vector<pid_t> children;
  for (int who = 0; who < writers; ++who) {
    children.push_back(::fork());
    if (children.back() == 0) write_often(who);
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  const std::string last = read(path("f"));
  EXPECT_EQ(last, std::string(20'000, last.empty() ? '?' : last.front()));
}

}  // namespace
}  // namespace minitaw::record
