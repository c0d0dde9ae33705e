// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include "kernels/detail/backends.hpp"
#include "kernels/detail/loops.hpp"

/// Products of small packed matrices in the cache, with work on the result before it leaves. Large
/// ones are for BLAS.

namespace minitaw::kernels::detail::host {
namespace {
#if defined(__AVX512F__)
constexpr int simd_floats = 16, block_rows = 8;
#elif defined(__AVX__)
constexpr int simd_floats = 8, block_rows = 4;
#elif defined(__aarch64__)
constexpr int simd_floats = 4, block_rows = 8;  // twice the registers of SSE
#else
constexpr int simd_floats = 4, block_rows = 4;
#endif

/// Columns of a block of the result, which the processor's registers hold.
constexpr int block_vectors = 2, block_columns = block_vectors * simd_floats;

typedef float Simd __attribute__((vector_size(simd_floats * sizeof(float))));

/// A vector in memory, at any address.
typedef Simd SimdInMemory __attribute__((aligned(alignof(float)), may_alias));

SimdInMemory& simd_at(float* first) {
  return *reinterpret_cast<SimdInMemory*>(first);
}

/// Element (i, k) of the left operand is data[i * row + k * step].
struct Left {
  const float* data;
  std::ptrdiff_t row, step;
};

/// Row-major, rows of a multiple of block_columns.
struct Packed {
  float* data;
  std::ptrdiff_t row;
};

/// One block: c = (or, if `add`, +=) a b over `depth`.
template <bool add>
void multiply_block(int depth, Left a, Packed b, Packed c) {
  Simd sums[block_rows][block_vectors];
#pragma GCC unroll 8
  for (int i = 0; i < block_rows; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < block_vectors; ++v)
      sums[i][v] = add ? simd_at(c.data + i * c.row + v * simd_floats) : Simd{};
  for (int k = 0; k < depth; ++k) {
    Simd right[block_vectors];
#pragma GCC unroll 8
    for (int v = 0; v < block_vectors; ++v)
      right[v] = simd_at(b.data + v * simd_floats);
#pragma GCC unroll 8
    for (int i = 0; i < block_rows; ++i) {
      const float left = a.data[i * a.row];
#pragma GCC unroll 8
      for (int v = 0; v < block_vectors; ++v)
        sums[i][v] += left * right[v];
    }
    a.data += a.step;
    b.data += b.row;
  }
#pragma GCC unroll 8
  for (int i = 0; i < block_rows; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < block_vectors; ++v)
      simd_at(c.data + i * c.row + v * simd_floats) = sums[i][v];
}

/// c [rows, columns] = (`add`: +=) a [rows, depth] b [depth, columns]; rows and columns: multiples
/// of those of a block.
template <bool add>
void multiply(int rows, int columns, int depth, Left a, Packed b, Packed c) {
  for (int j = 0; j < columns; j += block_columns)
    for (int i = 0; i < rows; i += block_rows)
      multiply_block<add>(depth,
          {a.data + i * a.row, a.row, a.step},
          {b.data + j, b.row},
          {c.data + i * c.row + j, c.row});
}

// Forward and backward keep a tile of scores as its transpose, [key][query]: statistics of a query
// then lie in the lanes of a vector, and only queries have to be transposed, once.

/// Queries and keys of a tile: its operands, two of them in the backward, stay in the L2 cache.
constexpr int tile = 128;
static_assert(tile % block_columns == 0 && block_columns % block_rows == 0);

constexpr int round_up(int count, int to) {
  return (count + to - 1) / to * to;
}

/// Keys of a run in tiles that meet its tiles of queries at the diagonal: if the run begins inside
/// of a tile, the first one is short.
struct KeyTiles {
  explicit KeyTiles(const QueryRun& run)
      : first(run.position % tile),
        count(tiles_of(run.position, tile) + tiles_of(run.count, tile)) {}

  int begin(int i) const { return first > 0 && i > 0 ? first + (i - 1) * tile : i * tile; }

