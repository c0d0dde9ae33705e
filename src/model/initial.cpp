#include "model/initial.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace minitaw::model {

namespace {

/// {center, amplitude}
std::pair<float, float> distribution_of(const Tensor& tensor, const Shape& shape) {
  const auto fan_in = static_cast<double>(tensor.cols);
  switch (tensor.role) {
  case Role::norm1:
  case Role::norm2:
  case Role::norm:
    return {1.0F, 0.1F};
  case Role::wo:
  case Role::w2:
    return {0.0F, static_cast<float>(std::sqrt(3.0 / (2.0 * shape.layers * fan_in)))};
  case Role::embedding:
    return {0.0F, static_cast<float>(std::sqrt(3.0))};
  case Role::wqkv:
  case Role::w13:
  case Role::head:
    return {0.0F, static_cast<float>(std::sqrt(3.0 / fan_in))};
  }
  throw LogicError("tensor without initial weights");
}

void fill(std::span<float> values, const UniformRow& row) {
  for (std::size_t begin = 0; begin < values.size(); begin += 4) {
    const Words<4> words = row.words(begin / 4);
    for (std::size_t i = begin; i < std::min(begin + 4, values.size()); ++i)
      values[i] = row.number(words[static_cast<int>(i - begin)]);
  }
}

void fill_all(std::span<float> weights, const std::vector<Tensor>& tensors, std::int64_t elements,
              const Shape& shape, std::uint64_t seed) {
  if (weights.size() != static_cast<std::size_t>(elements))
    throw LogicError(fmt::format("{} initial weights for a buffer of {} elements", weights.size(), elements));
  std::fill(weights.begin(), weights.end(), 0.0F);
  for (const Tensor& tensor : tensors)
    fill(weights.subspan(tensor.offset, tensor.size()), initial_row(tensor, shape, seed));
}

}  // namespace

UniformRow initial_row(const Tensor& tensor, const Shape& shape, std::uint64_t seed) {
  const auto [center, amplitude] = distribution_of(tensor, shape);
  return {philox_key(seed, Stream::weights),
          {{static_cast<std::uint32_t>(tensor.role), static_cast<std::uint32_t>(tensor.layer)}},
          center,
          amplitude};
}

void initialise(std::span<float> weights, const Shard& shard, const Shape& shape, std::uint64_t seed) {
  fill_all(weights, shard.tensors, shard.elements, shape, seed);
}

void initialise(std::span<float> weights, const Ends& ends, const Shape& shape, std::uint64_t seed) {
  fill_all(weights, ends.tensors, ends.elements, shape, seed);
}

}  // namespace minitaw::model
