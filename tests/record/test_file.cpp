// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <gmock/gmock.h>
#include <random>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "fixtures.hpp"
#include "record/file.hpp"
#include "this_run.hpp"

namespace minitaw::record {
namespace {
using test::refusal_of, testing::AllOf, testing::HasSubstr;

class Disk : public test::InFolder {
protected:
  /// Replaces the file "f", whatever its state.
  FileState put(const std::string& text) {
    return replace_file(path("f"), std::as_bytes(std::span(text)), state_of(path("f")));
  }
};

TEST_F(Disk, EveryContentHasAStateOfItsOwnAndWhatAnotherProgramHasWrittenStays) {
  const FileState first = put("one");
  EXPECT_EQ(state_of(path("f")), first);
  const FileState second = put("two");
  EXPECT_NE(first, second);
  for (const auto& expected : {std::optional(first), std::optional<FileState>()})
    EXPECT_THROW(replace_file(path("f"), {}, expected), std::runtime_error);
  EXPECT_EQ(read(path("f")), "two");
  EXPECT_EQ(state_of(path("f")), second);
  EXPECT_FALSE(std::filesystem::exists(copy_name(path("f"))));
}

TEST_F(Disk, ACopyThatAnotherProgramWritesStays) {
  (void)write("f.part", "half of it");
  const int theirs = ::open(path("f.part").c_str(), O_RDONLY);
  ASSERT_EQ(::flock(theirs, LOCK_EX), 0);
  EXPECT_THAT([&] { put("one"); },
      testing::ThrowsMessage<std::runtime_error>(HasSubstr("another program is writing it")));
  remove_stale_copy(path("f"));
  EXPECT_EQ(read(path("f.part")), "half of it");
  ::close(theirs);
  remove_stale_copy(path("f"));
  EXPECT_FALSE(std::filesystem::exists(path("f.part")));
}

TEST_F(Disk, TheNewFileIsAsPrivateAsTheOldOne) {
  (void)write("f", "old");
  ASSERT_EQ(::chmod(path("f").c_str(), 0600), 0);
  put("new");
  struct stat s{};
  ASSERT_EQ(::stat(path("f").c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 0777, 0600U);
}

/// Writers that all want the same file.
TEST_F(Disk, OfManyWritersAtOnceEachWinsOrIsTold) {
  constexpr int writers = 4, rounds = 20;
  std::vector<pid_t> children;
  for (int who = 0; who < writers; ++who) {
    children.push_back(::fork());
    if (children.back() != 0)
      continue;
    for (int i = 0; i < rounds; ++i) {
      try {
        put(std::string(20'000, static_cast<char>('a' + who)));
      } catch (const std::runtime_error& error) {
        if (std::string(error.what()).find("another program") == std::string::npos)
          ::_exit(2);
      }
    }
    ::_exit(0);
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  const std::string last = read(path("f"));
  EXPECT_EQ(last, std::string(20'000, last.empty() ? '?' : last.front()));
}

std::vector<std::byte> noise(std::size_t size) {
  static std::mt19937 random(test::seed());
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes)
    byte = static_cast<std::byte>(random());
  return bytes;
}

/// With a seal of that schema, true or not.
std::vector<std::byte> sealed(
    const std::vector<std::byte>& raw, std::int64_t schema = schema_version) {
  const std::string seal = make_seal(schema, raw);
  const auto front = std::as_bytes(std::span(seal));
  std::vector<std::byte> bytes(front.begin(), front.end());
  bytes.insert(bytes.end(), raw.begin(), raw.end());
  return bytes;
}

std::string refusal(const std::vector<std::byte>& file) {
  return refusal_of([&] { (void)unseal(file, "f.h5"); });
}

TEST(Seal, IsTheLineThatThePageDocuments) {
  const std::string text = "123456789";  // the check value of CRC-32 is known: cbf43926
  const std::string seal = make_seal(4, std::as_bytes(std::span(text)));
  EXPECT_THAT(seal, testing::StartsWith("miniTaw result, schema 4, 9 bytes, crc32 cbf43926\n  "));
  EXPECT_EQ(std::tuple(seal.size(), seal.back()), std::tuple(seal_size, '\n'));
}

TEST(Seal, OpensWhatItWasMadeForAndNoticesEveryBit) {
  for (const std::size_t size : {0U, 1U, 7U, 4097U}) {
    const std::vector<std::byte> raw = noise(size), file = sealed(raw);
    EXPECT_TRUE(std::ranges::equal(unseal(file, "f.h5"), raw));
  }
  std::vector<std::byte> file = sealed(noise(137));
  for (std::size_t at = 0; at < file.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      file[at] ^= std::byte(1 << bit);
      EXPECT_FALSE(refusal(file).empty()) << "byte " << at << ", bit " << bit;
      file[at] ^= std::byte(1 << bit);
    }
}

TEST(Seal, SaysHowAFileDiffers) {
  for (const std::size_t size : {0, 600})
    EXPECT_THAT(refusal(noise(size)), HasSubstr("not a miniTaw result"));
  std::vector<std::byte> file = sealed(noise(1000));
  file.pop_back();
  EXPECT_THAT(refusal(file),
      HasSubstr(
          "f.h5 is damaged or was changed after it was written: truncated, 1511 of 1512 bytes"));
  file.resize(1513);
  EXPECT_THAT(refusal(file), HasSubstr("longer than it was, 1513 of 1512 bytes"));
  file.resize(100);
  EXPECT_THAT(refusal(file), HasSubstr("its seal"));
}

TEST(Seal, OfAnotherSchemaIsRefusedWhateverItsForm) {
  const std::string text = "miniTaw result, schema 7 and all the rest is different";
  const auto bytes = std::as_bytes(std::span(text));
  for (const auto& file : {sealed(noise(10), 7), std::vector(bytes.begin(), bytes.end())})
    EXPECT_THAT(refusal(file),
        AllOf(HasSubstr("schema version 7"),
            HasSubstr("this program reads 4"),
            HasSubstr("another file")));
}
}  // namespace
}  // namespace minitaw::record
