// SPDX-License-Identifier: BSD-3-Clause
#include <chrono>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <iterator>
#include <numeric>
#include <sstream>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "fixtures.hpp"
#include "record/file.hpp"

namespace minitaw::record {
namespace {
using test::refusal_of, testing::HasSubstr;

class Disk : public test::InFolder {};

class Mark : public Disk {
protected:
  std::string name_ = path("f.running"), case_ = "a case\n";
};

/// The line of a program on this host, by its process and the moment at which it started.
std::string line_of(pid_t process, const std::string& started) {
  char host[256], space[64];
  if (::gethostname(host, sizeof host) != 0)
    return "";
  const ssize_t length = ::readlink("/proc/self/ns/pid", space, sizeof space);
  return fmt::format("{} {} {} {}\n", host, std::string(space, length), process, started);
}

/// The 22nd word of a process's line; test programs have names without spaces.
std::string start_of(pid_t process) {
  std::ifstream stat(fmt::format("/proc/{}/stat", process));
  return *std::next(std::istream_iterator<std::string>(stat), 21);
}

TEST_F(Mark, NamesThisProgramAndItsCaseAndGoesWithIt) {
  {
    RunningMark mark(path("f"));
    const std::string mine = line_of(::getpid(), start_of(::getpid()));
    EXPECT_EQ(read(name_), mine);
    mark.set("a case that is long");
    mark.set("another");
    EXPECT_EQ(read(name_), mine + "another\n");
    std::filesystem::remove(name_);
    mark.set("a third");
    EXPECT_EQ(read(name_), mine + "a third\n") << "somebody has removed it";
  }
  EXPECT_FALSE(std::filesystem::exists(name_));
  EXPECT_EQ(RunningMark(path("f")).left(), "");
}

TEST_F(Mark, OfADeadProgramIsTakenAndItsCaseIsKnown) {
  const pid_t parent = ::getppid();
  for (const std::string& line : {line_of(parent, "1" + start_of(parent)), line_of(1 << 30, "7")}) {
    (void)write("f.running", line + case_);
    (void)write("f.part", "half of it");
    EXPECT_EQ(RunningMark(path("f")).left(), "a case") << line;
    EXPECT_FALSE(std::filesystem::exists(path("f.part")));
  }
  const pid_t child = ::fork();  // dead, but nobody has waited for it yet
  if (child == 0)
    ::_exit(0);
  siginfo_t ended{};
  ASSERT_EQ(::waitid(P_PID, child, &ended, WEXITED | WNOWAIT), 0);
  (void)write("f.running", line_of(child, start_of(child)) + case_);
  EXPECT_EQ(RunningMark(path("f")).left(), "a case");
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
}

TEST_F(Mark, OfAProgramThatLivesIsRefusedAndStays) {
  RunningMark first(path("f"));
  const std::string line = line_of(::getppid(), start_of(::getppid())) + case_;
  (void)write("f.running", line);
  const auto says = test::Says({fmt::format("process {} of the host", ::getppid()), "-o"});
  EXPECT_THAT(refusal_of([&] { (void)RunningMark(path("f")); }), says);
  EXPECT_THAT(refusal_of([&] { first.set("another"); }), says) << "both have taken a dead one's";
  first.remove();
  EXPECT_EQ(read(name_), line);
}

/// Another host, or a container, cannot be asked: what counts is whether its mark is kept young.
TEST_F(Mark, OfAnotherHostIsRefusedForTwoMinutes) {
  using namespace std::chrono;
  const std::string mine = line_of(0, ""), here = mine.substr(0, mine.find(' '));
  for (const std::string& program :
      {std::string("cn7 pid:[1] 12 34"), here + " pid:[1] 12 34", {}}) {
    const std::string line = program + "\n";
    const auto written_before = [&](seconds age) {
      (void)write("f.running", line + case_);
      std::filesystem::last_write_time(name_, file_clock::now() - age);
      return refusal_of([&] { EXPECT_EQ(RunningMark(path("f")).left(), "a case"); });
    };
    EXPECT_EQ(written_before(125s), "");
    const std::string refusal = written_before(100s);
    EXPECT_THAT(refusal, test::Says({"120 s", "-o", "f.running"}));
    EXPECT_EQ(refusal.find("process 12 of the host") != std::string::npos, !program.empty());
  }
}

TEST_F(Disk, TheNewFileIsAsPrivateAsTheOldOne) {
  (void)write("f", "old");
  ASSERT_EQ(::chmod(path("f").c_str(), 0600), 0);
  const std::string text = "new";
  replace_file(path("f"), std::as_bytes(std::span(text)));
  EXPECT_EQ(read(path("f")), "new");
  struct stat s{};
  ASSERT_EQ(::stat(path("f").c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 0777, 0600U);
}

std::string bytes(std::size_t size) {
  std::string all(size, '\0');
  std::iota(all.begin(), all.end(), '\x7f');
  return all;
}

std::string sealed(const std::string& raw) {
  return make_seal(std::as_bytes(std::span(raw))) + raw;
}

std::string opened(const std::string& file) {
  std::istringstream stream(file);
  return unseal(stream, "f.h5");
}

TEST(Seal, IsTheLineThatThePageDocuments) {
  // The check value of CRC-32 is known: cbf43926.
  const std::string seal = sealed("123456789").substr(0, seal_size);
  EXPECT_THAT(seal, testing::StartsWith("miniTaw result, schema 5, 9 bytes, crc32 cbf43926\n  "));
  EXPECT_EQ(seal.back(), '\n');
}

/// Other files: tests/python/test_hostile.py.
TEST(Seal, OpensWhatItWasMadeForAndNoticesEveryBit) {
  for (const std::size_t size : {0U, 1U, 7U, 4097U}) {
    const std::string raw = bytes(size);
    EXPECT_EQ(opened(sealed(raw)), raw);
  }
  std::string file = sealed(bytes(137));
  for (std::size_t at = 0; at < file.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      const char whole = std::exchange(file[at], static_cast<char>(file[at] ^ (1 << bit)));
      EXPECT_NE(refusal_of([&] { (void)opened(file); }), "") << "byte " << at << ", bit " << bit;
      file[at] = whole;
    }
}
}  // namespace
}  // namespace minitaw::record
