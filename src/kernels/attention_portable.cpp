// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/detail/backends.hpp"
#include "kernels/detail/loops.hpp"

namespace minitaw::kernels::detail::portable {
namespace {
/// Floats from one row of a tile to the next: on a device one more, so that threads that read a
/// column meet different banks.
KOKKOS_INLINE_FUNCTION constexpr int pitch(int width) {
  return on_host ? width : width + 1;
}

using Policy = Kokkos::TeamPolicy<ExecutionSpace>;
using Team = Policy::member_type;

/// Memory of a team for `tile` queries and keys, of `width` elements each.
struct ForwardWork {
  Memory memory;
  int tile, width;
  int rows = tile * pitch(width);  ///< floats of a tile of queries or keys
  float *query = memory.take(rows), *key = memory.take(rows), *value = memory.take(rows),
        *sum = memory.take(rows);
  float* score = memory.take(tile * tile);
  float *largest = memory.take(tile), *total = memory.take(tile), *shrink = memory.take(tile);
};

/// `one` and `two` hold the sums: the gradient of queries, or of keys and values.
struct BackwardWork {
  Memory memory;
  int tile, width;
  int rows = tile * pitch(width);
  float *query = memory.take(rows), *slope = memory.take(rows), *key = memory.take(rows),
        *value = memory.take(rows), *one = memory.take(rows), *two = memory.take(rows);
  float *score = memory.take(tile * tile), *dscore = memory.take(tile * tile);
};

template <class Work>
KOKKOS_INLINE_FUNCTION int floats_of(int tile, int width) {
  return Work{{nullptr}, tile, width}.memory.floats;
}

template <class Work>
KOKKOS_INLINE_FUNCTION Work work_of(const Team& team, int level, int tile, int width) {
  const Scratch scratch(team.team_scratch(level), floats_of<Work>(tile, width));
  return {{scratch.data()}, tile, width};
}

/// Launch of teams on `positions` positions: one team for each tile of each of `heads`.
struct Launch {
  int tile = on_host && small_tiles_on_host ? 8 : 16;  ///< queries and keys of a tile
  int level = 1;                                       ///< of scratch memory
  Policy policy;

  /// Fast memory (level 0), if need be with small tiles (backward from head_dim 128 on with the
  /// 40936 bytes that Kokkos 4.6 leaves a team on an NVIDIA device); else slow memory with large
  /// ones. On a host all memory is alike and large tiles are faster. A device's team is a thread
  /// for each score; small tiles take more, for all the other loops.
  Launch(const ExecutionSpace& exec,
      std::int64_t heads,
      int positions,
      int head_dim,
      int (*floats)(int tile, int width)) {
    const auto bytes = [&](int side) { return Scratch::shmem_size(floats(side, head_dim)); };
    for (const int side : {8, 16}) {
      if (on_host || !std::cmp_less(bytes(side), Policy::scratch_size_max(0)))
        continue;
      tile = side;
      level = 0;
    }
    const int device_threads = tile == 16 ? 256 : 128;
    policy = Policy(exec,
        static_cast<int>(tiles_of(positions, tile) * heads),
        on_host ? threads_on_host : device_threads);
    policy.set_scratch_size(level, Kokkos::PerTeam(bytes(tile)));
  }

