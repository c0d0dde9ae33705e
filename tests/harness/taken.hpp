// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "harness/cases.hpp"
#include "harness/collect.hpp"

namespace minitaw::harness::tests {
inline int world_rank() {
  return comm::mpi::rank_in(MPI_COMM_WORLD);
}

inline int world_size() {
  return comm::mpi::size_of(MPI_COMM_WORLD);
}

/// What a case takes that has allocated what was planned.
inline topology::MemoryTaken taken_as_planned(const schedule::Footprint& plan) {
  topology::MemoryTaken taken;
  for (std::size_t k = 0; k < plan.by_kind.size(); ++k)
    taken.kokkos[engine::label_of(static_cast<schedule::Memory>(k))] = plan.by_kind[k];
  return taken;
}

}  // namespace minitaw::harness::tests
