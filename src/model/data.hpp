// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <fstream>
#include <span>
#include "base/philox.hpp"
#include "model/layout.hpp"

namespace minitaw::model {
/// Source of the initial weights of a tensor: element i is number i of this row, whatever the
/// sharding. Its place among all rows is {role, layer}; layer is 2^32 - 1 for the embeddings.
/// Uniform, not normal: no library's sine or logarithm can make two machines differ. amplitude =
/// sqrt(3) standard deviation: wqkv, w13, head 1 / sqrt(H); wo 1 / sqrt(2 L H); w2 1 / sqrt(2 L F);
/// embedding 1. Gains of norms are 1 + 0.1 u, so that an exchange of two of them shows.
UniformRow initial_row(const Tensor& tensor, const Shape& shape, std::uint64_t seed);
/// Draws the initial weights of `flat`, fp32, on the host, for references. Padding is zero. Ranks
/// use model::draw().
void initialise(std::span<float> weights, const Flat& flat, const Shape& shape, std::uint64_t seed);

/// Throws InputError unless `data` is "synthetic" or, with V >= 256, a file with a sequence and the
/// token after it; unless it `exists` already, its length does not matter.
void check_data(const Shape& shape, const std::string& data, bool exists = true);

/// The Checksum of a file of tokens; empty for "synthetic". Throws InputError if it cannot be read.
std::string data_sum(const std::string& data);

/// Source of the tokens of a step: the bytes of a file (V >= 256), or "synthetic". A sequence
/// depends only on (seed, step, its number in the step), however micro-batches and ranks divide it.
/// File: each begins at a random byte. Synthetic: each token is the one before plus 1 to 4, modulo
/// V: the loss can fall from ln V to ln 4.
class TokenSource {
public:
  /// Throws InputError as check_data(), or if the file cannot be read.
  TokenSource(const Shape& shape, const std::string& data, std::uint64_t seed);
  /// Fills tokens and targets (one further) of B sequences from number `first` of the `step` on,
  /// all ranks counted: `runs` of each. For one thread.
  void fill(std::span<std::int32_t> tokens,
      std::span<std::int32_t> targets,
      std::int64_t step,
      std::int64_t first,
      std::span<const SequenceRun> runs);

private:
  void sequence(std::span<std::int32_t> values, std::int64_t step, std::int64_t number);
  void read(std::span<std::int32_t> values, std::uint64_t random);

  std::int64_t vocab_, seq_;
  std::uint64_t seed_;
  std::string path_;  ///< empty: synthetic
  std::ifstream file_;
  std::uint64_t file_bytes_ = 0;
};

/// Elements of sort_positions' `starts`: one for each distinct token that a micro-batch can have,
/// and one for the end.
std::int64_t most_starts(std::int64_t vocab, std::int64_t tokens);
/// Sorts the positions of a micro-batch by token, so that the embedding's gradient needs no
/// atomics. order [T] receives them, ascending among equals. `starts` receives where each distinct
/// token begins, then T. Returns how many elements of `starts` are in use.
std::size_t sort_positions(std::span<std::int32_t> order,
    std::span<std::int32_t> starts,
    std::span<const std::int32_t> tokens,
    std::int64_t vocab);
}  // namespace minitaw::model
