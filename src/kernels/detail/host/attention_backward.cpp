#include <cmath>

#include "kernels/detail/attention_kernels.hpp"
#include "kernels/detail/host/attention_tiles.hpp"
#include "kernels/detail/host/lanes.hpp"

namespace minitaw::kernels::detail::host {

namespace {

/// A task is one key/value head of one sequence with all the query heads that read it, so that the gradients
/// of keys and values are summed by one thread in one order.
struct Backward {
  Matrix<float> dqkv;
  Matrix<const float> dy, qkv, y;
  Vector<const float> lse;
  AttentionSizes z;

  /// One tile's probabilities and their gradients, and the row sums of output x gradient.
  struct Work {
    float* probability;
    float* dscore;
    float* delta;
  };
  static constexpr int scratch_floats = query_tile * (2 * key_tile + 1);

  void operator()(const TileTeam& team) const {
    const int sequence = team.league_rank() / z.kv_heads, kv_head = team.league_rank() % z.kv_heads;
    const Scratch scratch(team.team_scratch(1), scratch_floats);
    float* const base = scratch.data();
    const Work work{base, base + query_tile * key_tile, base + 2 * query_tile * key_tile};
    clear(HeadPlace(z, sequence, kv_head * z.group()));
    for (int head = kv_head * z.group(); head < (kv_head + 1) * z.group(); ++head) {
      const HeadPlace at(z, sequence, head);
      for (int q = 0; q < z.seq; q += query_tile) queries(at, q, work);
    }
  }

  void clear(const HeadPlace& at) const {
    for (int s = 0; s < z.seq; ++s) {
      std::fill_n(dqkv.data() + at.key + std::int64_t{s} * at.stride, z.head_dim, 0.0F);
      std::fill_n(dqkv.data() + at.value + std::int64_t{s} * at.stride, z.head_dim, 0.0F);
    }
  }

  void queries(const HeadPlace& at, int q, const Work& work) const {
    const int nq = std::min(query_tile, z.seq - q);
    for (int r = 0; r < nq; ++r) {
      const std::int64_t row = at.output + std::int64_t{q + r} * at.y_stride;
      work.delta[r] = dot_of(y.data() + row, dy.data() + row, z.head_dim);
    }
    for (int k = 0; k < q + nq; k += key_tile) keys(at, Tile::at(q, k, z.seq), work);
  }

  void keys(const HeadPlace& at, const Tile& tile, const Work& work) const {
    const std::int64_t q_row = std::int64_t{tile.q} * at.stride, k_row = std::int64_t{tile.k} * at.stride;
    const float scaling = 1.0F / std::sqrt(static_cast<float>(z.head_dim));
    const Operand query{qkv.data() + at.query + q_row, at.stride},
        key{qkv.data() + at.key + k_row, at.stride};
    const Operand slope{dy.data() + at.output + std::int64_t{tile.q} * at.y_stride, at.y_stride};
    float* const dquery = dqkv.data() + at.query + q_row;
    float* const dkey = dqkv.data() + at.key + k_row;
    float* const dvalue = dqkv.data() + at.value + k_row;

    sgemm(tile.nq, tile.nk, z.head_dim, scaling, query, {key.data, key.stride, true}, 0, work.probability,
          key_tile);
    sgemm(tile.nq, tile.nk, z.head_dim, 1, slope, {qkv.data() + at.value + k_row, at.stride, true}, 0,
          work.dscore, key_tile);
    for (int r = 0; r < tile.nq; ++r) soften(at, tile, r, scaling, work);
    sgemm(tile.nk, z.head_dim, tile.nq, 1, {work.probability, key_tile, true}, slope, 1, dvalue, at.stride);
    sgemm(tile.nk, z.head_dim, tile.nq, 1, {work.dscore, key_tile, true}, query, 1, dkey, at.stride);
    sgemm(tile.nq, z.head_dim, tile.nk, 1, {work.dscore, key_tile}, key, tile.k > 0 ? 1.0F : 0.0F, dquery,
          at.stride);
  }

  /// Scores of a row become probabilities, gradients of probabilities become gradients of scores; hidden ones
  /// 0.
  void soften(const HeadPlace& at, const Tile& tile, int r, float scaling, const Work& work) const {
    float* const p = work.probability + r * key_tile;
    float* const d = work.dscore + r * key_tile;
    const float shift = lse(at.row + tile.q + r), delta = work.delta[r];
    const int visible = tile.visible(r);
#pragma GCC ivdep
    for (int i = 0; i < visible; ++i) {
      p[i] = host_exponential(p[i] - shift);
      d[i] = p[i] * (d[i] - delta) * scaling;
    }
    std::fill(p + visible, p + tile.nk, 0.0F);
    std::fill(d + visible, d + tile.nk, 0.0F);
  }
};

}  // namespace

void attention_backward(const ExecutionSpace& exec, Matrix<float> dqkv, Matrix<const float> dy,
                        Matrix<const float> qkv, Matrix<const float> y, Vector<const float> lse,
                        const AttentionSizes& sizes) {
  Kokkos::parallel_for(
      "minitaw::attention_backward",
      tile_policy(exec, std::int64_t{sizes.batch} * sizes.kv_heads, Backward::scratch_floats),
      Backward{dqkv, dy, qkv, y, lse, sizes});
}

}  // namespace minitaw::kernels::detail::host
