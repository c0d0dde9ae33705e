// SPDX-License-Identifier: BSD-3-Clause
// Keys, values and their gradients on their way between the fused projection and buffers of whole
// sequences.
#include <numeric>
#include "kernels/detail/loops.hpp"

namespace minitaw::kernels {
namespace {
using namespace detail;

/// A team takes one position of one sequence, n elements at a time.
template <class To, class From, int n>
struct Move {
  KeyValues<To> to;
  KeyValues<const From> from;
  KeyRows to_rows, from_rows;
  QueryRun run;
  int batch, width;
  bool adds;

  KOKKOS_FUNCTION void operator()(const RowTeam& team) const {
    const int sequence = team.league_rank() / run.count;
    const int position = run.position + team.league_rank() % run.count;
    const std::int64_t into = offset(to_rows, sequence, position),
                       out_of = offset(from_rows, sequence, position);
    row(team, to.keys + into, from.keys + out_of);
    row(team, to.values + into, from.values + out_of);
  }

  KOKKOS_FUNCTION std::int64_t offset(const KeyRows& rows, int sequence, int position) const {
    const int row = position - rows.first;
    const std::int64_t chunks = std::int64_t{row / rows.chunk} * batch + sequence;
    return (chunks * rows.chunk + row % rows.chunk) * rows.stride;
  }

  KOKKOS_FUNCTION void row(const RowTeam& team, To* out, const From* in) const {
    if (adds)
      row_for(team, width / n, [=](int i) { convert_pack<n, true>(out, in, i); });
    else
      row_for(team, width / n, [=](int i) { convert_pack<n, false>(out, in, i); });
  }
};
}  // namespace

/// Moves packs of the smaller type where rows allow it.
template <class To, class From>
void move_key_values(const ExecutionSpace& exec,
    const AttentionPart& part,
    const QueryRun& run,
    KeyValues<To> to,
    const KeyRows& to_rows,
    KeyValues<const From> from,
    const KeyRows& from_rows,
    bool adds) {
  using Smaller = std::conditional_t<sizeof(To) < sizeof(From), To, From>;
  const int batch = part.z.batch, width = part.width();
  const std::int64_t even = std::gcd(std::gcd(width, to_rows.stride), from_rows.stride);
  with_packs<Smaller>(even, {to.keys, to.values, from.keys, from.values}, [&](auto n) {
    Kokkos::parallel_for("minitaw::move_key_values",
        row_policy(exec, std::int64_t{batch} * run.count, width / n),
        Move<To, From, n>{to, from, to_rows, from_rows, run, batch, width, adds});
  });
}

#define MINITAW_MOVE(To, From)                                                                     \
  template decltype(move_key_values<To, From>) move_key_values<To, From>;
MINITAW_MOVE(float, float)
MINITAW_MOVE(float, Bf16)
MINITAW_MOVE(Bf16, float)
MINITAW_MOVE(Bf16, Bf16)
}  // namespace minitaw::kernels
