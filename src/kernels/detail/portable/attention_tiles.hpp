#pragma once

#include "kernels/attention.hpp"
#include "kernels/detail/scalar.hpp"

namespace minitaw::kernels::detail::portable {

/// Queries and keys of a tile. Small, so that all tiles of a team fit the scratch memory of any device.
inline constexpr int tile = 16;

/// From one row of a tile to the next: one more, so that threads that read a column meet different banks.
KOKKOS_INLINE_FUNCTION constexpr int pitch(int width) { return on_host ? width : width + 1; }

using Policy = Kokkos::TeamPolicy<ExecutionSpace>;
using Team = Policy::member_type;
using Scratch = Kokkos::View<float*, Team::scratch_memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

/// One team per task; `floats` of scratch, in fast memory where they fit.
struct Launch {
  Policy policy;
  int level;

  Launch(const ExecutionSpace& exec, std::int64_t tasks, int floats)
      : policy(exec, static_cast<int>(tasks), on_host ? 1 : tile * tile), level(0) {
    const auto bytes = Scratch::shmem_size(floats);
    level = static_cast<long long>(bytes) < policy.scratch_size_max(0) ? 0 : 1;
    policy.set_scratch_size(level, Kokkos::PerTeam(bytes));
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
template <class E>
KOKKOS_INLINE_FUNCTION void load_tile(const Team& team, float* to, const E* from, std::int64_t stride,
                                      int count, int width) {
  together(team, tile * width, [=](int i) {
    const int row = i / width, column = i % width;
    to[row * pitch(width) + column] = row < count ? load(from[row * stride + column]) : 0.0F;
  });
}

/// out [tile, tile] = factor a b^T; a, b [tile, width], their rows pitch(width) apart.
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

/// Where one head's queries, keys, values, outputs and row statistics of one sequence begin.
struct Head {
  std::int64_t stride, y_stride, query, key, value, output, row;

  KOKKOS_INLINE_FUNCTION Head(const AttentionSizes& z, int sequence, int head)
      : stride((z.heads + 2 * z.kv_heads) * z.head_dim), y_stride(z.heads * z.head_dim),
        query(std::int64_t{sequence} * z.seq * stride + head * z.head_dim),
        key(std::int64_t{sequence} * z.seq * stride + (z.heads + head / z.group()) * z.head_dim),
        value(key + z.kv_heads * z.head_dim),
        output(std::int64_t{sequence} * z.seq * y_stride + head * z.head_dim),
        row((std::int64_t{sequence} * z.heads + head) * z.seq) {}
};

KOKKOS_INLINE_FUNCTION int smaller(int a, int b) { return a < b ? a : b; }

}  // namespace minitaw::kernels::detail::portable
