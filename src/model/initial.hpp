#pragma once

#include <cstdint>
#include <span>

#include "base/philox.hpp"
#include "model/layout.hpp"

namespace minitaw::model {

/// Where the initial weights of a tensor come from: element i is number i of this row, whatever the sharding.
/// Its place among all rows is {role, layer}; layer is 2^32 - 1 for the ends. Uniform, not normal: no
/// library's sine or logarithm can make two machines differ. amplitude = sqrt(3) standard deviation:
///   wqkv, w13, head 1 / sqrt(H); wo 1 / sqrt(2 L H); w2 1 / sqrt(2 L F); embedding 1
/// Gains of norms are 1 + 0.1 u, so that exchanging two of them shows.
[[nodiscard]] UniformRow initial_row(const Tensor& tensor, const Shape& shape, std::uint64_t seed);

/// Initial weights of a shard / of the ends, fp32, on the host, one number after the other: what references
/// start from. Gaps are zero. Ranks draw theirs with model::draw().
void initialise(std::span<float> weights, const Shard& shard, const Shape& shape, std::uint64_t seed);
void initialise(std::span<float> weights, const Ends& ends, const Shape& shape, std::uint64_t seed);

}  // namespace minitaw::model
