#include "kernels/detail/attention_kernels.hpp"
#include "kernels/detail/portable/attention_tiles.hpp"
#include "kernels/detail/reserve.hpp"

/// Three kernels without atomics, so that the sums have one order: the row sums of output x gradient, then
/// the gradient of queries (a team per tile of queries), then of keys and values (a team per tile of keys).
/// Scores are computed twice for it.
namespace minitaw::kernels::detail::portable {

namespace {

template <class E>
struct Delta {
  Vector<float> delta;
  Matrix<const E> dy, y;
  AttentionSizes z;

  KOKKOS_FUNCTION void operator()(std::int64_t row) const {
    const int head = static_cast<int>(row / z.seq);
    const Head at(z, head / z.heads, head % z.heads);
    const std::int64_t first = at.output + row % z.seq * at.y_stride;
    float sum = 0;
    for (int i = 0; i < z.head_dim; ++i) sum += load(y.data()[first + i]) * load(dy.data()[first + i]);
    delta(row) = sum;
  }
};

/// Tiles in scratch. `one` and `two` hold the sums: the gradient of queries, or of keys and values.
struct Work {
  float *query, *slope, *key, *value, *one, *two, *score, *dscore;

  KOKKOS_FUNCTION Work(float* base, int width)
      : query(base), slope(query + tile * pitch(width)), key(slope + tile * pitch(width)),
        value(key + tile * pitch(width)), one(value + tile * pitch(width)), two(one + tile * pitch(width)),
        score(two + tile * pitch(width)), dscore(score + tile * tile) {}
  KOKKOS_FUNCTION static int floats(int width) { return tile * (6 * pitch(width) + 2 * tile); }
};

template <class E>
struct Inputs {
  Matrix<const E> dy, qkv;
  Vector<const float> lse, delta;
  AttentionSizes z;
  int tiles, level;

  KOKKOS_FUNCTION void load_queries(const Team& team, const Work& work, const Head& at, int q) const {
    const int count = smaller(tile, z.seq - q);
    load_tile(team, work.query, qkv.data() + at.query + q * at.stride, at.stride, count, z.head_dim);
    load_tile(team, work.slope, dy.data() + at.output + q * at.y_stride, at.y_stride, count, z.head_dim);
  }
  KOKKOS_FUNCTION void load_keys(const Team& team, const Work& work, const Head& at, int k) const {
    const int count = smaller(tile, z.seq - k);
    load_tile(team, work.key, qkv.data() + at.key + k * at.stride, at.stride, count, z.head_dim);
    load_tile(team, work.value, qkv.data() + at.value + k * at.stride, at.stride, count, z.head_dim);
  }
  /// Probabilities and gradients of scores of the tile, zero outside the sequence and above the diagonal.
  KOKKOS_FUNCTION void soften(const Team& team, const Work& work, const Head& at, int q, int k) const {
    const float scaling = 1.0F / Kokkos::sqrt(static_cast<float>(z.head_dim));
    scores_of(team, work.score, work.query, work.key, z.head_dim, scaling);
    scores_of(team, work.dscore, work.slope, work.value, z.head_dim, 1);
    const Vector<const float> statistics = lse, sums = delta;
    const int seq = z.seq;
    together(team, tile * tile, [=](int i) {
      const int query = q + i / tile, key = k + i % tile;
      const bool visible = query < seq && key <= query;
      const float p = visible ? exponential(work.score[i] - statistics(at.row + query)) : 0.0F;
      work.dscore[i] = visible ? p * (work.dscore[i] - sums(at.row + query)) * scaling : 0.0F;
      work.score[i] = p;
    });
  }
};

template <class E>
struct QueryGradient {
  Matrix<E> dqkv;
  Inputs<E> in;

