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

  [[nodiscard]] int width() const { return round_up(z.head_dim, block_columns); }
  [[nodiscard]] float scaling() const { return 1.0F / std::sqrt(static_cast<float>(z.head_dim)); }
  [[nodiscard]] int scratch_floats() const { return tile * (2 * z.head_dim + 7 * width() + 2 * tile + 2); }

  /// The parts of a task's memory; of queries, keys and values, their gradients, and scores.
  struct Work {
    Work(const Backward& b, float* memory) {
      const auto take = [&](int floats) { return std::exchange(memory, memory + floats); };
      query_columns = take(b.z.head_dim * tile);
      slope_columns = take(b.z.head_dim * tile);
      for (Packed<float>* const part : {&query, &slope, &dquery, &key, &value, &dkey, &dvalue})
        *part = {take(tile * b.width()), b.width()};
      probability = take(tile * tile);
      dscore = take(tile * tile);
      lse = take(tile);
      delta = take(tile);
    }
    float *query_columns, *slope_columns;    ///< [d][query]; queries are scaled
    Packed<float> query, slope, dquery;      ///< [query][d]; slope: dy
    Packed<float> key, value, dkey, dvalue;  ///< [key][d]
    float *probability, *dscore;             ///< [key][query]
    float *lse, *delta;                      ///< of each query; delta: y dy
  };

  void operator()(const TileTeam& team) const {
    const int sequence = team.league_rank() / z.kv_heads, kv_head = team.league_rank() % z.kv_heads;
    const Scratch scratch(team.team_scratch(1), scratch_floats());
    const Work work(*this, scratch.data());
    for (int head = kv_head * z.group(); head < (kv_head + 1) * z.group(); ++head) {
      const HeadPlace at(z, sequence, head);
      for (int q = 0; q < z.seq; q += tile) queries(at, q, head == kv_head * z.group(), work);
    }
  }

  /// `first`: of the query heads that read these keys.
  void queries(const HeadPlace& at, int q, bool first, const Work& work) const {
    const int nq = std::min(tile, z.seq - q), d = z.head_dim;
    const std::int64_t row = at.query + std::int64_t{q} * at.stride;
    const std::int64_t y_row = at.output + std::int64_t{q} * at.y_stride;
    pack(qkv.data() + row, at.stride, nq, d, scaling(), work.query);
    pack(dy.data() + y_row, at.y_stride, nq, d, 1, work.slope);
    transpose(work.query, nq, d, work.query_columns);
    transpose(work.slope, nq, d, work.slope_columns);
    for (int r = 0; r < nq; ++r) {
      work.lse[r] = lse(at.row + q + r);
      work.delta[r] =
          dot_of(y.data() + y_row + std::int64_t{r} * at.y_stride, work.slope.data + r * work.slope.row, d);
    }
    std::fill(work.lse + nq, work.lse + tile, 0.0F);
    std::fill(work.delta + nq, work.delta + tile, 0.0F);
    std::fill_n(work.dquery.data, tile * work.dquery.row, 0.0F);
    for (int k = 0; k <= q; k += tile) keys(at, Tile::at(q, k, z.seq), first && k == q, work);
    for (int r = 0; r < nq; ++r)
      for (int c = 0; c < d; ++c)
        dqkv.data()[row + std::int64_t{r} * at.stride + c] =
            work.dquery.data[r * work.dquery.row + c] * scaling();
  }

  /// `first`: no query has been at these keys.
  void keys(const HeadPlace& at, const Tile& t, bool first, const Work& work) const {
    const std::int64_t row = std::int64_t{t.k} * at.stride;
    pack(qkv.data() + at.key + row, at.stride, t.nk, z.head_dim, 1, work.key);
    pack(qkv.data() + at.value + row, at.stride, t.nk, z.head_dim, 1, work.value);
    for (const auto& [sums, place] : {std::pair{work.dkey, at.key}, {work.dvalue, at.value}}) {
      if (first) std::fill_n(sums.data, tile * sums.row, 0.0F);
      else pack(dqkv.data() + place + row, at.stride, t.nk, z.head_dim, 1, sums);
    }
    multiply_visible(t, z.head_dim, work.key, work.query_columns, work.probability);
    multiply_visible(t, z.head_dim, work.value, work.slope_columns, work.dscore);
    soften(t, work);
    add_over_queries(t, work.probability, work.slope, work.dvalue);
    add_over_queries(t, work.dscore, work.query, work.dkey);
    add_over_keys(t, work.dscore, work.key, work.dquery);
    unpack(work.dkey, dqkv.data() + at.key + row, at.stride, t.nk, z.head_dim);
    unpack(work.dvalue, dqkv.data() + at.value + row, at.stride, t.nk, z.head_dim);
  }

  /// Scores become probabilities, gradients of probabilities become gradients of scores; hidden ones 0.
  static void soften(const Tile& t, const Work& work) {
    for (int i = 0; i < t.nk; ++i) {
      float* const p = work.probability + i * tile;
      float* const d = work.dscore + i * tile;
      const int from = t.queries_from(i);
#pragma GCC ivdep
      for (int q = from; q < tile; ++q) {
        p[q] = host_exponential(p[q] - work.lse[q]);
        d[q] = p[q] * (d[q] - work.delta[q]);
      }
      if (!t.on_diagonal()) continue;
      std::fill(p + from, p + i, 0.0F);
      std::fill(d + from, d + i, 0.0F);
    }
  }
};

}  // namespace

void attention_backward(const ExecutionSpace& exec, Matrix<float> dqkv, Matrix<const float> dy,
                        Matrix<const float> qkv, Matrix<const float> y, Vector<const float> lse,
                        const AttentionSizes& sizes) {
  const Backward backward{dqkv, dy, qkv, y, lse, sizes};
  Kokkos::parallel_for(
      "minitaw::attention_backward",
      tile_policy(exec, std::int64_t{sizes.batch} * sizes.kv_heads, backward.scratch_floats()), backward);
}

}  // namespace minitaw::kernels::detail::host
