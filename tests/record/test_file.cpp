// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include <numeric>
#include <sstream>
#include <sys/stat.h>
#include "fixtures.hpp"
#include "record/file.hpp"

namespace minitaw::record {
namespace {
using test::refusal_of, testing::HasSubstr;

class Disk : public test::InFolder {};

TEST_F(Disk, AFileBelongsToOneProgramAtATimeAndItsMarkGoesWithIt) {
  const std::string mark = write("f.running", "a case\n");  // of a program that was killed
  (void)write("f.part", "half of it");
  {
    const RunningMark first(path("f"));
    EXPECT_EQ(first.left(), "a case");
    EXPECT_FALSE(std::filesystem::exists(path("f.part")));
    first.set("another");
    EXPECT_EQ(read(mark), "another\n");
    EXPECT_THAT(refusal_of([&] { (void)RunningMark(path("f")); }),
        HasSubstr("another program is writing it"));
    EXPECT_EQ(read(mark), "another\n");
  }
  EXPECT_FALSE(std::filesystem::exists(mark));
  EXPECT_EQ(RunningMark(path("f")).left(), "");
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