  /// Runs what kernel(tile), with a compile-time constant, makes.
  template <class Kernel>
  void run(const char* label, const Kernel& kernel) const {
    if (tile == 16)
      Kokkos::parallel_for(label, policy, kernel(std::integral_constant<int, 16>()));
    else
      Kokkos::parallel_for(label, policy, kernel(std::integral_constant<int, 8>()));
  }
};

/// body(i) for i in [0, count), then a barrier.
template <class Body>
KOKKOS_INLINE_FUNCTION void together(const Team& team, int count, const Body& body) {
  Kokkos::parallel_for(Kokkos::TeamVectorRange(team, count), body);
  team.team_barrier();
}

template <int tile>
KOKKOS_INLINE_FUNCTION void clear_tile(const Team& team, float* to, int width) {
  together(team, tile * pitch(width), [=](int i) { to[i] = 0; });
}

/// to [tile, width] = the rows; what is left of it is zero.
template <int tile, class E>
KOKKOS_INLINE_FUNCTION void load_tile(
    const Team& team, float* to, const HeadRows<E>& from, int width) {
  together(team, tile * width, [=](int i) {
    const int row = i / width, column = i % width;
    to[row * pitch(width) + column] = row < from.count ? load(from.row(row)[column]) : 0.0F;
  });
}

/// out [tile, tile] = factor a b^T; a, b [tile, width], their rows pitch(width) apart.
template <int tile>
KOKKOS_INLINE_FUNCTION void scores_of(
    const Team& team, float* out, const float* a, const float* b, int width, float factor) {
  together(team, tile * tile, [=](int i) {
    const float* const left = a + i / tile * pitch(width);
    const float* const right = b + i % tile * pitch(width);
    float sum = 0;
    for (int k = 0; k < width; ++k)
      sum += left[k] * right[k];
    out[i] = factor * sum;
  });
}

/// out [tile, width] += p b, or p^T b; p [tile, tile], b [tile, width].
template <int tile>
KOKKOS_INLINE_FUNCTION void add_product(
    const Team& team, float* out, const float* p, bool transposed, const float* b, int width) {
  const int row_step = transposed ? 1 : tile, k_step = transposed ? tile : 1;
  together(team, tile * width, [=](int i) {
    const int row = i / width, column = i % width;
    const float* const weights = p + row * row_step;
    float sum = out[row * pitch(width) + column];
    for (int k = 0; k < tile; ++k)
      sum += weights[k * k_step] * b[k * pitch(width) + column];
    out[row * pitch(width) + column] = sum;
  });
}

/// The rows = from [tile, width].
template <class E>
KOKKOS_INLINE_FUNCTION void store_tile(
    const Team& team, const HeadRows<E>& to, const float* from, int width) {
  together(team, to.count * width, [=](int i) {
    const int row = i / width, column = i % width;
    to.row(row)[column] = store<E>(from[row * pitch(width) + column]);
  });
}

KOKKOS_INLINE_FUNCTION float scaling_of(const AttentionSizes& z) {
  return 1.0F / Kokkos::sqrt(static_cast<float>(z.head_dim));
}

/// A team computes one tile of queries of one head: scores of a tile of keys at a time, online
/// softmax.
template <class E, int tile>
struct Forward {
  E* y;
  float* lse;
  const E* qkv;
  KeyValues<const E> from;
  AttentionPart part;
  int level;

  KOKKOS_FUNCTION void operator()(const Team& team) const {
    const QueryTile task(part, tile, team.league_rank());
    const int width = part.z.head_dim;
    const auto work = work_of<ForwardWork>(team, level, tile, width);
    const auto queries = task.head.queries(qkv, task.begin, task.count);
    load_tile<tile>(team, work.query, queries, width);
    clear_tile<tile>(team, work.sum, width);
    together(team, tile, [=](int r) {
      work.largest[r] = -Kokkos::Experimental::infinity_v<float>;
      work.total[r] = 0;
    });

    for (int k = 0; k < task.begin + task.count; k += tile)
      add_keys(team, work, task, k);
    finish(team, work, task);
  }

  KOKKOS_FUNCTION void add_keys(
      const Team& team, const ForwardWork& work, const QueryTile& task, int k) const {
    const int q = task.begin, nk = Kokkos::min(tile, part.run.end() - k), width = part.z.head_dim;
    load_tile<tile>(team, work.key, task.head.keys(from.keys, k, nk), width);
    load_tile<tile>(team, work.value, task.head.keys(from.values, k, nk), width);
    scores_of<tile>(team, work.score, work.query, work.key, width, scaling_of(part.z));
    together(team, tile, [=](int r) { soften(work, r, Kokkos::min(nk, q + r - k + 1)); });
    together(
        team, tile * pitch(width), [=](int i) { work.sum[i] *= work.shrink[i / pitch(width)]; });
    add_product<tile>(team, work.sum, work.score, false, work.value, width);
  }

  KOKKOS_FUNCTION static void soften(const ForwardWork& work, int r, int visible) {
    float* const row = work.score + r * tile;
    float largest = work.largest[r];
    for (int i = 0; i < visible; ++i)
      largest = Kokkos::fmax(largest, row[i]);
    const float shrink = exponential(work.largest[r] - largest);
    float total = work.total[r] * shrink;
    for (int i = 0; i < tile; ++i) {
      row[i] = i < visible ? exponential(row[i] - largest) : 0.0F;
      total += row[i];
    }
    work.largest[r] = largest;
    work.total[r] = total;
    work.shrink[r] = shrink;
  }

