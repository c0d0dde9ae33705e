#include <cmath>

#include "kernels/detail/attention_kernels.hpp"
#include "kernels/detail/host/attention_tiles.hpp"
#include "kernels/detail/host/lanes.hpp"

namespace minitaw::kernels::detail::host {

namespace {

/// What a task is. The pieces are added in the same order either way, so the bits are the same.
struct ByHead {
};  ///< a key/value head of a sequence with all the query heads that read it: 5 products a tile
struct ByKeys {};     ///< a tile of its keys, for their gradients and those of the values: 4 products
struct ByQueries {};  ///< a tile of queries of a query head, for their gradients: 3 products

struct Backward {
  Matrix<float> dqkv;
  Matrix<const float> dy, qkv, y;
  Vector<const float> lse;
  AttentionSizes z;

  [[nodiscard]] int tiles() const { return (z.seq + tile - 1) / tile; }
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

  void operator()(ByHead, const TileTeam& team) const {
    const int sequence = team.league_rank() / z.kv_heads, kv_head = team.league_rank() % z.kv_heads;
    const Scratch scratch(team.team_scratch(1), scratch_floats());
    const Work work(*this, scratch.data());
    for (int head = kv_head * z.group(); head < (kv_head + 1) * z.group(); ++head) {
      const HeadPlace at(z, sequence, head);
      for (int q = 0; q < z.seq; q += tile) {
        load_queries(at, q, work);
        for (int k = 0; k <= q; k += tile) {
          const Tile t = Tile::at(q, k, z.seq);
          load_keys(at, t, work);
          load_sums(at, t, head == kv_head * z.group() && k == q, work);
          differentiate(t, work);
          add_to_keys(t, work);
          add_over_keys(t, work.dscore, work.key, work.dquery);
          store_sums(at, t, work);
        }
        store_queries(at, q, work);
      }
    }
  }

  void operator()(ByKeys, const TileTeam& team) const {
    const int heads = z.batch * z.kv_heads, task = team.league_rank();
    const int k = task / heads * tile;  // longest tasks first
    const int sequence = task % heads / z.kv_heads, kv_head = task % z.kv_heads;
    const Scratch scratch(team.team_scratch(1), scratch_floats());
    const Work work(*this, scratch.data());
    const HeadPlace keys(z, sequence, kv_head * z.group());
    const Tile own = Tile::at(k, k, z.seq);
    load_keys(keys, own, work);
    load_sums(keys, own, true, work);
    for (int head = kv_head * z.group(); head < (kv_head + 1) * z.group(); ++head)
      for (int q = k; q < z.seq; q += tile) {
        load_queries(HeadPlace(z, sequence, head), q, work);
        differentiate(Tile::at(q, k, z.seq), work);
        add_to_keys(Tile::at(q, k, z.seq), work);
      }
    store_sums(keys, own, work);
  }

  void operator()(ByQueries, const TileTeam& team) const {
    const int heads = z.batch * z.heads, task = team.league_rank();
    const int q = (tiles() - 1 - task / heads) * tile;  // longest tasks first
    const Scratch scratch(team.team_scratch(1), scratch_floats());
    const Work work(*this, scratch.data());
    const HeadPlace at(z, task % heads / z.heads, task % z.heads);
    load_queries(at, q, work);
    for (int k = 0; k <= q; k += tile) {
      const Tile t = Tile::at(q, k, z.seq);
      load_keys(at, t, work);
      differentiate(t, work);
      add_over_keys(t, work.dscore, work.key, work.dquery);
    }
    store_queries(at, q, work);
  }

  void load_queries(const HeadPlace& at, int q, const Work& work) const {
    const int nq = std::min(tile, z.seq - q), d = z.head_dim;
    const std::int64_t y_row = at.output + std::int64_t{q} * at.y_stride;
    pack(qkv.data() + at.query + std::int64_t{q} * at.stride, at.stride, nq, d, scaling(), work.query);
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
  }

  void store_queries(const HeadPlace& at, int q, const Work& work) const {
    float* const to = dqkv.data() + at.query + std::int64_t{q} * at.stride;
    for (int r = 0; r < std::min(tile, z.seq - q); ++r)
      for (int c = 0; c < z.head_dim; ++c)
        to[std::int64_t{r} * at.stride + c] = work.dquery.data[r * work.dquery.row + c] * scaling();
  }

  void load_keys(const HeadPlace& at, const Tile& t, const Work& work) const {
    const std::int64_t row = std::int64_t{t.k} * at.stride;
    pack(qkv.data() + at.key + row, at.stride, t.nk, z.head_dim, 1, work.key);
    pack(qkv.data() + at.value + row, at.stride, t.nk, z.head_dim, 1, work.value);
  }

  /// `first`: nothing has been added to the gradients of these keys and values.
  void load_sums(const HeadPlace& at, const Tile& t, bool first, const Work& work) const {
    const std::int64_t row = std::int64_t{t.k} * at.stride;
    for (const auto& [sums, place] : {std::pair{work.dkey, at.key}, {work.dvalue, at.value}}) {
      if (first) std::fill_n(sums.data, tile * sums.row, 0.0F);
      else pack(dqkv.data() + place + row, at.stride, t.nk, z.head_dim, 1, sums);
    }
  }

  void store_sums(const HeadPlace& at, const Tile& t, const Work& work) const {
    const std::int64_t row = std::int64_t{t.k} * at.stride;
    unpack(work.dkey, dqkv.data() + at.key + row, at.stride, t.nk, z.head_dim);
    unpack(work.dvalue, dqkv.data() + at.value + row, at.stride, t.nk, z.head_dim);
  }

  /// Probabilities and gradients of scores.
  void differentiate(const Tile& t, const Work& work) const {
    multiply_visible(t, z.head_dim, work.key, work.query_columns, work.probability);
    multiply_visible(t, z.head_dim, work.value, work.slope_columns, work.dscore);
    soften(t, work);
  }

  static void add_to_keys(const Tile& t, const Work& work) {
    add_over_queries(t, work.probability, work.slope, work.dvalue);
    add_over_queries(t, work.dscore, work.query, work.dkey);
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

template <class Tag>
void launch(const ExecutionSpace& exec, std::int64_t tasks, const Backward& backward) {
  Kokkos::parallel_for("minitaw::attention_backward",
                       tile_policy<Tag>(exec, tasks, backward.scratch_floats()), backward);
}

/// By tiles takes 7 products instead of 5, but leaves no thread idle.
bool too_few_heads(const ExecutionSpace& exec, std::int64_t heads) {
  const std::int64_t threads = exec.concurrency(), rounds = (heads + threads - 1) / threads;
  return 5 * rounds * threads > 7 * heads;
}

}  // namespace

void attention_backward(const ExecutionSpace& exec, Matrix<float> dqkv, Matrix<const float> dy,
                        Matrix<const float> qkv, Matrix<const float> y, Vector<const float> lse,
                        const AttentionSizes& sizes, Tasks tasks) {
  const Backward backward{dqkv, dy, qkv, y, lse, sizes};
  const std::int64_t heads = std::int64_t{sizes.batch} * sizes.kv_heads;
  if (tasks == Tasks::automatic) tasks = too_few_heads(exec, heads) ? Tasks::tiles : Tasks::heads;
  if (tasks == Tasks::heads) return launch<ByHead>(exec, heads, backward);
  launch<ByKeys>(exec, heads * backward.tiles(), backward);
  launch<ByQueries>(exec, heads * sizes.group() * backward.tiles(), backward);
}

}  // namespace minitaw::kernels::detail::host
