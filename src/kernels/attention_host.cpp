// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <limits>
#include "kernels/detail/backends.hpp"
#include "kernels/detail/loops.hpp"

/// Products of small packed matrices in the cache, with work on the result before it leaves. Large
/// ones are for BLAS.

namespace minitaw::kernels::detail::host {
namespace {
#if defined(__AVX512F__)
constexpr int simd_floats = 16, block_rows = 8, block_vectors = 2;
#elif defined(__AVX__)
constexpr int simd_floats = 8, block_rows = 4, block_vectors = 2;
#else
constexpr int simd_floats = 4, block_rows = 4, block_vectors = 2;
#endif

/// Columns of a block of the result, which the processor's registers hold.
constexpr int block_columns = block_vectors * simd_floats;

typedef float Simd __attribute__((vector_size(simd_floats * sizeof(float))));

Simd load_simd(const float* from) {
  Simd value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

void store_simd(float* to, Simd value) {
  std::memcpy(to, &value, sizeof value);
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
      sums[i][v] = add ? load_simd(c.data + i * c.row + v * simd_floats) : Simd{};
  for (int k = 0; k < depth; ++k) {
    Simd right[block_vectors];
#pragma GCC unroll 8
    for (int v = 0; v < block_vectors; ++v)
      right[v] = load_simd(b.data + v * simd_floats);
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
      store_simd(c.data + i * c.row + v * simd_floats, sums[i][v]);
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

// What the host's forward and backward have in common. A tile of scores is kept as its transpose,
// [key][query]: statistics of a query then lie in the lanes of a vector, and no operand has to be
// transposed but the queries, once.

/// Queries and keys of a tile: its operands, two of them in the backward, stay in the L2 cache.
constexpr int tile = 128;
static_assert(tile % block_columns == 0 && block_columns % block_rows == 0);

template <class Tag>
using TilePolicy = Kokkos::TeamPolicy<ExecutionSpace, Kokkos::Schedule<Kokkos::Dynamic>, Tag>;
using TileTeam = TilePolicy<void>::member_type;

/// Tasks differ much in length (causal), so a free thread takes the next one.
template <class Tag = void>
TilePolicy<Tag> tile_policy(const ExecutionSpace& exec, std::int64_t tasks, int scratch_floats) {
  return TilePolicy<Tag>(exec, static_cast<int>(tasks), 1)
      .set_scratch_size(1, Kokkos::PerTeam(Scratch::shmem_size(scratch_floats)));
}

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

  /// Returns the largest number of keys that a block of columns of queries, beginning with query p,
  /// attends to.
  int keys_of(int p) const { return on_diagonal() ? std::min(nk, p + block_columns) : nk; }

  /// The first query, of a whole block of columns, that sees key i.
  int queries_from(int i) const { return on_diagonal() ? i / block_columns * block_columns : 0; }
};

/// Packs rows of `width` values, times `factor`; zeros up to the width of `to`. Rows after them, up
/// to a whole block, keep their values: they are multiplied, too, into rows that are never read.
void pack(const HeadRows<const float>& from, int width, float factor, Packed to) {
  for (int i = 0; i < from.count; ++i) {
    const float* const in = from.row(i);
    float* const out = to.data + i * to.row;
    for (int c = 0; c < width; ++c)
      out[c] = in[c] * factor;
    for (int c = width; c < to.row; ++c)
      out[c] = 0;
  }
}

void unpack(Packed from, float factor, const HeadRows<float>& to, int width) {
  for (int i = 0; i < to.count; ++i) {
    float* const out = to.row(i);
    for (int c = 0; c < width; ++c)
      out[c] = from.data[i * from.row + c] * factor;
  }
}

/// to [width][tile], zeros after `count`.
void transpose(Packed from, int count, int width, float* to) {
  for (int c = 0; c < width; ++c) {
    for (int i = 0; i < count; ++i)
      to[c * tile + i] = from.data[i * from.row + c];
    for (int i = count; i < tile; ++i)
      to[c * tile + i] = 0;
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

struct Memory {
  float* data;
  int floats = 0;

  float* take(int count) { return data + std::exchange(floats, floats + count); }

  Packed rows(int width) { return {take(tile * width), width}; }
};

struct Inputs {
  AttentionPart part;
  Matrix<const float> qkv;
  KeyValues<const float> from;

  int head_dim() const { return part.z.head_dim; }

  int width() const { return round_up(head_dim(), block_columns); }

  template <class Work>
  int scratch_floats() const {
    return Work{{nullptr}, head_dim(), width()}.memory.floats;
  }

  template <class Work>
  Work work_of(const TileTeam& team) const {
    return {{Scratch(team.team_scratch(1), scratch_floats<Work>()).data()}, head_dim(), width()};
  }

  float scaling() const { return 1.0F / std::sqrt(static_cast<float>(head_dim())); }

  int queries_at(int q) const { return std::min(tile, part.run.end() - q); }

  void load_queries(const Head& at, int q, Packed to, float* columns) const {
    pack(at.queries(qkv.data(), q, queries_at(q)), head_dim(), scaling(), to);
    transpose(to, queries_at(q), head_dim(), columns);
  }

  void load_keys(const Head& at, const Tile& t, Packed key, Packed value) const {
    pack(at.keys(from.keys, t.k, t.nk), head_dim(), 1, key);
    pack(at.keys(from.values, t.k, t.nk), head_dim(), 1, value);
  }
};

/// A task is one tile of queries of one head: it walks over the keys that they see.
struct Forward : Inputs {
  Matrix<float> y;
  Vector<float> lse;

  struct Work {
    Memory memory;
    int d, width;
    float* query = memory.take(d * tile);  ///< [d][query], scaled
    Packed key = memory.rows(width), value = memory.rows(width), out = memory.rows(width);
    float* scores = memory.take(tile * tile);  ///< [key][query]
    float *largest = memory.take(tile), *sum = memory.take(tile),
          *shrink = memory.take(tile);  ///< of a query
  };

  void operator()(const TileTeam& team) const {
    const QueryTile task(part, tile, team.league_rank());
    const Head& at = task.head;
    const Work work = work_of<Work>(team);

    load_queries(at, task.begin, work.key, work.query);
    std::fill_n(work.largest, tile, -std::numeric_limits<float>::infinity());
    std::fill_n(work.sum, tile, 0.0F);
    std::fill_n(work.out.data, tile * work.out.row, 0.0F);

    for (int k = 0; k <= task.begin; k = KeyTiles(part.run).after(k))
      add_keys(at, Tile::at(task.begin, k, part.run), work);
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
      if (t.on_diagonal())
        std::fill(row + from, row + i, -std::numeric_limits<float>::infinity());
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
      if (factor == 1.0F)
        continue;
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

/// Division of the backward pass into tasks, with the same bits either way. ByHead: a key/value
/// head of a sequence with all the query heads that read it: 5 products a tile. ByKeys: a tile of
/// its keys, for their gradients and those of the values: 4. ByQueries: a tile of queries of a
/// query head, for their gradients: 3.
struct ByHead {};

struct ByKeys {};

struct ByQueries {};

struct Backward : Inputs {
  Matrix<float> dqkv;
  KeyValues<float> to;
  Matrix<const float> dy, y;
  Vector<const float> lse;
  bool accumulate;

  struct Work {
    Memory memory;
    int d, width;
    float *query_columns = memory.take(d * tile),
          *slope_columns = memory.take(d * tile);  ///< [d][query]
    /// [query][d], queries scaled; slope: dy
    Packed query = memory.rows(width), slope = memory.rows(width), dquery = memory.rows(width);
    /// [key][d]
    Packed key = memory.rows(width), value = memory.rows(width), dkey = memory.rows(width),
           dvalue = memory.rows(width);
    float *probability = memory.take(tile * tile),
          *dscore = memory.take(tile * tile);                    ///< [key][query]
    float *lse = memory.take(tile), *delta = memory.take(tile);  ///< of each query; delta: y dy
  };

  void operator()(ByHead, const TileTeam& team) const {
    const int kv_heads = part.kv_heads.count, first = first_head(team.league_rank() % kv_heads);
    const int sequence = team.league_rank() / kv_heads, end = part.run.end();
    const Work work = work_of<Work>(team);
    for (int head = first; head < first + part.z.group(); ++head)
      for (int q = part.run.position; q < end; q += tile)
        add_queries(Head(part, sequence, head), q, work, [&](const Head& at, const Tile& t) {
          const bool seen = q > part.run.position && !t.on_diagonal();
          load_sums(at, t, head > first || seen || accumulate, work);
          add_to_keys(t, work);
          store_sums(at, t, work);
        });
  }

  void operator()(ByKeys, const TileTeam& team) const {
    const int heads = part.z.batch * part.kv_heads.count, task = team.league_rank();
    const int k = KeyTiles(part.run).begin(task / heads);  // longest tasks first
    const int sequence = task % heads / part.kv_heads.count,
              first = first_head(task % heads % part.kv_heads.count);
    const int begin = std::max(k, part.run.position);  // of the queries that see the keys
    const Work work = work_of<Work>(team);
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

  void operator()(ByQueries, const TileTeam& team) const {
    const QueryTile task(part, tile, team.league_rank());
    add_queries(task.head, task.begin, work_of<Work>(team), [](const Head&, const Tile&) {});
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
    Inputs::load_queries(at, q, work.query, work.query_columns);
    pack(at.outputs(dy.data(), q, nq), d, 1, work.slope);
    transpose(work.slope, nq, d, work.slope_columns);

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

  /// The sums of the gradients of keys and values that `to` has already, if it has some.
  void load_sums(const Head& at, const Tile& t, bool some, const Work& work) const {
    if (some) {
      pack(at.keys<const float>(to.keys, t.k, t.nk), head_dim(), 1, work.dkey);
      pack(at.keys<const float>(to.values, t.k, t.nk), head_dim(), 1, work.dvalue);
    } else {
      for (const Packed& sums : {work.dkey, work.dvalue})
        std::fill_n(sums.data, tile * sums.row, 0.0F);
    }
  }

  void store_sums(const Head& at, const Tile& t, const Work& work) const {
    unpack(work.dkey, 1, at.keys(to.keys, t.k, t.nk), head_dim());
    unpack(work.dvalue, 1, at.keys(to.values, t.k, t.nk), head_dim());
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
      if (!t.on_diagonal())
        continue;
      std::fill(p + from, p + i, 0.0F);
      std::fill(d + from, d + i, 0.0F);
    }
  }
};

template <class Tag>
void launch(const ExecutionSpace& exec, std::int64_t tasks, const Backward& backward) {
  Kokkos::parallel_for("minitaw::attention_backward",
      tile_policy<Tag>(exec, tasks, backward.scratch_floats<Backward::Work>()),
      backward);
}

/// By tiles takes 7 products instead of 5, but leaves no thread idle.
bool too_few_heads(const ExecutionSpace& exec, std::int64_t heads) {
  const std::int64_t threads = exec.concurrency(), rounds = (heads + threads - 1) / threads;
  return 5 * rounds * threads > 7 * heads;
}
}  // namespace

void attention_forward(const ExecutionSpace& exec, const AttentionForward<float>& p) {
  const AttentionPart& part = p.part;
  const Forward forward{{part, p.qkv, part.choose(p.qkv.data(), p.key_values)}, p.y, p.lse};
  const std::int64_t heads = std::int64_t{part.z.batch} * part.heads().count;
  Kokkos::parallel_for("minitaw::attention_forward",
      tile_policy(
          exec, heads * tiles_of(part.run.count, tile), forward.scratch_floats<Forward::Work>()),
      forward);
}

void attention_backward(
    const ExecutionSpace& exec, const AttentionBackward<float>& p, Tasks tasks) {
  const AttentionPart& part = p.part;
  const Backward backward{{part, p.qkv, part.choose(p.qkv.data(), p.key_values)},
      p.dqkv,
      sums_of(part, p),
      p.dy,
      p.y,
      p.lse,
      p.accumulate};
  const std::int64_t heads = std::int64_t{part.z.batch} * part.kv_heads.count;
  if (tasks == Tasks::automatic)
    tasks = too_few_heads(exec, heads) ? Tasks::tiles : Tasks::heads;

  if (tasks == Tasks::heads)
    return launch<ByHead>(exec, heads, backward);
  launch<ByKeys>(exec, heads * KeyTiles(part.run).count, backward);
  launch<ByQueries>(exec, heads * part.z.group() * tiles_of(part.run.count, tile), backward);
}
}  // namespace minitaw::kernels::detail::host