  KOKKOS_FUNCTION void finish(
      const Team& team, const ForwardWork& work, const QueryTile& task) const {
    const int width = part.z.head_dim;
    float* const statistics = lse + (task.head.row + task.begin);
    together(
        team, tile * pitch(width), [=](int i) { work.sum[i] /= work.total[i / pitch(width)]; });
    store_tile(team, task.head.outputs(y, task.begin, task.count), work.sum, width);
    together(team, task.count, [=](int r) {
      statistics[r] = work.largest[r] + Kokkos::log(work.total[r]);
    });
  }
};

// Three kernels without atomics, so that the sums have one order: the row sums of output x
// gradient, then the gradient of queries (a team per tile of queries), then of keys and values (a
// team per tile of keys).

template <class E>
struct Delta {
  float* delta;
  const E *dy, *y;
  AttentionPart part;

  KOKKOS_FUNCTION void operator()(std::int64_t row) const {
    const QueryTile query(part, 1, static_cast<int>(row));
    const std::int64_t first = query.head.output + query.begin * query.head.y_stride;
    float sum = 0;
    for (int i = 0; i < part.z.head_dim; ++i)
      sum += load(y[first + i]) * load(dy[first + i]);
    delta[query.head.row + query.begin] = sum;
  }
};

template <class E, int tile>
struct Inputs {
  const E *dy, *qkv;
  KeyValues<const E> from;
  const float *lse, *delta;
  AttentionPart part;
  int level;

  KOKKOS_FUNCTION void load_queries(
      const Team& team, const BackwardWork& work, const Head& at, int q) const {
    const int count = Kokkos::min(tile, part.run.end() - q);
    load_tile<tile>(team, work.query, at.queries(qkv, q, count), part.z.head_dim);
    load_tile<tile>(team, work.slope, at.outputs(dy, q, count), part.z.head_dim);
  }

  KOKKOS_FUNCTION void load_keys(
      const Team& team, const BackwardWork& work, const Head& at, int k) const {
    const int count = Kokkos::min(tile, part.run.end() - k);
    load_tile<tile>(team, work.key, at.keys(from.keys, k, count), part.z.head_dim);
    load_tile<tile>(team, work.value, at.keys(from.values, k, count), part.z.head_dim);
  }

  /// Probabilities and gradients of scores of the tile, zero outside the run and above the
  /// diagonal.
  KOKKOS_FUNCTION void soften(
      const Team& team, const BackwardWork& work, const Head& at, int q, int k) const {
    const float scaling = scaling_of(part.z);
    scores_of<tile>(team, work.score, work.query, work.key, part.z.head_dim, scaling);
    scores_of<tile>(team, work.dscore, work.slope, work.value, part.z.head_dim, 1);
    const float *const statistics = lse, *const sums = delta;
    const std::int64_t first = at.row;
    const int end = part.run.end();
    together(team, tile * tile, [=](int i) {
      const int query = q + i / tile, key = k + i % tile;
      const bool visible = query < end && key <= query;
      const float p = visible ? exponential(work.score[i] - statistics[first + query]) : 0.0F;
      work.dscore[i] = visible ? p * (work.dscore[i] - sums[first + query]) * scaling : 0.0F;
      work.score[i] = p;
    });
  }
};

template <class E, int tile>
struct QueryGradient {
  E* dqkv;
  Inputs<E, tile> in;

  KOKKOS_FUNCTION void operator()(const Team& team) const {
    const int width = in.part.z.head_dim;
    const QueryTile task(in.part, tile, team.league_rank());
    const auto work = work_of<BackwardWork>(team, in.level, tile, in.part.z.head_dim);
    in.load_queries(team, work, task.head, task.begin);
    clear_tile<tile>(team, work.one, width);

    for (int k = 0; k < task.begin + task.count; k += tile) {
      in.load_keys(team, work, task.head, k);
      in.soften(team, work, task.head, task.begin, k);
      add_product<tile>(team, work.one, work.dscore, false, work.key, width);
    }
    store_tile(team, task.head.queries(dqkv, task.begin, task.count), work.one, width);
  }
};

template <class E, class G, int tile>
struct KeyValueGradient {
  KeyValues<G> to;
  bool accumulate;
  Inputs<E, tile> in;

