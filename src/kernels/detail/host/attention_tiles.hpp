#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/attention.hpp"
#include "kernels/detail/host/block_product.hpp"
#include "kernels/detail/scalar.hpp"

/// What the host's forward and backward have in common. A tile of scores is kept as its transpose,
/// [key][query]: statistics of a query then lie in the lanes of a vector, and no operand has to be transposed
/// but the queries, once.
namespace minitaw::kernels::detail::host {

/// Queries and keys of a tile: its operands, two of them in the backward, stay in the L2 cache.
inline constexpr int tile = 128;
static_assert(tile % block_columns == 0 && block_columns % block_rows == 0);

template <class Tag>
using TilePolicy = Kokkos::TeamPolicy<ExecutionSpace, Kokkos::Schedule<Kokkos::Dynamic>, Tag>;
using TileTeam = TilePolicy<void>::member_type;
using Scratch = Kokkos::View<float*, TileTeam::scratch_memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

/// Tasks of very different length (causal): whoever is free takes the next.
template <class Tag = void>
TilePolicy<Tag> tile_policy(const ExecutionSpace& exec, std::int64_t tasks, int scratch_floats) {
  return TilePolicy<Tag>(exec, static_cast<int>(tasks), 1)
      .set_scratch_size(1, Kokkos::PerTeam(Scratch::shmem_size(scratch_floats)));
}

[[nodiscard]] constexpr int round_up(int count, int to) { return (count + to - 1) / to * to; }

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

/// A tile: queries [q, q + nq), keys [k, k + nk), none of them behind the last query.
struct Tile {
  int q, nq, k, nk;

  [[nodiscard]] static Tile at(int q, int k, int seq) {
    const int nq = std::min(tile, seq - q);
    return {q, nq, k, std::min(tile, q + nq - k)};
  }
  /// On the diagonal key i of the tile is seen by its queries i, i + 1, ...; elsewhere by all.
  [[nodiscard]] bool on_diagonal() const { return k == q; }
  /// How many keys a block of columns of queries, the first of them p, sees at most.
  [[nodiscard]] int keys_of(int p) const { return on_diagonal() ? std::min(nk, p + block_columns) : nk; }
  /// The first query, of a whole block of columns, that sees key i.
  [[nodiscard]] int queries_from(int i) const {
    return on_diagonal() ? i / block_columns * block_columns : 0;
  }
};

/// `count` rows of `width` values, `stride` apart, times `factor`; zeros up to the width of `to`. Rows behind
/// them, up to a whole block, keep what they hold: they are multiplied, too, into rows that nobody reads.
inline void pack(const float* from, std::int64_t stride, int count, int width, float factor,
                 Packed<float> to) {
  for (int i = 0; i < count; ++i) {
    const float* const in = from + i * stride;
    float* const out = to.data + i * to.row;
    for (int c = 0; c < width; ++c) out[c] = in[c] * factor;
    for (int c = width; c < to.row; ++c) out[c] = 0;
  }
}

/// The other way; adds nothing.
inline void unpack(Packed<const float> from, float* to, std::int64_t stride, int count, int width) {
  for (int i = 0; i < count; ++i)
    for (int c = 0; c < width; ++c) to[i * stride + c] = from.data[i * from.row + c];
}

/// to [width][tile], zeros behind `count`.
inline void transpose(Packed<const float> from, int count, int width, float* to) {
  for (int c = 0; c < width; ++c) {
    for (int i = 0; i < count; ++i) to[c * tile + i] = from.data[i * from.row + c];
    for (int i = count; i < tile; ++i) to[c * tile + i] = 0;
  }
}

/// Scores or their like: out [key][query] = left [key][d] right [d][query], where queries see keys.
inline void multiply_visible(const Tile& t, int width, Packed<const float> left, const float* right,
                             float* out) {
  for (int p = 0; p < t.nq; p += block_columns)
    multiply<false>(round_up(t.keys_of(p), block_rows), block_columns, width, {left.data, left.row, 1},
                    {right + p, tile}, {out + p, tile});
}

/// sums [query][d] += of what each query sees, weights [key][query] times right [key][d].
inline void add_over_keys(const Tile& t, const float* weights, Packed<const float> right,
                          Packed<float> sums) {
  for (int p = 0; p < t.nq; p += block_columns)
    multiply<true>(block_columns, static_cast<int>(sums.row), t.keys_of(p), {weights + p, 1, tile}, right,
                   {sums.data + p * sums.row, sums.row});
}

/// sums [key][d] += of the queries that see each key, weights [key][query] times right [query][d].
inline void add_over_queries(const Tile& t, const float* weights, Packed<const float> right,
                             Packed<float> sums) {
  for (int i = 0; i < t.nk; i += block_columns) {
    const int from = t.queries_from(i), rows = round_up(std::min(block_columns, t.nk - i), block_rows);
    multiply<true>(rows, static_cast<int>(sums.row), t.nq - from, {weights + i * tile + from, tile, 1},
                   {right.data + from * right.row, right.row}, {sums.data + i * sums.row, sums.row});
  }
}

}  // namespace minitaw::kernels::detail::host
