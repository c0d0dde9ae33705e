#include "mutate.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace minitaw::record {

namespace {

bool is_letter(std::byte byte) {
  const int c = std::to_integer<int>(byte);
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ',';
}

}  // namespace

Content Mutator::operator()(Content file, const Content& other) {
  for (std::size_t times = 1 + below(3); times > 0; --times) {
    switch (below(9)) {
    case 0:
      flip_bits(file);
      break;
    case 1:
      overwrite(file);
      break;
    case 2:
    case 3:
      set_number(file);
      break;
    case 4:
      change_text(file);
      break;
    case 5:
      zero_blocks(file);
      break;
    case 6:
      below(2) == 0 ? truncate(file) : remove(file);
      break;
    case 7:
      insert(file, other);
      break;
    default:
      splice(file, other);
    }
  }
  return file;
}

void Mutator::flip_bits(Content& file) {
  if (file.empty()) return;
  for (std::size_t bits = 1 + below(16); bits > 0; --bits)
    file[below(file.size())] ^= std::byte(1U << below(8));
}

void Mutator::overwrite(Content& file) {
  const std::size_t begin = below(file.size());
  const std::size_t end = std::min(file.size(), begin + 1 + below(64));
  for (std::size_t i = begin; i < end; ++i) file[i] = static_cast<std::byte>(random_());
}

/// Lengths, addresses and counts lie at multiples of 2.
void Mutator::set_number(Content& file) {
  constexpr std::array<std::uint64_t, 10> numbers = {0,      1,          2,          0xff,       0x7fff,
                                                     0xffff, 0x7fffffff, 0xffffffff, ~0ULL >> 1, ~0ULL};
  const std::size_t size = std::size_t{1} << below(4);
  const std::size_t at = 2 * below(file.size() / 2);
  if (at + size > file.size()) return;
  std::uint64_t value = below(4) == 0 ? below(2 * file.size()) : numbers[below(numbers.size())];
  std::memcpy(&file[at], &value, size);
}

/// Names of types, attributes and links stand in the file as they are.
void Mutator::change_text(Content& file) {
  const auto from = file.begin() + static_cast<std::ptrdiff_t>(below(file.size()));
  const auto word = std::search_n(from, file.end(), 5, true, [](std::byte b, bool) { return is_letter(b); });
  if (word == file.end()) return;
  switch (below(3)) {
  case 0:
    *word = static_cast<std::byte>(random_());
    break;
  case 1:
    std::ranges::rotate(word, word + 1, word + 5);
    break;
  default:
    word[4] = std::byte{0};
  }
}

void Mutator::zero_blocks(Content& file) {
  const std::size_t size = std::size_t{512} << below(4);
  const std::size_t begin = size * below(file.size() / size);
  const std::size_t end = std::min(file.size(), begin + size);
  std::fill(file.begin() + static_cast<std::ptrdiff_t>(begin),
            file.begin() + static_cast<std::ptrdiff_t>(end), std::byte{0});
}

void Mutator::truncate(Content& file) { file.resize(below(file.size())); }

void Mutator::remove(Content& file) {
  const std::size_t begin = below(file.size());
  const std::size_t end = std::min(file.size(), begin + 1 + below(4096));
  file.erase(file.begin() + static_cast<std::ptrdiff_t>(begin),
             file.begin() + static_cast<std::ptrdiff_t>(end));
}

void Mutator::insert(Content& file, const Content& other) {
  const std::size_t begin = below(other.size());
  const std::size_t end = std::min(other.size(), begin + 1 + below(4096));
  file.insert(file.begin() + static_cast<std::ptrdiff_t>(below(file.size())),
              other.begin() + static_cast<std::ptrdiff_t>(begin),
              other.begin() + static_cast<std::ptrdiff_t>(end));
}

/// The beginning of one file and the end of another one.
void Mutator::splice(Content& file, const Content& other) {
  const std::size_t at = below(std::min(file.size(), other.size()));
  file.resize(at);
  file.insert(file.end(), other.begin() + static_cast<std::ptrdiff_t>(at), other.end());
}

}  // namespace minitaw::record
