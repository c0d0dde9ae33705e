// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

/// The devices that a process sees, and which rank gets which. None on a host. Of devices other
/// than NVIDIA's and AMD's their number is all that Kokkos tells.
namespace minitaw::topology {
struct Device {
  int index = -1;           ///< among the visible ones
  std::string name;         ///< as its vendor calls it
  std::string uuid;         ///< "GPU-3f2a..."; else "PCI 0000:c1:00.0", "device 1" of the node
  std::uint64_t bytes = 0;  ///< of memory; 0: not known
};

struct DeviceMemory {
  std::uint64_t free = 0, total = 0;
};

/// Throws InputError if a build for devices finds none, or its driver does not answer.
std::vector<Device> visible_devices();
/// Returns the memory of the current device; nothing on a host and where it is not known. Throws
/// InputError if the driver does not answer.
std::optional<DeviceMemory> device_memory();
/// The UUID, with the node where it is not unique in the world; empty on a host.
std::string identity(const Device& device, int machine);
/// "device 0, NVIDIA H200, 139.8 GiB"
std::string text_of(const Device& device);
/// Returns the first two ranks that use a device of the same UUID. Empty UUIDs are no device.
std::optional<std::pair<int, int>> shared_device(std::span<const std::string> uuid_of_rank);
/// Throws InputError, naming the ranks, if a device is shared.
void require_own_devices(std::span<const std::string> uuid_of_rank);

/// The version of the vendor's runtime, "CUDA 13.0", "HIP 5.7.31921", or empty.
std::string runtime_version();
/// The version of the driver, "580.159.04" (without NVML: "for CUDA 13.0"), or empty.
std::string driver_version();
/// FLOP/s of an NVIDIA device by its datasheet, dense: bf16 on tensor cores, else fp32 outside.
/// `unit`: RankPlace::unit. NaN: not known.
double datasheet_peak(const std::string& unit, bool bf16);
/// The datasheet_peak() that all units have; NaN: not known, or not the same for all.
double common_peak(std::span<const std::string> units, bool bf16);
}  // namespace minitaw::topology
