// SPDX-License-Identifier: BSD-3-Clause
#include "topology/devices.hpp"
#include <Kokkos_Core.hpp>
#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include "base/error.hpp"
#include "base/vendor.hpp"
#include "topology/nvml.hpp"

namespace minitaw::topology {
double datasheet_peak(const std::string& unit, bool bf16) {
  struct Datasheet {
    std::string_view name;  // before those that begin it
    double bf16, fp32;      // TFLOP/s
  };

  static constexpr Datasheet known[] = {{"A100", 312, 19.5},
      {"A10", 125, 31.2},
      {"A30", 165, 10.3},
      {"A40", 149.7, 37.4},
      {"L4", 121, 30.3},
      {"L40", 181, 90.5},
      {"L40S", 362, 91.6},
      {"H100 80GB HBM3", 989, 67},
      {"H200 NVL", 835, 60},
      {"H200", 989, 67},
      {"H100 PCIe", 756, 51},
      {"H100 NVL", 835, 60},
      {"B200", 2250, 75},
      {"GH200 480GB", 989, 67}};
  if (unit.find("MIG") != std::string::npos)
    return std::nan("");  // a part of a device
  for (const Datasheet& device : known) {
    const std::string name = fmt::format("NVIDIA {}", device.name);
    const std::size_t at = unit.find(name), end = at + name.size();
    if (at != std::string::npos &&
        (end == unit.size() || !std::isalnum(static_cast<unsigned char>(unit[end]))))
      return 1e12 * (bf16 ? device.bf16 : device.fp32);
  }
  return std::nan("");
}

double common_peak(std::span<const std::string> units, bool bf16) {
  const double first = datasheet_peak(units.front(), bf16);
  const auto is_same = [=](const std::string& unit) { return datasheet_peak(unit, bf16) == first; };
  return std::ranges::all_of(units, is_same) ? first : std::nan("");
}

std::optional<std::pair<int, int>> shared_device(std::span<const std::string> uuid_of_rank) {
  std::map<std::string, int> first;
  for (int rank = 0; const std::string& uuid : uuid_of_rank) {
    const auto [at, is_new] = first.emplace(uuid, rank);
    if (!is_new && !uuid.empty())
      return std::pair(at->second, rank);
    ++rank;
  }
  return std::nullopt;
}

void require_own_devices(std::span<const std::string> uuid_of_rank) {
  if (const auto ranks = shared_device(uuid_of_rank))
    throw InputError(
        "ranks {} and {} would share device {}: start as many ranks per node as it has "
        "devices, or add "
        "--share-devices (for tests: the ranks then take turns, and times mean little)",
        ranks->first,
        ranks->second,
        uuid_of_rank[ranks->first]);
}

std::string identity(const Device& device, int machine) {
  const bool in_the_world = device.index < 0 || device.uuid.starts_with("GPU-");
  return in_the_world ? device.uuid : fmt::format("{} of node {}", device.uuid, machine);
}

std::string text_of(const Device& device) {
  return fmt::format("device {}, {}, {}",
      device.index,
      device.name,
      device.bytes > 0 ? fmt::format("{:.1f} GiB", 0x1p-30 * device.bytes) : "of unknown memory");
}

#ifdef MINITAW_VENDOR
namespace {
void require(MINITAW_VENDOR(Error_t) code, const char* call) {
  if (code != MINITAW_VENDOR(Success))
    throw InputError("{}: {}; this build needs a " MINITAW_VENDOR_NAME
                     " device and a driver for it",
        call,
        MINITAW_VENDOR(GetErrorString)(code));
}

#ifdef MINITAW_CUDA
using Properties = cudaDeviceProp;

/// Formats a UUID as nvidia-smi does: 8-4-4-4-12 hexadecimal digits.
std::string identity_of(int /*index*/, const Properties& properties) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10)
      text += '-';
    text += fmt::format("{:02x}", properties.uuid.bytes[i] & 0xff);
  }
  return text;
}

std::string version_of(int number) {
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}
#else
using Properties = hipDeviceProp_t;

/// The place on the bus: parts of an AMD device (partitions) have one UUID.
std::string identity_of(int index, const Properties& /*properties*/) {
  std::array<char, 32> place{};
  require(hipDeviceGetPCIBusId(place.data(), place.size(), index), "asking for a device's place");
  return fmt::format("PCI {}", place.data());
}

std::string version_of(int number) {
  return fmt::format("{}.{}.{}", number / 10000000, number / 100000 % 100, number % 100000);
}
#endif

/// Asks one of the runtime's functions for a version: "CUDA 13.0"; empty: it gives none.
std::string version_by(MINITAW_VENDOR(Error_t) (*ask)(int*)) {
  int number = 0;
  return ask(&number) == MINITAW_VENDOR(Success) && number > 0
             ? MINITAW_VENDOR_NAME " " + version_of(number)
             : "";
}
}  // namespace

std::vector<Device> visible_devices() {
  std::vector<Device> devices;
  int count = 0;
  require(MINITAW_VENDOR(GetDeviceCount)(&count), "counting the devices");  // none is an error
  for (int index = 0; index < count; ++index) {
    Properties properties{};
    require(MINITAW_VENDOR(GetDeviceProperties)(&properties, index),
        "asking for a device's properties");
    devices.push_back(
        {index, properties.name, identity_of(index, properties), properties.totalGlobalMem});
  }
  return devices;
}

std::optional<DeviceMemory> device_memory() {
  std::size_t free = 0, total = 0;
  require(MINITAW_VENDOR(MemGetInfo)(&free, &total), "asking for the device's free memory");
  return DeviceMemory{free, total};
}

std::string runtime_version() {
  return version_by(MINITAW_VENDOR(RuntimeGetVersion));
}

std::string driver_version() {
  if (std::string version = nvml::driver_version(); !version.empty())
    return version;
  const std::string newest = version_by(MINITAW_VENDOR(DriverGetVersion));
  return newest.empty() ? "" : "for " + newest;
}
#else  // a host, or a device of which this build knows what Kokkos says
std::vector<Device> visible_devices() {
  std::vector<Device> devices;
  const int count = Kokkos::num_devices();  // -1: a host
  const std::string kind = Kokkos::DefaultExecutionSpace::name();
  if (count == 0)
    throw InputError("this build needs a {} device, and there is none", kind);
  for (int index = 0; index < count; ++index)
    devices.push_back({index, kind + " of unknown name", fmt::format("device {}", index)});
  return devices;
}

std::optional<DeviceMemory> device_memory() {
  return std::nullopt;
}

std::string runtime_version() {
  return {};
}

std::string driver_version() {
  return {};
}
#endif
}  // namespace minitaw::topology
