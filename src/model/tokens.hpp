#pragma once

#include <cstdint>
#include <fstream>
#include <span>
#include <string>

#include "model/shape.hpp"

namespace minitaw::model {

/// Where the tokens of a step come from: the bytes of a file (V >= 256), or "synthetic". A sequence depends
/// on (seed, step, its number in the step) alone, so a step is the same however micro-batches and ranks cut
/// it.
///
/// File: each sequence starts at a random byte. Synthetic: each token is the one before plus 1 to 4, at
/// random, modulo V, so that there is something to learn (the loss can fall from ln V to ln 4).
class TokenSource {
public:
  /// Throws InputError when the file is missing, unreadable, not a regular file or shorter than S + 1 bytes,
  /// or when V < 256 with a file.
  TokenSource(const Shape& shape, const std::string& data, std::uint64_t seed);

  /// tokens, targets [B S]: B sequences from number `first` of the step on; targets are the tokens one
  /// further. `step` counts from 0, `first` over all ranks. Not for two threads at a time.
  void fill(std::span<std::int32_t> tokens, std::span<std::int32_t> targets, std::int64_t step,
            std::int64_t first);

private:
  void sequence(std::span<std::int32_t> values, std::int64_t step, std::int64_t number);
  void read(std::span<std::int32_t> values, std::uint64_t random);

  std::int64_t vocab_, seq_;
  std::uint64_t seed_;
  std::string path_;  ///< empty: synthetic
  std::ifstream file_;
  std::uint64_t file_bytes_ = 0;
};

}  // namespace minitaw::model
