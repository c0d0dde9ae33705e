// SPDX-License-Identifier: BSD-3-Clause
// Keys, values and their gradients on their way between the fused projection and buffers of whole
// sequences.
#include <numeric>
#include "kernels/detail/backends.hpp"
#include "kernels/detail/loops.hpp"

namespace minitaw::kernels {
namespace {
using namespace detail;

/// Where a position of a sequence has its row: AttentionPart says how, for KeyValues.
struct Rows {
  std::int64_t stride;
  int batch, chunk;
  int shift = 0;  ///< from positions to rows of a sequence

  static Rows in_qkv(const Part& p) {
    return {p.row_of_qkv(), p.z.batch, p.z.seq, p.run.row - p.run.position};
  }

  static Rows in_key_values(const Part& p) { return {p.kv_stride, p.z.batch, p.chunk}; }

  [[nodiscard]] KOKKOS_FUNCTION std::int64_t offset(int sequence, int position) const {
    const int row = position + shift;
    const std::int64_t chunks = std::int64_t{row / chunk} * batch + sequence;
    return (chunks * chunk + row % chunk) * stride;
  }
};

/// A team takes one position of one sequence, n elements at a time.
template <class To, class From, int n>
struct Move {
  KeyValues<To> to;
  KeyValues<const From> from;
  Rows to_rows, from_rows;
  QueryRun run;
  int width;  ///< of the heads of the part
  bool adds;

  KOKKOS_FUNCTION void operator()(const RowTeam& team) const {
    const int sequence = team.league_rank() / run.count;
    const int position = run.position + team.league_rank() % run.count;
    const std::int64_t into = to_rows.offset(sequence, position),
                       out_of = from_rows.offset(sequence, position);
    row(team, to.keys + into, from.keys + out_of);
    row(team, to.values + into, from.values + out_of);
  }

  KOKKOS_FUNCTION void row(const RowTeam& team, To* out, const From* in) const {
    if (adds)
      row_for(team, width / n, [=](int i) {
        Floats<n> sum = load_pack<n>(out, i);
        const Floats<n> more = load_pack<n>(in, i);
        for (int j = 0; j < n; ++j)
          sum[j] += more[j];
        store_pack<n>(out, i, sum);
      });
    else
      row_for(team, width / n, [=](int i) { store_pack<n>(out, i, load_pack<n>(in, i)); });
  }
};

/// Moves the positions of `run`, in packs of the smaller type where rows allow it.
template <class To, class From>
void move(const char* label,
    const ExecutionSpace& exec,
    const Part& part,
    const QueryRun& run,
    const KeyValues<To>& to,
    const Rows& to_rows,
    const KeyValues<const From>& from,
    const Rows& from_rows,
    bool adds = false) {
  using Smaller = std::conditional_t<sizeof(To) < sizeof(From), To, From>;
  const int width = part.kv_heads.count * part.z.head_dim;
  const std::int64_t even = std::gcd(std::gcd(width, to_rows.stride), from_rows.stride);
  with_packs<Smaller>(even, {to.keys, to.values, from.keys, from.values}, [&](auto n) {
    Kokkos::parallel_for(label,
        row_policy(exec, std::int64_t{part.z.batch} * run.count, width / n),
        Move<To, From, n>{to, from, to_rows, from_rows, run, width, adds});
  });
}

template <class G>
struct Clear {
  KeyValues<G> of;
  Rows rows;
  int first, count, width;

  KOKKOS_FUNCTION void operator()(const RowTeam& team) const {
    const std::int64_t at =
        rows.offset(team.league_rank() / count, first + team.league_rank() % count);
    G *const keys = of.keys + at, *const values = of.values + at;
    row_for(team, width, [=](int i) { keys[i] = values[i] = store<G>(0); });
  }
};
}  // namespace

template <class E>
void copy_key_values(const ExecutionSpace& exec,
    KeyValues<E> to,
    MatrixIn<E> qkv,
    const AttentionSizes& sizes,
    const AttentionPart& part) {
  const Part p(sizes, part);
  move<E, E>("minitaw::copy_key_values",
      exec,
      p,
      p.run,
      to,
      Rows::in_key_values(p),
      p.in(qkv.data()),
      Rows::in_qkv(p));
}

template <class E, class G>
void take_key_values(const ExecutionSpace& exec,
    Matrix<E> dqkv,
    KeyValues<const G> sums,
    const AttentionSizes& sizes,
    const AttentionPart& part) {
  const Part p(sizes, part);
  move<E, G>("minitaw::take_key_values",
      exec,
      p,
      p.run,
      p.in(dqkv.data()),
      Rows::in_qkv(p),
      sums,
      Rows::in_key_values(p));
}

template <class T>
void move_key_values(const ExecutionSpace& exec,
    KeyValues<T> to,
    KeyRows to_rows,
    KeyValues<const T> from,
    KeyRows from_rows,
    const AttentionSizes& sizes,
    const AttentionPart& part,
    const QueryRun& run) {
  const Part p(sizes, part);
  const auto rows = [&](KeyRows of) { return Rows{p.kv_stride, p.z.batch, of.chunk, -of.first}; };
  move<T, T>("minitaw::move_key_values", exec, p, run, to, rows(to_rows), from, rows(from_rows));
}

template <class G>
void clear_key_values(const ExecutionSpace& exec,
    KeyValues<G> sums,
    const AttentionSizes& sizes,
    const AttentionPart& part,
    int positions) {
  const Part p(sizes, part);
  const int first = p.run.end(), count = positions - first;
  if (count > 0)
    Kokkos::parallel_for("minitaw::clear_key_values",
        row_policy(exec, std::int64_t{sizes.batch} * count, p.kv_heads.count * sizes.head_dim),
        Clear<G>{sums, Rows::in_key_values(p), first, count, p.kv_heads.count * sizes.head_dim});
}

template <class G>
void detail::add_key_values(const ExecutionSpace& exec,
    const KeyValues<G>& to,
    const Bf16* from,
    const Part& part,
    bool accumulate) {
  const int width = part.kv_heads.count * part.z.head_dim, count = part.run.end();
  move<G, Bf16>("minitaw::add_key_values",
      exec,
      part,
      {0, count, 0},
      to,
      Rows::in_key_values(part),
      {from, from + width},
      {2 * width, part.z.batch, count},
      accumulate);
}

MINITAW_INSTANTIATE(copy_key_values)
MINITAW_INSTANTIATE(move_key_values)
MINITAW_INSTANTIATE(clear_key_values)
#define MINITAW_TAKE(E, G)                                                                         \
  template void take_key_values(const ExecutionSpace&,                                             \
      Matrix<E>,                                                                                   \
      KeyValues<const G>,                                                                          \
      const AttentionSizes&,                                                                       \
      const AttentionPart&);
MINITAW_TAKE(float, float)
MINITAW_TAKE(Bf16, Bf16)
MINITAW_TAKE(Bf16, float)
template void detail::add_key_values(
    const ExecutionSpace&, const KeyValues<float>&, const Bf16*, const Part&, bool);
template void detail::add_key_values(
    const ExecutionSpace&, const KeyValues<Bf16>&, const Bf16*, const Part&, bool);
}  // namespace minitaw::kernels