  int after(int k) const { return k < first ? first : k + tile; }

  int first;  ///< keys of a short first tile
  int count;
};

/// A tile: queries [q, q + nq), keys [k, k + nk), positions, no key after the last query.
struct Tile {
  int q, nq, k, nk;

  static Tile at(int q, int k, const QueryRun& run) {
    const int nq = std::min(tile, run.end() - q);
    return {q, nq, k, std::min(KeyTiles(run).after(k), q + nq) - k};
  }

  /// On the diagonal key i of the tile is seen by its queries i, i + 1, ...; elsewhere by all.
  bool on_diagonal() const { return k == q; }

  /// Most keys that a query sees in the block of columns that begins with query p.
  int keys_of(int p) const { return on_diagonal() ? std::min(nk, p + block_columns) : nk; }

  /// The first query that sees key i, and the first one in its block of columns.
  int first_query(int i) const { return on_diagonal() ? i : 0; }

  int queries_from(int i) const { return first_query(i) / block_columns * block_columns; }
};

/// Packs rows of `width` values, times `factor`; zeros up to the width of `to`. Rows after them, up
/// to a whole block, keep their values: they are multiplied, too, into rows that are never read.
void pack(const HeadRows<const float>& from, int width, float factor, Packed to) {
  for (int i = 0; i < from.count; ++i) {
    const float* const in = from.row(i);
    float* const out = to.data + i * to.row;
    for (int c = 0; c < width; ++c)
      out[c] = in[c] * factor;
    std::fill(out + width, out + to.row, 0.0F);
  }
}

void unpack(Packed from, float factor, const HeadRows<float>& to, int width) {
  for (int i = 0; i < to.count; ++i) {
    float* const out = to.row(i);
    for (int c = 0; c < width; ++c)
      out[c] = from.data[i * from.row + c] * factor;
  }
}

/// Packs rows, and writes them to columns [width][tile], too, with zeros after the last one.
void pack_both_ways(
    const HeadRows<const float>& from, int width, float factor, Packed to, float* columns) {
  pack(from, width, factor, to);
  for (int c = 0; c < width; ++c) {
    for (int i = 0; i < from.count; ++i)
      columns[c * tile + i] = to.data[i * to.row + c];
    std::fill(columns + c * tile + from.count, columns + (c + 1) * tile, 0.0F);
  }
}

/// Scores or their like: out [key][query] = left [key][d] right [d][query], where queries see keys.
void multiply_visible(const Tile& t, int width, Packed left, float* right, float* out) {
  for (int p = 0; p < t.nq; p += block_columns)
    multiply<false>(round_up(t.keys_of(p), block_rows),
        block_columns,
        width,
        {left.data, left.row, 1},
        {right + p, tile},
        {out + p, tile});
}

/// sums [query][d] += weights [key][query] times right [key][d] over the keys that each query
/// attends to.
void add_over_keys(const Tile& t, const float* weights, Packed right, Packed sums) {
  for (int p = 0; p < t.nq; p += block_columns)
    multiply<true>(block_columns,
        static_cast<int>(sums.row),
        t.keys_of(p),
        {weights + p, 1, tile},
        right,
        {sums.data + p * sums.row, sums.row});
}

/// sums [key][d] += of the queries that see each key, weights [key][query] times right [query][d].
void add_over_queries(const Tile& t, const float* weights, Packed right, Packed sums) {
  for (int i = 0; i < t.nk; i += block_columns) {
    const int from = t.queries_from(i),
              rows = round_up(std::min(block_columns, t.nk - i), block_rows);
    multiply<true>(rows,
        static_cast<int>(sums.row),
        t.nq - from,
        {weights + i * tile + from, tile, 1},
        {right.data + from * right.row, right.row},
        {sums.data + i * sums.row, sums.row});
  }
}

/// Room for the rows of a tile.
Packed take_rows(Memory& memory, int width) {
  return {memory.take(tile * width), width};
}

/// Forward and backward read their operands in this way.
template <class Problem>
struct Pass : Problem {
  int head_dim() const { return this->part.z.head_dim; }

