// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <filesystem>
#include <optional>
#include <span>
#include <string>

/// What Linux says of the speed of a node's parts, and of who uses its cores. Tests have files of
/// their own.
namespace minitaw::topology {
/// Seconds that these cores were busy since the system started, and those that a hypervisor kept
/// from them; without interrupts. Nothing where the file does not name each of them.
[[nodiscard]] std::optional<double> busy_seconds(
    std::span<const int> cores, const std::filesystem::path& stat = "/proc/stat");

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
}  // namespace minitaw::topology
