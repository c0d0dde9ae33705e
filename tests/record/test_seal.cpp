#include "record/file.hpp"

#include <gmock/gmock.h>

#include <fstream>
#include <random>

#include "base/error.hpp"
#include "raw.hpp"
#include "refusal.hpp"
#include "seed.hpp"

namespace minitaw::record {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

std::vector<std::byte> noise(std::size_t size) {
  static std::mt19937 random(test::seed());
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

std::string refusal(const std::vector<std::byte>& file) {
  return refusal_of([&] { (void)unseal(file, "f.h5"); });
}

TEST(Seal, is_the_line_that_the_page_documents) {
  const std::string text = "123456789";  // the check value of CRC-32 is known: cbf43926
  const std::string seal = make_seal(4, std::as_bytes(std::span(text)));
  EXPECT_THAT(seal, StartsWith("miniTaw result, schema 4, 9 bytes, crc32 cbf43926\n  "));
  EXPECT_EQ(seal.size(), seal_size);
  EXPECT_EQ(seal.back(), '\n');
}

TEST(Seal, opens_what_it_was_made_for) {
  for (const std::size_t size : {0U, 1U, 7U, 4097U}) {
    const std::vector<std::byte> raw = noise(size), file = sealed(raw, 4);
    EXPECT_TRUE(std::ranges::equal(unseal(file, "f.h5"), raw));
  }
  EXPECT_THAT(refusal({}), HasSubstr("not a miniTaw result"));
  EXPECT_THAT(refusal(noise(600)), HasSubstr("not a miniTaw result"));
}

TEST(Seal, says_how_a_file_differs) {
  std::vector<std::byte> file = sealed(noise(1000), 4);
  file.pop_back();
  EXPECT_THAT(
      refusal(file),
      HasSubstr("f.h5 is damaged or was changed after it was written: truncated, 1511 of 1512 bytes"));
  file.resize(1513);
  EXPECT_THAT(refusal(file), HasSubstr("longer than it was, 1513 of 1512 bytes"));
  file.resize(100);
  EXPECT_THAT(refusal(file), HasSubstr("its seal"));
}

TEST(Seal, notices_every_bit) {
  std::vector<std::byte> file = sealed(noise(137), 4);
  for (std::size_t at = 0; at < file.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      file[at] ^= std::byte(1 << bit);
      EXPECT_FALSE(refusal(file).empty()) << "byte " << at << ", bit " << bit;
      file[at] ^= std::byte(1 << bit);
    }
  EXPECT_THAT(refusal(file), IsEmpty());
}

TEST(Seal, of_another_schema_is_refused_whatever_its_form) {
  const auto other = AllOf(HasSubstr("schema version 7"), HasSubstr("this program reads 4"));
  EXPECT_THAT(refusal(sealed(noise(10), 7)), other);
  const std::string text = "miniTaw result, schema 7 and all the rest is different";
  const auto bytes = std::as_bytes(std::span(text));
  EXPECT_THAT(refusal({bytes.begin(), bytes.end()}), other);
  EXPECT_THAT(refusal(sealed(noise(10), 3)), HasSubstr("schema version 3"));
}

}  // namespace
}  // namespace minitaw::record
