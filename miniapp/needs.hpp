// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "case/case.hpp"

/// What memory a case needs. What there is, and who shares it: pools.hpp.
namespace minitaw::app {
/// Bytes that a rank needs.
struct Need {
  std::uint64_t step = 0;    ///< buffers of the step, exact
  std::uint64_t beside = 0;  ///< estimate of what process and libraries take beside them

  std::uint64_t total() const { return step + beside; }
};

// Of each rank of the program; those of other replicas need the same.

/// The memory on a host: buffers, what the process takes for the case, and the BLAS of so many
/// threads.
std::vector<Need> needs_on_host(const PlannedCase& plan, int threads);
/// The memory on a device: the arena and what libraries take; not driver and NCCL.
std::vector<Need> needs_on_device(const PlannedCase& plan);
}  // namespace minitaw::app
