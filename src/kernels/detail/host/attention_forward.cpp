#include <cmath>
#include <limits>

#include "kernels/detail/attention_kernels.hpp"
#include "kernels/detail/host/attention_tiles.hpp"
#include "kernels/detail/host/lanes.hpp"

namespace minitaw::kernels::detail::host {

namespace {

/// A task is one tile of queries of one head: it walks over the keys that they see.
struct Forward {
  Matrix<float> y;
  Vector<float> lse;
  Matrix<const float> qkv;
  AttentionSizes z;
  int tiles;

  void operator()(const TileTeam& team) const {
    const int heads = z.batch * z.heads, task = team.league_rank();
    const int q = (tiles - 1 - task / heads) * query_tile;  // longest tasks first
    const HeadPlace at(z, task % heads / z.heads, task % z.heads);
    const Scratch scratch(team.team_scratch(1), query_tile * (key_tile + 2));
    float* const scores = scratch.data();
    float* const largest = scores + query_tile * key_tile;
    float* const sums = largest + query_tile;
    const int nq = std::min(query_tile, z.seq - q);
    std::fill_n(largest, nq, -std::numeric_limits<float>::infinity());
    std::fill_n(sums, nq, 0.0F);
    for (int k = 0; k < q + nq; k += key_tile) add_keys(at, Tile::at(q, k, z.seq), scores, largest, sums);
    finish(at, q, nq, largest, sums);
  }

  void add_keys(const HeadPlace& at, const Tile& tile, float* scores, float* largest, float* sums) const {
    const std::int64_t q_row = std::int64_t{tile.q} * at.stride, k_row = std::int64_t{tile.k} * at.stride;
    float* const out = y.data() + at.output + std::int64_t{tile.q} * at.y_stride;
    sgemm(tile.nq, tile.nk, z.head_dim, 1.0F / std::sqrt(static_cast<float>(z.head_dim)),
          {qkv.data() + at.query + q_row, at.stride}, {qkv.data() + at.key + k_row, at.stride, true}, 0,
          scores, key_tile);
    for (int r = 0; r < tile.nq; ++r) {
      const float shrink = soften(scores + r * key_tile, tile.visible(r), tile.nk, largest[r], sums[r]);
      if (tile.k > 0 && shrink != 1.0F) scale(out + std::int64_t{r} * at.y_stride, z.head_dim, shrink);
    }
    sgemm(tile.nq, z.head_dim, tile.nk, 1, {scores, key_tile}, {qkv.data() + at.value + k_row, at.stride},
          tile.k > 0 ? 1.0F : 0.0F, out, at.y_stride);
  }

  /// Scores become exp(score - largest), hidden ones 0; returns what earlier results of the row shrink by.
  static float soften(float* row, int visible, int count, float& largest, float& sum) {
    const float before = largest;
    largest = largest_of(row, visible, before);
    exponentials(row, visible, largest);
    std::fill(row + visible, row + count, 0.0F);
    const float shrink = visible > 0 ? host_exponential(before - largest) : 1.0F;
    sum = sum * shrink + sum_of(row, visible);
    return shrink;
  }

  void finish(const HeadPlace& at, int q, int nq, const float* largest, const float* sums) const {
    for (int r = 0; r < nq; ++r) {
      scale(y.data() + at.output + std::int64_t{q + r} * at.y_stride, z.head_dim, 1.0F / sums[r]);
      lse(at.row + q + r) = largest[r] + std::log(sums[r]);
    }
  }
};

}  // namespace

void attention_forward(const ExecutionSpace& exec, Matrix<float> y, Vector<float> lse,
                       Matrix<const float> qkv, const AttentionSizes& sizes) {
  const int tiles = (sizes.seq + query_tile - 1) / query_tile;
  const std::int64_t tasks = std::int64_t{tiles} * sizes.batch * sizes.heads;
  Kokkos::parallel_for("minitaw::attention_forward", tile_policy(exec, tasks, query_tile * (key_tile + 2)),
                       Forward{y, lse, qkv, sizes, tiles});
}

}  // namespace minitaw::kernels::detail::host