  KOKKOS_FUNCTION void operator()(const Team& team) const {
    const AttentionSizes& z = in.part.z;
    const int begin = in.part.run.position, end = in.part.run.end();
    const int kv_heads = in.part.kv_heads.count, task = team.league_rank();
    const int sequence = task % (z.batch * kv_heads) / kv_heads;
    const int first = in.part.heads().first + task % kv_heads * z.group();
    const int k = task / (z.batch * kv_heads) * tile;
    const auto work = work_of<BackwardWork>(team, in.level, tile, in.part.z.head_dim);
    const Head keys(in.part, sequence, first);
    const auto dkeys = keys.keys(to.keys, k, Kokkos::min(tile, end - k));
    const auto dvalues = keys.keys(to.values, k, dkeys.count);
    in.load_keys(team, work, keys, k);
    start(team, work.one, dkeys);
    start(team, work.two, dvalues);

    for (int head = first; head < first + z.group(); ++head) {
      const Head at(in.part, sequence, head);
      for (int q = k > begin ? k - (k - begin) % tile : begin; q < end; q += tile) {
        in.load_queries(team, work, at, q);
        in.soften(team, work, at, q, k);
        add_product<tile>(team, work.one, work.dscore, true, work.query, z.head_dim);
        add_product<tile>(team, work.two, work.score, true, work.slope, z.head_dim);
      }
    }
    store_tile(team, dkeys, work.one, z.head_dim);
    store_tile(team, dvalues, work.two, z.head_dim);
  }

  /// Sets the sums to which the products of the tile are added.
  KOKKOS_FUNCTION void start(const Team& team, float* sum, const HeadRows<G>& before) const {
    if (accumulate)
      load_tile<tile>(team, sum, before, in.part.z.head_dim);
    else
      clear_tile<tile>(team, sum, in.part.z.head_dim);
  }
};
}  // namespace

template <class E>
void attend(const ExecutionSpace& exec, const AttentionForward<E>& p) {
  const AttentionPart& part = p.part;
  const AttentionSizes& z = part.z;
  const std::int64_t heads = std::int64_t{z.batch} * part.heads().count;
  const Launch launch(exec, heads, part.run.count, z.head_dim, floats_of<ForwardWork>);
  launch.run("minitaw::attention_forward", [&](auto tile) {
    return Forward<E, tile>{
        p.y.data(), p.lse.data(), p.qkv.data(), p.key_values, part, launch.level};
  });
}

template <class E, class G>
void attend(const ExecutionSpace& exec, const AttentionBackward<E, G>& p) {
  const AttentionPart& part = p.part;
  const AttentionSizes& z = part.z;
  const std::int64_t heads = std::int64_t{z.batch} * part.heads().count,
                     kv_heads = std::int64_t{z.batch} * part.kv_heads.count;
  Kokkos::parallel_for("minitaw::attention_backward_delta",
      FlatPolicy(exec, 0, heads * part.run.count),
      Delta<E>{p.delta.data(), p.dy.data(), p.y.data(), part});

  const Launch queries(exec, heads, part.run.count, z.head_dim, floats_of<BackwardWork>);
  const Launch keys(exec, kv_heads, part.run.end(), z.head_dim, floats_of<BackwardWork>);
  const auto inputs = [&](auto tile) {
    return Inputs<E, tile>{
        p.dy.data(), p.qkv.data(), p.key_values, p.lse.data(), p.delta.data(), part, queries.level};
  };
  queries.run("minitaw::attention_backward_query",
      [&](auto tile) { return QueryGradient<E, tile>{p.dqkv.data(), inputs(tile)}; });
  keys.run("minitaw::attention_backward_key_value", [&](auto tile) {
    return KeyValueGradient<E, G, tile>{p.gradient_sums, p.accumulate, inputs(tile)};
  });
}

/// The backward pass needs the most.
void attention_prepare(const ExecutionSpace& exec, const AttentionPart& part) {
  const std::int64_t heads = std::int64_t{part.z.batch} * part.heads().count;
  reserve_scratch(
      Launch(exec, heads, part.run.end(), part.z.head_dim, floats_of<BackwardWork>).policy);
}

template void attend(const ExecutionSpace&, const AttentionForward<float>&);
template void attend(const ExecutionSpace&, const AttentionForward<Bf16>&);
template void attend(const ExecutionSpace&, const AttentionBackward<float>&);
template void attend(const ExecutionSpace&, const AttentionBackward<Bf16>&);
template void attend(const ExecutionSpace&, const AttentionBackward<Bf16, float>&);
}  // namespace minitaw::kernels::detail::portable
