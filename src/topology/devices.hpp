// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

/// The devices that a process sees, and which rank gets which. None on a host, and where the vendor
/// is not known.
namespace minitaw::topology {
struct Device {
  int index = -1;           ///< among the visible ones
  std::string name;         ///< as its vendor calls it
  std::string uuid;         ///< "GPU-3f2a...", the same for every process that sees it
  std::uint64_t bytes = 0;  ///< of memory
};

/// Throws InputError if a build for devices finds none, or its driver does not answer.
std::vector<Device> visible_devices();
/// Returns the first two ranks that use a device of the same UUID. Empty UUIDs are no device.
std::optional<std::pair<int, int>> shared_device(std::span<const std::string> uuid_of_rank);
/// Throws InputError, naming the ranks, if a device is shared.
void require_own_devices(std::span<const std::string> uuid_of_rank);

/// The version of the CUDA runtime, "13.0", or empty.
std::string runtime_version();
/// The version of the driver, "580.159.04" (without NVML: "for CUDA 13.0"), or empty.
std::string driver_version();
/// FLOP/s of an NVIDIA device by its datasheet, dense: bf16 on tensor cores, else fp32 outside.
/// `unit`: RankPlace::unit. NaN: not known.
double datasheet_peak(const std::string& unit, bool bf16);
/// The datasheet_peak() that all units have; NaN: not known, or not the same for all.
double common_peak(std::span<const std::string> units, bool bf16);
}  // namespace minitaw::topology