  float scaling() const { return 1.0F / std::sqrt(static_cast<float>(head_dim())); }

  int queries_at(int q) const { return std::min(tile, this->part.run.end() - q); }

  void load_queries(const Head& at, int q, Packed to, float* columns) const {
    pack_both_ways(
        at.queries(this->qkv.data(), q, queries_at(q)), head_dim(), scaling(), to, columns);
  }

  void load_keys(const Head& at, const Tile& t, Packed key, Packed value) const {
    pack(at.keys(this->key_values.keys, t.k, t.nk), head_dim(), 1, key);
    pack(at.keys(this->key_values.values, t.k, t.nk), head_dim(), 1, value);
  }
};

/// Runs a function of `kernel` for each task, on one thread with memory of its own. Tasks differ
/// much in length (causal), so a free thread takes the next one.
template <class Kernel>
void launch(const char* label,
    const ExecutionSpace& exec,
    std::int64_t tasks,
    const Kernel& kernel,
    void (Kernel::*run)(int task, const typename Kernel::Work& work) const) {
  using Policy = Kokkos::TeamPolicy<ExecutionSpace, Kokkos::Schedule<Kokkos::Dynamic>>;
  const int head_dim = kernel.head_dim(), width = round_up(head_dim, block_columns);
  const auto work_in = [=](float* memory) {
    return typename Kernel::Work{{memory}, head_dim, width};
  };
  const int floats = work_in(nullptr).memory.floats;
  auto policy = Policy(exec, static_cast<int>(tasks), 1);
  policy.set_scratch_size(1, Kokkos::PerTeam(Scratch::shmem_size(floats)));
  Kokkos::parallel_for(label, policy, [=](const Policy::member_type& team) {
    const Scratch scratch(team.team_scratch(1), floats);
    (kernel.*run)(team.league_rank(), work_in(scratch.data()));
  });
}

/// A task is one tile of queries of one head: it walks over the keys that they see.
struct Forward : Pass<AttentionForward<float>> {
  struct Work {
    Memory memory;
    int d, width;
    float* query = memory.take(d * tile);  ///< [d][query], scaled
    Packed key = take_rows(memory, width), value = take_rows(memory, width),
           out = take_rows(memory, width);
    float* scores = memory.take(tile * tile);  ///< [key][query]
    float *largest = memory.take(tile), *sum = memory.take(tile),
          *shrink = memory.take(tile);  ///< of a query
  };

  void run(int index, const Work& work) const {
    const QueryTile task(part, tile, index);
    load_queries(task.head, task.begin, work.key, work.query);
    std::fill_n(work.largest, tile, -HUGE_VALF);
    std::fill_n(work.sum, tile, 0.0F);
    std::fill_n(work.out.data, tile * work.out.row, 0.0F);

    for (int k = 0; k <= task.begin; k = KeyTiles(part.run).after(k))
      add_keys(task.head, Tile::at(task.begin, k, part.run), work);
    finish(task, work);
  }

  void add_keys(const Head& at, const Tile& t, const Work& work) const {
    load_keys(at, t, work.key, work.value);
    multiply_visible(t, head_dim(), work.key, work.query, work.scores);
    soften(t, work);
    if (t.k > 0)
      shrink(t, work);
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
      std::fill(row + from, row + t.first_query(i), -HUGE_VALF);
#pragma GCC ivdep
      for (int q = from; q < tile; ++q)
        largest[q] = row[q] > largest[q] ? row[q] : largest[q];
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
      if (factor != 1.0F)
        for (int c = 0; c < work.out.row; ++c)
          row[c] *= factor;
    }
  }

