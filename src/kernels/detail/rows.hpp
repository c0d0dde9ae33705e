#pragma once

#include <utility>

#include "kernels/detail/scalar.hpp"
#include "kernels/types.hpp"

/// Loops over one row, shared by the threads of a team on a device, by the vector lanes of one thread on a
/// host.
namespace minitaw::kernels::detail {

using RowPolicy = Kokkos::TeamPolicy<ExecutionSpace>;
using RowTeam = RowPolicy::member_type;

/// One team per row.
inline RowPolicy row_policy(const ExecutionSpace& exec, std::int64_t rows) {
  return RowPolicy(exec, static_cast<int>(rows), on_host ? 1 : 256);
}

/// body(i) for i in [0, count); the same thread gets the same i in every call. Iterations must be
/// independent.
template <class Team, class Body>
KOKKOS_INLINE_FUNCTION void row_for(const Team& team, int count, const Body& body) {
  if constexpr (on_host) {
#pragma GCC ivdep
    for (int i = 0; i < count; ++i) body(i);
  } else {
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, count), body);
  }
}

/// Sum of term(i) for i in [0, count), known to the whole team; the order depends on nothing but count.
template <class Sum, class Term>
KOKKOS_INLINE_FUNCTION Sum row_sum(const RowTeam& team, int count, const Term& term) {
  if constexpr (on_host) {
    constexpr int lanes = 16;  // independent sums keep the vector units busy and the rounding error small
    Sum sums[lanes] = {};
    int i = 0;
    for (; i + lanes <= count; i += lanes)
      for (int lane = 0; lane < lanes; ++lane) sums[lane] += term(i + lane);
    for (int lane = 0; i + lane < count; ++lane) sums[lane] += term(i + lane);
    for (int width = lanes / 2; width > 0; width /= 2)
      for (int lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
    return sums[0];
  } else {
    Sum sum = 0;
    Kokkos::parallel_reduce(
        Kokkos::TeamVectorRange(team, count), [&](int i, Sum& part) { part += term(i); }, sum);
    return sum;
  }
}

/// Largest of term(i) for i in [0, count), at least `least`.
template <class Term>
KOKKOS_INLINE_FUNCTION float row_max(const RowTeam& team, int count, float least, const Term& term) {
  if constexpr (on_host) {
    constexpr int lanes = 16;
    float best[lanes];
    for (float& value : best) value = least;
    int i = 0;
    for (; i + lanes <= count; i += lanes)
      for (int lane = 0; lane < lanes; ++lane)
        best[lane] = term(i + lane) > best[lane] ? term(i + lane) : best[lane];
    for (; i < count; ++i) best[0] = term(i) > best[0] ? term(i) : best[0];
    for (const float value : best) least = value > least ? value : least;
    return least;
  } else {
    float result = least;
    Kokkos::parallel_reduce(
        Kokkos::TeamVectorRange(team, count),
        [&](int i, float& part) { part = term(i) > part ? term(i) : part; }, Kokkos::Max<float>(result));
    return result > least ? result : least;
  }
}

}  // namespace minitaw::kernels::detail
