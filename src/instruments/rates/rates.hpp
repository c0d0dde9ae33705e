// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <filesystem>
#include <optional>
#include "topology/placement.hpp"

/// What Linux says of the speed of a node's parts, and of who uses its cores. Tests have files of
/// their own.
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
[[nodiscard]] CoreUse core_use(
    std::span<const int> cores, const std::filesystem::path& stat = "/proc/stat");
/// Returns the share of a rank's cores that programs took which are no rank of the job. NaN: not
/// known; clocks of hundredths of a second also give small numbers below 0. `uses`: of each rank in
/// the same while.
[[nodiscard]] double share_of_others(
    std::span<const topology::RankPlace> ranks, std::span<const CoreUse> uses, int rank);

/// A rate that the hardware does not exceed, and how it is known.
struct HardwareRate {
  double value = 0;
  std::string source;
};

/// FLOP/s of one core, in single precision: its clock, times two fused products of a whole register
/// in each cycle. `cpus`: a folder that has the highest clock. Nothing for processors whose
/// registers are not known.
[[nodiscard]] std::optional<HardwareRate> core_peak(
    const std::filesystem::path& cpuinfo = "/proc/cpuinfo",
    const std::filesystem::path& cpus = "/sys/devices/system/cpu");
/// Bytes/s of one direction: of the first of these ports ("mlx5_1:1,mlx5_0:1"); without ports, of
/// the only physical network adapter that is up, or of all if they are alike.
[[nodiscard]] std::optional<HardwareRate> link_rate(
    const std::string& ports, const std::filesystem::path& classes = "/sys/class");
}  // namespace minitaw::rates
