// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <memory>
#include <string>

/// NVIDIA's management library (NVML), opened at run time: builds need neither headers nor library,
/// machines no driver. Functions are those of the NVML API Reference Manual
/// (docs.nvidia.com/deploy/nvml-api).
namespace minitaw::nvml {
struct Handle;  ///< opaque
using Device = Handle*;

inline constexpr const char* library_file = "libnvidia-ml.so.1";

/// NVML from construction to destruction. Throws std::runtime_error with the reason where something
/// is missing or fails.
class Library {
public:
  explicit Library(const char* file = library_file);
  Library& operator=(Library&&) = delete;
  ~Library();

  /// Returns the device of this UUID, also a hidden one. Throws for a part of one (MIG), which has
  /// no counters.
  Device whole_device(const std::string& uuid) const;
  /// Returns mJ since the driver was loaded.
  double energy(Device device) const;
  /// Returns the version of the driver, "580.159.04"; empty if not available.
  std::string driver_version() const;

private:
  /// The function of this name; nullptr: this NVML lacks it.
  template <class Function>
  Function* find(const char* name) const;
  void require_success(int code, const char* what) const;

  std::unique_ptr<void, int (*)(void*)> file_;
};

/// Returns the version of the driver; empty without NVML.
std::string driver_version(const char* file = library_file);
}  // namespace minitaw::nvml
