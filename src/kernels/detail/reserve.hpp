#pragma once

#include "kernels/types.hpp"

namespace minitaw::kernels::detail {

template <class Team>
struct Nothing {
  KOKKOS_FUNCTION void operator()(const Team&) const {}
};

/// Lets Kokkos allocate the scratch memory of `policy` now, and not in a step.
template <class Policy>
void reserve_scratch(const Policy& policy) {
  Kokkos::parallel_for("minitaw::reserve_scratch", policy, Nothing<typename Policy::member_type>{});
}

}  // namespace minitaw::kernels::detail
