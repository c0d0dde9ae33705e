// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <string>

/// NVIDIA's management library (NVML), opened at run time: builds need neither headers nor library,
/// machines no driver. Declared is what is called here, after the NVML API Reference Manual
/// (docs.nvidia.com/deploy/nvml-api).
namespace minitaw::nvml {
struct Handle;  ///< opaque
using Device = Handle*;

/// NVML's functions by their names there, without "nvml"; null: this library lacks it. All return
/// an nvmlReturn_t, 0 for success.
struct Functions {
  int (*init)();
  int (*shutdown)();
  const char* (*error_string)(int);
  int (*driver_version)(char*, unsigned);         ///< SystemGetDriverVersion
  int (*device_by_uuid)(const char*, Device*);    ///< DeviceGetHandleByUUID
  int (*mig_mode)(Device, unsigned*, unsigned*);  ///< now, after the next reset
  int (*energy)(Device, unsigned long long*);     ///< DeviceGetTotalEnergyConsumption, mJ
};

inline constexpr const char* library_file = "libnvidia-ml.so.1";

/// NVML from construction to destruction. Throws std::runtime_error with the reason where something
/// is missing or fails.
class Library {
public:
  explicit Library(const char* file = library_file);
  Library& operator=(Library&&) = delete;
  ~Library();

  /// The device of this UUID, also a hidden one. No part of one (MIG), which has no counters.
  Device whole_device(const std::string& uuid) const;
  /// Returns mJ since the driver was loaded.
  double energy(Device device) const;
  /// Returns the version of the driver, "580.159.04"; empty if not available.
  std::string driver_version() const;

private:
  void require_success(int code, const char* what) const;

  void* file_;
  Functions functions_{};
};

/// Likewise; empty without NVML.
std::string driver_version(const char* file = library_file);
}  // namespace minitaw::nvml
