#include "kernels/detail/attention_kernels.hpp"
#include "kernels/detail/portable/attention_tiles.hpp"

namespace minitaw::kernels::detail::portable {

namespace {

/// A team computes one tile of queries of one head: scores of a tile of keys at a time, online softmax.
template <class E, int tile>
struct Forward {
  E* y;
  float* lse;
  const E* qkv;
  AttentionSizes z;
  int tiles, level;

  struct Work {
    float *query, *key, *value, *sum, *score, *largest, *total, *shrink;

    KOKKOS_FUNCTION Work(float* base, int width)
        : query(base), key(query + tile * pitch(width)), value(key + tile * pitch(width)),
          sum(value + tile * pitch(width)), score(sum + tile * pitch(width)), largest(score + tile * tile),
          total(largest + tile), shrink(total + tile) {}
  };

  KOKKOS_FUNCTION void operator()(const Team& team) const {
    const int heads = z.batch * z.heads, head = team.league_rank() % heads;
    const int q = (tiles - 1 - team.league_rank() / heads) * tile;  // longest first
    const Head at(z, head / z.heads, head % z.heads);
    const Scratch scratch(team.team_scratch(level), forward_floats(tile, pitch(z.head_dim)));
    const Work work(scratch.data(), z.head_dim);
    const int nq = smaller(tile, z.seq - q);
    load_tile<tile>(team, work.query, qkv + at.query + q * at.stride, at.stride, nq, z.head_dim);
    together(team, tile * pitch(z.head_dim), [=](int i) { work.sum[i] = 0; });
    together(team, tile, [=](int r) {
      work.largest[r] = -Kokkos::Experimental::infinity_v<float>;
      work.total[r] = 0;
    });
    for (int k = 0; k < q + nq; k += tile) add_keys(team, work, at, q, k);
    finish(team, work, at, q, nq);
  }

  KOKKOS_FUNCTION void add_keys(const Team& team, const Work& work, const Head& at, int q, int k) const {
    const int nk = smaller(tile, z.seq - k), width = z.head_dim;
    load_tile<tile>(team, work.key, qkv + at.key + k * at.stride, at.stride, nk, width);
    load_tile<tile>(team, work.value, qkv + at.value + k * at.stride, at.stride, nk, width);
    scores_of<tile>(team, work.score, work.query, work.key, width,
                    1.0F / Kokkos::sqrt(static_cast<float>(width)));
    together(team, tile, [=](int r) { soften(work, r, smaller(nk, q + r - k + 1)); });
    together(team, tile * pitch(width), [=](int i) { work.sum[i] *= work.shrink[i / pitch(width)]; });
    add_product<tile>(team, work.sum, work.score, false, work.value, width);
  }

  KOKKOS_FUNCTION static void soften(const Work& work, int r, int visible) {
    float* const row = work.score + r * tile;
    float largest = work.largest[r];
    for (int i = 0; i < visible; ++i) largest = Kokkos::fmax(largest, row[i]);
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

  KOKKOS_FUNCTION void finish(const Team& team, const Work& work, const Head& at, int q, int nq) const {
    const int width = z.head_dim;
    float* const statistics = lse + at.row + q;
    together(team, tile * pitch(width), [=](int i) { work.sum[i] /= work.total[i / pitch(width)]; });
    store_tile(team, y + at.output + q * at.y_stride, at.y_stride, work.sum, nq, width);
    together(team, nq, [=](int r) { statistics[r] = work.largest[r] + Kokkos::log(work.total[r]); });
  }
};

}  // namespace

template <class E>
void attention_forward(const ExecutionSpace& exec, Matrix<E> y, Vector<float> lse, Matrix<const E> qkv,
                       const AttentionSizes& sizes) {
  const Launch launch(exec, std::int64_t{sizes.batch} * sizes.heads, sizes, forward_floats);
  launch.run("minitaw::attention_forward", [&](auto tile) {
    return Forward<E, tile>{y.data(), lse.data(), qkv.data(), sizes, launch.tiles, launch.tiling.level};
  });
}

template void attention_forward<float>(const ExecutionSpace&, Matrix<float>, Vector<float>,
                                       Matrix<const float>, const AttentionSizes&);
template void attention_forward<Bf16>(const ExecutionSpace&, Matrix<Bf16>, Vector<float>, Matrix<const Bf16>,
                                      const AttentionSizes&);

}  // namespace minitaw::kernels::detail::portable
