// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "case/case.hpp"
#include "schedule/account.hpp"

/// What memory a case needs. What there is, and who shares it: pools.hpp.
namespace minitaw::app {
/// Bytes that a rank needs.
struct Need {
  std::uint64_t step = 0;    ///< buffers of the step, exact
  std::uint64_t beside = 0;  ///< estimate of what process and libraries take beside them

  std::uint64_t total() const { return step + beside; }
};

/// The buffers of each rank.
std::vector<schedule::Footprint> memory_of(const Case& c, const schedule::Program& program);
/// The memory of each rank on a host: `memory` (as of memory_of()), what its process takes for the
/// case, and the BLAS of so many threads.
std::vector<Need> needs_on_host(const Case& c,
    const schedule::Program& program,
    const std::vector<schedule::Footprint>& memory,
    int threads);
/// The memory of each rank on its device: the arena and what libraries take; not driver and NCCL.
std::vector<Need> needs_on_device(const Case& c, const std::vector<schedule::Footprint>& memory);
}  // namespace minitaw::app