  void finish(const QueryTile& task, const Work& work) const {
    const HeadRows<float> out = task.head.outputs(y.data(), task.begin, task.count);
    for (int r = 0; r < task.count; ++r) {
      const float* const row = work.out.data + r * work.out.row;
      float* const to = out.row(r);
      const float factor = 1.0F / work.sum[r];
      for (int c = 0; c < head_dim(); ++c)
        to[c] = row[c] * factor;
      lse(task.head.row + task.begin + r) = work.largest[r] + std::log(work.sum[r]);
    }
  }
};

/// by_head gives the same bits as by_keys and by_queries together.
struct Backward : Pass<AttentionBackward<float>> {
  struct Work {
    Memory memory;
    int d, width;
    float *query_columns = memory.take(d * tile),
          *slope_columns = memory.take(d * tile);  ///< [d][query]
    /// [query][d], queries scaled; slope: dy
    Packed query = take_rows(memory, width), slope = take_rows(memory, width),
           dquery = take_rows(memory, width);
    /// [key][d]
    Packed key = take_rows(memory, width), value = take_rows(memory, width),
           dkey = take_rows(memory, width), dvalue = take_rows(memory, width);
    float *probability = memory.take(tile * tile),
          *dscore = memory.take(tile * tile);                    ///< [key][query]
    float *lse = memory.take(tile), *delta = memory.take(tile);  ///< of each query; delta: y dy
  };

  /// A key/value head of a sequence with all the query heads that read it: 5 products a tile.
  void by_head(int task, const Work& work) const {
    const int kv_heads = part.kv_heads.count, first = first_head(task % kv_heads);
    const int sequence = task / kv_heads, end = part.run.end();
    for (int head = first; head < first + part.z.group(); ++head)
      for (int q = part.run.position; q < end; q += tile)
        add_queries(Head(part, sequence, head), q, work, [&](const Head& at, const Tile& t) {
          const bool seen = q > part.run.position && !t.on_diagonal();
          load_sums(at, t, head > first || seen || accumulate, work);
          add_to_keys(t, work);
          store_sums(at, t, work);
        });
  }

  /// A tile of keys, for their gradients and those of the values: 4 products a tile.
  void by_keys(int task, const Work& work) const {
    const int heads = part.z.batch * part.kv_heads.count;
    const int k = KeyTiles(part.run).begin(task / heads);  // longest tasks first
    const int sequence = task % heads / part.kv_heads.count,
              first = first_head(task % heads % part.kv_heads.count);
    const int begin = std::max(k, part.run.position);  // of the queries that see the keys
    const Head keys(part, sequence, first);
    const Tile own = Tile::at(begin, k, part.run);
    load_keys(keys, own, work.key, work.value);
    load_sums(keys, own, accumulate, work);
    for (int head = first; head < first + part.z.group(); ++head)
      for (int q = begin; q < part.run.end(); q += tile) {
        load_queries(Head(part, sequence, head), q, work);
        differentiate(Tile::at(q, k, part.run), work);
        add_to_keys(Tile::at(q, k, part.run), work);
      }
    store_sums(keys, own, work);
  }

  /// A tile of queries of a query head, for their gradients: 3 products a tile.
  void by_queries(int index, const Work& work) const {
    const QueryTile task(part, tile, index);
    add_queries(task.head, task.begin, work, [](const Head&, const Tile&) {});
  }

  /// The first query head that reads a key/value head of the part.
  int first_head(int kv_head) const { return part.heads().first + kv_head * part.z.group(); }

  /// The gradient of a tile of queries; also(head, tile) for each tile of the keys that they see.
  template <class Also>
  void add_queries(const Head& at, int q, const Work& work, const Also& also) const {
    load_queries(at, q, work);
    for (int k = 0; k <= q; k = KeyTiles(part.run).after(k)) {
      const Tile t = Tile::at(q, k, part.run);
      load_keys(at, t, work.key, work.value);
      differentiate(t, work);
      also(at, t);
      add_over_keys(t, work.dscore, work.key, work.dquery);
    }
    unpack(work.dquery, scaling(), at.queries(dqkv.data(), q, queries_at(q)), head_dim());
  }

