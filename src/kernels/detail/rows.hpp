#pragma once

#include <type_traits>
#include <utility>

#include "kernels/detail/pack.hpp"
#include "kernels/detail/scalar.hpp"
#include "kernels/types.hpp"

/// Loops over one row, shared by the threads of a team on a device, by the vector lanes of one thread on a
/// host.
namespace minitaw::kernels::detail {

inline constexpr int most_threads = 256;

/// Threads of a team on a host, at most as many as the execution space has. One thread alone has the better
/// vector code. Tests set this, so that the loops, sums and barriers of several threads run there too.
inline int threads_on_host = 1;

using RowPolicy = Kokkos::TeamPolicy<ExecutionSpace, Kokkos::LaunchBounds<most_threads>>;
using RowTeam = RowPolicy::member_type;

/// Threads for a row of `items`: no more passes over the team than `most` threads need, none of them nearly
/// empty.
inline int team_threads(int items, int most = most_threads) {
  if constexpr (on_host) return threads_on_host;
  const int passes = (items + most - 1) / most, share = passes > 0 ? (items + passes - 1) / passes : 1;
  return (share + 31) / 32 * 32;
}

/// One team per row of `items` elements or packs.
inline RowPolicy row_policy(const ExecutionSpace& exec, std::int64_t rows, int items = most_threads) {
  return RowPolicy(exec, static_cast<int>(rows), team_threads(items));
}

/// The thread is the whole team: its loops become vector code.
template <class Team>
KOKKOS_INLINE_FUNCTION bool alone([[maybe_unused]] const Team& team) {
  if constexpr (on_host) return team.team_size() == 1;
  else return false;
}

/// body(i) for i in [0, count), in order for each thread, so that the body may sum.
template <class Team, class Body>
KOKKOS_INLINE_FUNCTION void row_each(const Team& team, int count, const Body& body) {
  for (int i = team.team_rank(); i < count; i += team.team_size()) body(i);
}

/// body(i) for i in [0, count); the same thread gets the same i in every call. Iterations must be
/// independent.
template <class Team, class Body>
KOKKOS_INLINE_FUNCTION void row_for(const Team& team, int count, const Body& body) {
  if (alone(team)) [[likely]] {
#pragma GCC ivdep
    for (int i = 0; i < count; ++i) body(i);
  } else {
    row_each(team, count, body);
  }
}

/// Sum of term(i) for i in [0, count), known to the whole team; the order depends on count and the size
/// of the team alone.
template <class Sum, class Term>
KOKKOS_INLINE_FUNCTION Sum row_sum(const RowTeam& team, int count, const Term& term) {
  if (alone(team)) [[likely]] {
    constexpr int lanes = 16;  // independent sums keep the vector units busy and the rounding error small
    Sum sums[lanes] = {};
    int i = 0;
    for (; i + lanes <= count; i += lanes)
      for (int lane = 0; lane < lanes; ++lane) sums[lane] += term(i + lane);
    for (int lane = 0; i + lane < count; ++lane) sums[lane] += term(i + lane);
    for (int width = lanes / 2; width > 0; width /= 2)
      for (int lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
    return sums[0];
  }
  Sum sum = 0;
  row_each(team, count, [&](int i) { sum += term(i); });
  team.team_reduce(Kokkos::Sum<Sum>(sum));
  return sum;
}

}  // namespace minitaw::kernels::detail
