// SPDX-License-Identifier: BSD-3-Clause
#include "topology/devices.hpp"
#include <algorithm>
#include <cctype>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include "base/error.hpp"
#ifdef MINITAW_CUDA_DEVICES
#include <cuda_runtime_api.h>
#include "topology/nvml.hpp"
#endif

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

namespace {
#ifdef MINITAW_CUDA_DEVICES
void check_cuda(cudaError_t code, const char* call) {
  if (code != cudaSuccess)
    throw InputError("{}: {}; this build needs a CUDA device and a driver for it",
        call,
        cudaGetErrorString(code));
}

/// Formats a UUID as nvidia-smi does: 8-4-4-4-12 hexadecimal digits.
std::string text_of(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10)
      text += '-';
    text += fmt::format("{:02x}", uuid.bytes[i] & 0xff);
  }
  return text;
}

/// Asks one of CUDA's functions for a version: "13.0"; empty: it gives none.
std::string cuda_version(cudaError_t (*ask)(int*)) {
  int number = 0;
  return ask(&number) == cudaSuccess && number > 0
             ? fmt::format("{}.{}", number / 1000, number % 1000 / 10)
             : "";
}
#endif
}  // namespace

std::vector<Device> visible_devices() {
  std::vector<Device> devices;
#ifdef MINITAW_CUDA_DEVICES
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  check_cuda(
      counted == cudaSuccess && count == 0 ? cudaErrorNoDevice : counted, "counting the devices");
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties{};
    check_cuda(cudaGetDeviceProperties(&properties, index), "asking for a device's properties");
    devices.push_back(
        {index, properties.name, text_of(properties.uuid), properties.totalGlobalMem});
  }
#endif
  return devices;
}

std::string runtime_version() {
#ifdef MINITAW_CUDA_DEVICES
  return cuda_version(cudaRuntimeGetVersion);
#else
  return {};
#endif
}

std::string driver_version() {
#ifdef MINITAW_CUDA_DEVICES
  if (std::string version = nvml::driver_version(); !version.empty())
    return version;
  const std::string cuda = cuda_version(cudaDriverGetVersion);
  return cuda.empty() ? "" : "for CUDA " + cuda;
#else
  return {};
#endif
}
}  // namespace minitaw::topology