  void load_queries(const Head& at, int q, const Work& work) const {
    const int nq = queries_at(q), d = head_dim();
    Pass::load_queries(at, q, work.query, work.query_columns);
    pack_both_ways(at.outputs(dy.data(), q, nq), d, 1, work.slope, work.slope_columns);
    const HeadRows<const float> outputs = at.outputs(y.data(), q, nq);
    for (int r = 0; r < nq; ++r) {
      work.lse[r] = lse(at.row + q + r);
      const float* const out = outputs.row(r);
      const float* const slope = work.slope.data + r * work.slope.row;
      work.delta[r] = lane_sum<float>(d, [=](int i) { return out[i] * slope[i]; });
    }
    std::fill(work.lse + nq, work.lse + tile, 0.0F);
    std::fill(work.delta + nq, work.delta + tile, 0.0F);
    std::fill_n(work.dquery.data, tile * work.dquery.row, 0.0F);
  }

  /// Sums of gradients up to here, if there are some.
  void load_sums(const Head& at, const Tile& t, bool some, const Work& work) const {
    for (const auto& [sums, from] :
        {std::pair{work.dkey, gradient_sums.keys}, std::pair{work.dvalue, gradient_sums.values}})
      if (some)
        pack(at.keys<const float>(from, t.k, t.nk), head_dim(), 1, sums);
      else
        std::fill_n(sums.data, tile * sums.row, 0.0F);
  }

  void store_sums(const Head& at, const Tile& t, const Work& work) const {
    unpack(work.dkey, 1, at.keys(gradient_sums.keys, t.k, t.nk), head_dim());
    unpack(work.dvalue, 1, at.keys(gradient_sums.values, t.k, t.nk), head_dim());
  }

  void differentiate(const Tile& t, const Work& work) const {
    multiply_visible(t, head_dim(), work.key, work.query_columns, work.probability);
    multiply_visible(t, head_dim(), work.value, work.slope_columns, work.dscore);
    soften(t, work);
  }

  static void add_to_keys(const Tile& t, const Work& work) {
    add_over_queries(t, work.probability, work.slope, work.dvalue);
    add_over_queries(t, work.dscore, work.query, work.dkey);
  }

  /// Scores become probabilities, gradients of probabilities become gradients of scores; hidden
  /// ones 0.
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
      std::fill(p + from, p + t.first_query(i), 0.0F);
      std::fill(d + from, d + t.first_query(i), 0.0F);
    }
  }
};

}  // namespace

void attend(const ExecutionSpace& exec, const AttentionForward<float>& p) {
  const std::int64_t heads = std::int64_t{p.part.z.batch} * p.part.heads().count;
  launch("minitaw::attention_forward",
      exec,
      heads * tiles_of(p.part.run.count, tile),
      Forward{{p}},
      &Forward::run);
}

void attend(const ExecutionSpace& exec, const AttentionBackward<float>& p, Tasks tasks) {
  const AttentionPart& part = p.part;
  const std::int64_t heads = std::int64_t{part.z.batch} * part.kv_heads.count,
                     query_heads = heads * part.z.group();
  // by tiles takes 7 products instead of 5, but leaves no thread idle
  const std::int64_t threads = exec.concurrency(), rounds = (heads + threads - 1) / threads;
  if (tasks == Tasks::automatic)
    tasks = 5 * rounds * threads > 7 * heads ? Tasks::tiles : Tasks::heads;

  const auto start = [&](std::int64_t count, auto run) {
    launch("minitaw::attention_backward", exec, count, Backward{{p}}, run);
  };
  if (tasks == Tasks::heads)
    return start(heads, &Backward::by_head);
  start(heads * KeyTiles(part.run).count, &Backward::by_keys);
  start(query_heads * tiles_of(part.run.count, tile), &Backward::by_queries);
}
}  // namespace minitaw::kernels::detail::host
