// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <filesystem>
#include "topology/placement.hpp"

/// What Linux says of who uses a node's cores. Tests have a file of their own.
namespace minitaw::rates {
/// How long cores were used, s: since the system started, or between two such moments.
struct CoreUse {
  double elapsed = 0;  ///< of a clock
  double busy = 0;     ///< of all cores of a rank together, by whatever program, and kept by a
                       ///< hypervisor, without interrupts, which may be the job's; NaN: not known
  double own = 0;      ///< by this process, wherever it ran

  friend CoreUse operator-(const CoreUse& end, const CoreUse& begin) {
    return {end.elapsed - begin.elapsed, end.busy - begin.busy, end.own - begin.own};
  }
};

/// Of these cores, up to this moment. `stat` must name each of them.
CoreUse core_use(std::span<const int> cores, const std::filesystem::path& stat = "/proc/stat");
/// Returns the share of a rank's cores that programs took which are no rank of the job. NaN: not
/// known; clocks of hundredths of a second also give small numbers below 0. `uses`: of each rank in
/// the same while.
double share_of_others(
    std::span<const topology::RankPlace> ranks, std::span<const CoreUse> uses, int rank);
}  // namespace minitaw::rates