  KOKKOS_FUNCTION void operator()(const Team& team) const {
    const AttentionSizes& z = in.z;
    const int heads = z.batch * z.heads, head = team.league_rank() % heads;
    const int q = (in.tiles - 1 - team.league_rank() / heads) * tile;  // longest first
    const Head at(z, head / z.heads, head % z.heads);
    const Scratch scratch(team.team_scratch(in.level), Work::floats(z.head_dim));
    const Work work(scratch.data(), z.head_dim);
    const int nq = smaller(tile, z.seq - q);
    in.load_queries(team, work, at, q);
    together(team, tile * pitch(z.head_dim), [=](int i) { work.one[i] = 0; });
    for (int k = 0; k < q + nq; k += tile) {
      in.load_keys(team, work, at, k);
      in.soften(team, work, at, q, k);
      add_product(team, work.one, work.dscore, false, work.key, z.head_dim);
    }
    store_tile(team, dqkv.data() + at.query + q * at.stride, at.stride, work.one, nq, z.head_dim);
  }
};

template <class E>
struct KeyValueGradient {
  Matrix<E> dqkv;
  Inputs<E> in;

  KOKKOS_FUNCTION void operator()(const Team& team) const {
    const AttentionSizes& z = in.z;
    const int kv_heads = z.batch * z.kv_heads, kv_head = team.league_rank() % kv_heads;
    const int k = team.league_rank() / kv_heads * tile;  // longest first
    const int first = kv_head % z.kv_heads * z.group(), nk = smaller(tile, z.seq - k);
    const Scratch scratch(team.team_scratch(in.level), Work::floats(z.head_dim));
    const Work work(scratch.data(), z.head_dim);
    const Head keys(z, kv_head / z.kv_heads, first);
    in.load_keys(team, work, keys, k);
    together(team, 2 * tile * pitch(z.head_dim),
             [=](int i) { work.one[i] = 0; });  // one and two are neighbours
    for (int head = first; head < first + z.group(); ++head) {
      const Head at(z, kv_head / z.kv_heads, head);
      for (int q = k; q < z.seq; q += tile) {
        in.load_queries(team, work, at, q);
        in.soften(team, work, at, q, k);
        add_product(team, work.one, work.dscore, true, work.query, z.head_dim);
        add_product(team, work.two, work.score, true, work.slope, z.head_dim);
      }
    }
    store_tile(team, dqkv.data() + keys.key + k * keys.stride, keys.stride, work.one, nk, z.head_dim);
    store_tile(team, dqkv.data() + keys.value + k * keys.stride, keys.stride, work.two, nk, z.head_dim);
  }
};

}  // namespace

template <class E>
void attention_backward(const ExecutionSpace& exec, Matrix<E> dqkv, Vector<float> delta, Matrix<const E> dy,
                        Matrix<const E> qkv, Matrix<const E> y, Vector<const float> lse,
                        const AttentionSizes& sizes) {
  using Range = Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<std::int64_t>>;
  const std::int64_t heads = std::int64_t{sizes.batch} * sizes.heads;
  Kokkos::parallel_for("minitaw::attention_backward_delta", Range(exec, 0, heads * sizes.seq),
                       Delta<E>{delta, dy, y, sizes});

  const int tiles = (sizes.seq + tile - 1) / tile, floats = Work::floats(sizes.head_dim);
  const Launch queries(exec, tiles * heads, floats);
  const Launch keys(exec, std::int64_t{tiles} * sizes.batch * sizes.kv_heads, floats);
  Kokkos::parallel_for("minitaw::attention_backward_query", queries.policy,
                       QueryGradient<E>{dqkv, {dy, qkv, lse, delta, sizes, tiles, queries.level}});
  Kokkos::parallel_for("minitaw::attention_backward_key_value", keys.policy,
                       KeyValueGradient<E>{dqkv, {dy, qkv, lse, delta, sizes, tiles, keys.level}});
}

/// The backward pass needs the most.
void attention_prepare(const ExecutionSpace& exec, const AttentionSizes& sizes) {
  const std::int64_t tiles = (sizes.seq + tile - 1) / tile;
  reserve_scratch(Launch(exec, tiles * sizes.batch * sizes.heads, Work::floats(sizes.head_dim)).policy);
}

template void attention_backward<float>(const ExecutionSpace&, Matrix<float>, Vector<float>,
                                        Matrix<const float>, Matrix<const float>, Matrix<const float>,
                                        Vector<const float>, const AttentionSizes&);
template void attention_backward<Bf16>(const ExecutionSpace&, Matrix<Bf16>, Vector<float>, Matrix<const Bf16>,
                                       Matrix<const Bf16>, Matrix<const Bf16>, Vector<const float>,
                                       const AttentionSizes&);

}  // namespace minitaw::kernels::detail::portable
