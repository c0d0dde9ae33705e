#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/attention.hpp"
#include "kernels/detail/host/sgemm.hpp"
#include "kernels/detail/scalar.hpp"

namespace minitaw::kernels::detail::host {

/// A tile of scores is query_tile x key_tile: large enough for BLAS to run well, small enough for the L2
/// cache.
inline constexpr int query_tile = 64;
inline constexpr int key_tile = 128;

using TilePolicy = Kokkos::TeamPolicy<ExecutionSpace, Kokkos::Schedule<Kokkos::Dynamic>>;
using TileTeam = TilePolicy::member_type;
using Scratch = Kokkos::View<float*, TileTeam::scratch_memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

/// Tasks of very different length (causal): whoever is free takes the next.
inline TilePolicy tile_policy(const ExecutionSpace& exec, std::int64_t tasks, int scratch_floats) {
  return TilePolicy(exec, static_cast<int>(tasks), 1)
      .set_scratch_size(1, Kokkos::PerTeam(Scratch::shmem_size(scratch_floats)));
}

/// Where one head's queries, keys, values and outputs of one sequence are.
struct HeadPlace {
  HeadPlace(const AttentionSizes& z, int sequence, int head)
      : stride((z.heads + 2 * z.kv_heads) * z.head_dim), y_stride(z.heads * z.head_dim) {
    const std::int64_t token = std::int64_t{sequence} * z.seq;
    query = token * stride + head * z.head_dim;
    key = token * stride + (z.heads + head / z.group()) * z.head_dim;
    value = key + z.kv_heads * z.head_dim;
    output = token * y_stride + head * z.head_dim;
    row = (std::int64_t{sequence} * z.heads + head) * z.seq;
  }

  int stride, y_stride;                    ///< elements from one token to the next
  std::int64_t query, key, value, output;  ///< of the sequence's first token
  std::int64_t row;                        ///< of its first row statistic
};

/// A tile of scores: queries [q, q + nq), keys [k, k + nk), of which row r sees the first visible(r).
struct Tile {
  int q, nq, k, nk;

  [[nodiscard]] int visible(int r) const { return std::clamp(q + r - k + 1, 0, nk); }
  [[nodiscard]] static Tile at(int q, int k, int seq) {
    const int nq = std::min(query_tile, seq - q);
    return {q, nq, k, std::min({key_tile, seq - k, q + nq - k})};
  }
};

}  // namespace minitaw::kernels::detail::host
