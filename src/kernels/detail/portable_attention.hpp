#pragma once

#include "kernels/detail/backends.hpp"
#include "kernels/detail/loops.hpp"

namespace minitaw::kernels::detail::portable {

/// From one row of a tile to the next: one more, so that threads that read a column meet different banks.
KOKKOS_INLINE_FUNCTION constexpr int pitch(int width) { return on_host ? width : width + 1; }

using Policy = Kokkos::TeamPolicy<ExecutionSpace>;
using Team = Policy::member_type;
using Scratch = Kokkos::View<float*, Team::scratch_memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

/// Floats of scratch that a team needs for tiles of `tile` queries and keys, whose rows lie `pitch` apart.
using ScratchFloats = int (*)(int tile, int pitch);
KOKKOS_INLINE_FUNCTION constexpr int forward_floats(int tile, int pitch) {
  return tile * (4 * pitch + tile + 3);
}
KOKKOS_INLINE_FUNCTION constexpr int backward_floats(int tile, int pitch) {
  return tile * (6 * pitch + 2 * tile);
}

/// Queries and keys of a tile, and the level of scratch memory: fast memory (0), if need be with small tiles;
/// if not even these leave the team's floats in its `bytes`, slow memory (1) with large ones.
struct Tiling {
  int tile, level;

  bool operator==(const Tiling&) const = default;
};
inline Tiling tiling_for(ScratchFloats floats, int row_pitch, std::int64_t bytes) {
  for (const int tile : {16, 8})
    if (static_cast<std::int64_t>(Scratch::shmem_size(floats(tile, row_pitch))) < bytes) return {tile, 0};
  return {16, 1};
}

/// On a host all memory is alike and large tiles are faster: none is fast, unless a test says so.
inline std::int64_t fast_bytes_on_host = 0;

/// How teams work on sequences of `seq` tokens: one of them for each tile of each of `heads`.
struct Launch {
  Tiling tiling;
  int tiles;  ///< of a sequence
  Policy policy;

  /// A device's team is a thread for each score; small tiles take more, for all the other loops.
  Launch(const ExecutionSpace& exec, std::int64_t heads, const AttentionSizes& z, ScratchFloats floats)
      : tiling(tiling_for(floats, pitch(z.head_dim),
                          on_host ? fast_bytes_on_host : Policy::scratch_size_max(0))),
        tiles((z.seq + tiling.tile - 1) / tiling.tile),
        policy(exec, static_cast<int>(tiles * heads),
               on_host ? threads_on_host : (tiling.tile == 16 ? 256 : 128)) {
    policy.set_scratch_size(tiling.level,
                            Kokkos::PerTeam(Scratch::shmem_size(floats(tiling.tile, pitch(z.head_dim)))));
  }

  /// Runs what kernel(tile), with a compile-time constant, makes.
  template <class Kernel>
  void run(const char* label, const Kernel& kernel) const {
    if (tiling.tile == 16) Kokkos::parallel_for(label, policy, kernel(std::integral_constant<int, 16>()));
    else Kokkos::parallel_for(label, policy, kernel(std::integral_constant<int, 8>()));
  }
};

/// body(i) for i in [0, count), then a barrier.
template <class Body>
KOKKOS_INLINE_FUNCTION void together(const Team& team, int count, const Body& body) {
  Kokkos::parallel_for(Kokkos::TeamVectorRange(team, count), body);
  team.team_barrier();
}

/// to [tile, width] = rows first .. first + count of `from`, elements `stride` apart; the rest of the tile is
/// zero.
template <int tile, class E>
KOKKOS_INLINE_FUNCTION void load_tile(const Team& team, float* to, const E* from, std::int64_t stride,
                                      int count, int width) {
  together(team, tile * width, [=](int i) {
    const int row = i / width, column = i % width;
    to[row * pitch(width) + column] = row < count ? load(from[row * stride + column]) : 0.0F;
  });
}

/// out [tile, tile] = factor a b^T; a, b [tile, width], their rows pitch(width) apart.
template <int tile>
KOKKOS_INLINE_FUNCTION void scores_of(const Team& team, float* out, const float* a, const float* b, int width,
                                      float factor) {
  together(team, tile * tile, [=](int i) {
    const float* const left = a + i / tile * pitch(width);
    const float* const right = b + i % tile * pitch(width);
    float sum = 0;
    for (int k = 0; k < width; ++k) sum += left[k] * right[k];
    out[i] = factor * sum;
  });
}

/// out [tile, width] += p b, or p^T b; p [tile, tile], b [tile, width].
template <int tile>
KOKKOS_INLINE_FUNCTION void add_product(const Team& team, float* out, const float* p, bool transposed,
                                        const float* b, int width) {
  const int row_step = transposed ? 1 : tile, k_step = transposed ? tile : 1;
  together(team, tile * width, [=](int i) {
    const int row = i / width, column = i % width;
    const float* const weights = p + row * row_step;
    float sum = out[row * pitch(width) + column];
    for (int k = 0; k < tile; ++k) sum += weights[k * k_step] * b[k * pitch(width) + column];
    out[row * pitch(width) + column] = sum;
  });
}

/// Rows first .. first + count of `to` = from [tile, width].
template <class E>
KOKKOS_INLINE_FUNCTION void store_tile(const Team& team, E* to, std::int64_t stride, const float* from,
                                       int count, int width) {
  together(team, count * width, [=](int i) {
    const int row = i / width, column = i % width;
    to[row * stride + column] = store<E>(from[row * pitch(width) + column]);
  });
}

KOKKOS_INLINE_FUNCTION int smaller(int a, int b) { return a < b ? a : b; }

}  // namespace minitaw::kernels::detail::portable
