#pragma once

#include <cstdint>
#include <span>

#include "model/layout.hpp"

namespace minitaw::model {

/// Initial weights of a shard / of the ends, fp32: the same values whatever the sharding. Gaps are zero.
///
/// Element i of a tensor is amplitude u, rounded to fp32, where u in [-1, 1) is word i mod 4 of
/// philox(counter {i / 4 low, i / 4 high, role, layer}, seed); layer is 2^32 - 1 for the ends. Uniform, not
/// normal: no library's sine or logarithm can make two machines differ. amplitude = sqrt(3) standard
/// deviation:
///   wqkv, w13, head 1 / sqrt(H); wo 1 / sqrt(2 L H); w2 1 / sqrt(2 L F); embedding 1
/// Gains of norms are 1 + 0.1 u, so that exchanging two of them shows.
void initialise(std::span<float> weights, const Shard& shard, const Shape& shape, std::uint64_t seed);
void initialise(std::span<float> weights, const Ends& ends, const Shape& shape, std::uint64_t seed);

}  // namespace minitaw::model
