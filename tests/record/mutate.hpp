#pragma once

#include <cstddef>
#include <random>
#include <vector>

namespace minitaw::record {

using Content = std::vector<std::byte>;

/// Damages files as disks, transfers and careless people do, and some ways more: bits, runs of bytes,
/// numbers, texts, blocks of zeros, missing and additional parts, the end of another file.
class Mutator {
public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  /// A damaged copy; `other` gives parts to it.
  Content operator()(Content file, const Content& other);

  /// A number below `end`.
  std::size_t below(std::size_t end) { return end == 0 ? 0 : random_() % end; }

private:
  void flip_bits(Content& file);
  void overwrite(Content& file);
  void set_number(Content& file);
  void change_text(Content& file);
  void zero_blocks(Content& file);
  void truncate(Content& file);
  void insert(Content& file, const Content& other);
  void remove(Content& file);
  void splice(Content& file, const Content& other);

  std::mt19937_64 random_;
};

}  // namespace minitaw::record
