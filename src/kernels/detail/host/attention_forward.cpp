#include <cmath>
#include <limits>

#include "kernels/detail/attention_kernels.hpp"
#include "kernels/detail/host/attention_tiles.hpp"

namespace minitaw::kernels::detail::host {

namespace {

/// A task is one tile of queries of one head: it walks over the keys that they see.
struct Forward {
  Matrix<float> y;
  Vector<float> lse;
  Matrix<const float> qkv;
  AttentionSizes z;
  int tiles;

  [[nodiscard]] int width() const { return round_up(z.head_dim, block_columns); }
  [[nodiscard]] int scratch_floats() const { return tile * (z.head_dim + 3 * width() + tile + 3); }

  /// The parts of a task's memory.
  struct Work {
    Work(const Forward& f, float* memory) {
      const auto take = [&](int floats) { return std::exchange(memory, memory + floats); };
      query = take(f.z.head_dim * tile);
      key = {take(tile * f.width()), f.width()};
      value = {take(tile * f.width()), f.width()};
      out = {take(tile * f.width()), f.width()};
      scores = take(tile * tile);
      largest = take(tile);
      sum = take(tile);
      shrink = take(tile);
    }
    float* query;                   ///< [d][query], scaled
    Packed<float> key, value, out;  ///< [key][d], [key][d], [query][d]
    float* scores;                  ///< [key][query]
    float *largest, *sum, *shrink;  ///< of each query
  };

  void operator()(const TileTeam& team) const {
    const int heads = z.batch * z.heads, task = team.league_rank();
    const int q = (tiles - 1 - task / heads) * tile;  // longest tasks first
    const HeadPlace at(z, task % heads / z.heads, task % z.heads);
    const Scratch scratch(team.team_scratch(1), scratch_floats());
    const Work work(*this, scratch.data());
    begin(at, q, work);
    for (int k = 0; k <= q; k += tile) add_keys(at, Tile::at(q, k, z.seq), work);
    finish(at, q, work);
  }

  void begin(const HeadPlace& at, int q, const Work& work) const {
    const int nq = std::min(tile, z.seq - q);
    pack(qkv.data() + at.query + std::int64_t{q} * at.stride, at.stride, nq, z.head_dim,
         1.0F / std::sqrt(static_cast<float>(z.head_dim)), work.key);
    transpose(work.key, nq, z.head_dim, work.query);
    std::fill_n(work.largest, tile, -std::numeric_limits<float>::infinity());
    std::fill_n(work.sum, tile, 0.0F);
    std::fill_n(work.out.data, tile * work.out.row, 0.0F);
  }

  void add_keys(const HeadPlace& at, const Tile& t, const Work& work) const {
    const std::int64_t row = std::int64_t{t.k} * at.stride;
    pack(qkv.data() + at.key + row, at.stride, t.nk, z.head_dim, 1, work.key);
    pack(qkv.data() + at.value + row, at.stride, t.nk, z.head_dim, 1, work.value);
    multiply_visible(t, z.head_dim, work.key, work.query, work.scores);
    soften(t, work);
    if (t.k > 0) shrink(t, work);
    add_over_keys(t, work.scores, work.value, work.out);
  }

  /// Scores become exp(score - largest), hidden ones 0; says what earlier results shrink by.
  static void soften(const Tile& t, const Work& work) {
    float* const largest = work.largest;
    float* const sum = work.sum;
    std::copy_n(largest, tile, work.shrink);
    for (int i = 0; i < t.nk; ++i) {
      float* const row = work.scores + i * tile;
      const int from = t.queries_from(i);
      if (t.on_diagonal()) std::fill(row + from, row + i, -std::numeric_limits<float>::infinity());
#pragma GCC ivdep
      for (int q = from; q < tile; ++q) largest[q] = row[q] > largest[q] ? row[q] : largest[q];
    }
#pragma GCC ivdep
    for (int q = 0; q < tile; ++q) {
      work.shrink[q] = host_exponential(work.shrink[q] - largest[q]);
      sum[q] *= work.shrink[q];
    }
    for (int i = 0; i < t.nk; ++i) {
      float* const row = work.scores + i * tile;
#pragma GCC ivdep
      for (int q = t.queries_from(i); q < tile; ++q) {
        row[q] = host_exponential(row[q] - largest[q]);
        sum[q] += row[q];
      }
    }
  }

  static void shrink(const Tile& t, const Work& work) {
    for (int q = 0; q < t.nq; ++q) {
      float* const row = work.out.data + q * work.out.row;
      const float factor = work.shrink[q];
      if (factor == 1.0F) continue;
      for (int c = 0; c < work.out.row; ++c) row[c] *= factor;
    }
  }

  void finish(const HeadPlace& at, int q, const Work& work) const {
    const int nq = std::min(tile, z.seq - q);
    for (int r = 0; r < nq; ++r) {
      const float* const row = work.out.data + r * work.out.row;
      float* const out = y.data() + at.output + std::int64_t{q + r} * at.y_stride;
      const float factor = 1.0F / work.sum[r];
      for (int c = 0; c < z.head_dim; ++c) out[c] = row[c] * factor;
      lse(at.row + q + r) = work.largest[r] + std::log(work.sum[r]);
    }
  }
};

}  // namespace

void attention_forward(const ExecutionSpace& exec, Matrix<float> y, Vector<float> lse,
                       Matrix<const float> qkv, const AttentionSizes& sizes) {
  const int tiles = (sizes.seq + tile - 1) / tile;
  const Forward forward{y, lse, qkv, sizes, tiles};
  Kokkos::parallel_for(
      "minitaw::attention_forward",
      tile_policy(exec, std::int64_t{tiles} * sizes.batch * sizes.heads, forward.scratch_floats()), forward);
}

}  // namespace minitaw::kernels::detail::host
