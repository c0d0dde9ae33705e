// SPDX-License-Identifier: BSD-3-Clause
#include "model/data.hpp"
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <utility>
#include "base/checksum.hpp"
#include "base/error.hpp"

namespace minitaw::model {
UniformRow initial_row(const Tensor& tensor, const Shape& shape, std::uint64_t seed) {
  const bool ends_a_half = tensor.role == Role::wo || tensor.role == Role::w2;
  const double depth = ends_a_half ? 2.0 * shape.layers : 1.0,
               fan_in = tensor.role == Role::embedding && !shape.tied ? 1.0 : tensor.cols;
  return {philox_key(seed, Stream::weights),
      {{static_cast<std::uint32_t>(tensor.role), static_cast<std::uint32_t>(tensor.layer)}},
      tensor.is_gain() ? 1.0F : 0.0F,
      tensor.is_gain() ? 0.1F : static_cast<float>(std::sqrt(3.0 / (depth * fan_in)))};
}

void initialise(
    std::span<float> weights, const Flat& flat, const Shape& shape, std::uint64_t seed) {
  if (std::ssize(weights) != flat.elements)
    throw LogicError(
        "{} initial weights for a buffer of {} elements", weights.size(), flat.elements);
  std::ranges::fill(weights, 0.0F);
  for (const Tensor& tensor : flat.tensors) {
    const UniformRow row = initial_row(tensor, shape, seed);
    for (std::int64_t i = 0; i < tensor.size(); ++i)
      weights[tensor.offset + i] = row.number(row.words(i / 4)[i % 4]);
  }
}

namespace {
std::uint64_t bytes_of(const std::string& data) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(data, error);
  if (error)
    throw InputError("data: {} is not a file; name one (from the current folder), or \"synthetic\"",
        printable(data));
  return bytes;
}

std::ifstream open(const std::string& data) {
  std::ifstream file(data, std::ios::binary);
  if (!file)
    throw InputError("data: {} cannot be read: no permission", printable(data));
  return file;
}
}  // namespace

std::string data_sum(const std::string& data) {
  if (data == "synthetic")
    return {};
  std::uint64_t left = bytes_of(data);
  std::ifstream file = open(data);
  Checksum sum;
  std::string block(1 << 20, ' ');
  for (; left > 0; left -= file.gcount()) {
    file.read(block.data(), static_cast<std::streamsize>(std::min(left, block.size())));
    if (file.gcount() == 0)
      throw InputError("data: {} cannot be read to its end", printable(data));
    sum.add(std::string_view(block).substr(0, file.gcount()));
  }
  return sum.text();
}

void check_data(const Shape& shape, const std::string& data, bool exists) {
  if (data == "synthetic")
    return;
  if (shape.vocab < 256)
    throw InputError(
        "vocab: {} is too small for the bytes of a file; use at least 256", shape.vocab);
  if (!exists)
    return;
  const std::uint64_t bytes = bytes_of(data);
  if (std::cmp_less_equal(bytes, shape.seq))
    throw InputError("data: {} has {}; a sequence of {} needs at least {}",
        printable(data),
        counted(bytes, "byte"),
        counted(shape.seq, "token"),
        shape.seq + 1);
}

TokenSource::TokenSource(const Shape& shape, const std::string& data, std::uint64_t seed)
    : vocab_(shape.vocab),
      seq_(shape.seq),
      seed_(seed) {
  if (data == "synthetic")
    return;
  check_data(shape, data);
  path_ = data;
  file_bytes_ = bytes_of(path_);
  file_ = open(path_);
}

void TokenSource::fill(std::span<std::int32_t> tokens,
    std::span<std::int32_t> targets,
    std::int64_t step,
    std::int64_t first,
    std::span<const SequenceRun> runs) {
  const auto count = std::ssize(tokens);
  std::int64_t of_sequence = 0;
  for (const SequenceRun& run : runs)
    of_sequence += run.count;
  if (count % of_sequence != 0 || std::ssize(targets) != count)
    throw LogicError("{} tokens and {} targets asked for; a sequence has {} here",
        count,
        targets.size(),
        of_sequence);
  // A target may be in the chunk of another rank, so this is of the whole sequence.
  std::vector<std::int32_t> values(seq_ + 1);
  for (std::int64_t begin = 0; begin < count; begin += of_sequence) {
    sequence(values, step, first++);
    for (const auto& [row, length, position] : runs) {
      const auto from = values.begin() + position;
      std::copy_n(from, length, tokens.begin() + begin + row);
      std::copy_n(from + 1, length, targets.begin() + begin + row);
    }
  }
}

/// Word w of the sequence is word w mod 4 of philox(counter {w / 4, number (low, high), step},
/// seed). The first token is word 0 modulo V, every further one word i: 1 + its two highest bits
/// further. A file's offset: words 0 (low), 1.
void TokenSource::sequence(std::span<std::int32_t> values, std::int64_t step, std::int64_t number) {
  const auto words = [&, key = philox_key(seed_, Stream::tokens)](std::size_t i) {
    return philox({static_cast<std::uint32_t>(i / 4),
                      static_cast<std::uint32_t>(number),
                      static_cast<std::uint32_t>(number >> 32),
                      static_cast<std::uint32_t>(step)},
        key);
  };
  auto four = words(0);
  if (!path_.empty())
    return read(values, four[0] | std::uint64_t{four[1]} << 32);
  values[0] = four[0] % vocab_;
  for (std::size_t i = 1; i < values.size(); ++i) {
    if (i % 4 == 0)
      four = words(i);
    values[i] = (values[i - 1] + std::int64_t{1} + (four[i % 4] >> 30)) % vocab_;
  }
}

void TokenSource::read(std::span<std::int32_t> values, std::uint64_t random) {
  const std::uint64_t places = file_bytes_ - values.size() + 1;
  std::vector<char> bytes(values.size());
  file_.seekg(random % places);
  if (!file_.read(bytes.data(), std::ssize(bytes)))
    throw std::runtime_error(
        fmt::format("data = \"{}\": the file became shorter or unreadable", path_));
  std::transform(bytes.begin(), bytes.end(), values.begin(), [](char byte) {
    return static_cast<std::int32_t>(static_cast<unsigned char>(byte));
  });
}

std::int64_t most_starts(std::int64_t vocab, std::int64_t tokens) {
  return std::min(vocab, tokens) + 1;
}

std::size_t sort_positions(std::span<std::int32_t> order,
    std::span<std::int32_t> starts,
    std::span<const std::int32_t> tokens,
    std::int64_t vocab) {
  std::vector<std::int32_t> next(vocab);
  for (const std::int32_t token : tokens)
    ++next[token];
  std::size_t used = 0;
  std::int32_t begin = 0;
  for (std::int32_t& count : next) {
    if (count > 0)
      starts[used++] = begin;
    begin += std::exchange(count, begin);
  }
  starts[used++] = begin;
  for (const int position : indices(tokens))
    order[next[tokens[position]]++] = position;
  return used;
}
}  // namespace minitaw::model
