// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <string>

/// NVIDIA's management library (NVML), opened at run time: builds need neither headers nor library,
/// machines no driver. Declared is what is called here, after the NVML API Reference Manual
/// (docs.nvidia.com/deploy/nvml-api).
namespace minitaw::nvml {
struct Handle;  ///< opaque
using Device = Handle*;

/// nvmlReturn_t, as far as codes are told apart.
enum Code : int { success = 0, not_supported = 3, not_found = 6, function_not_found = 13 };

/// nvmlClockType_t
enum Clock : int { clock_sm = 1, clock_memory = 2 };

/// nvmlTemperatureSensors_t
enum Sensor : int { sensor_die = 0 };

/// nvmlEnableState_t of MIG: the device is cut into instances.
inline constexpr unsigned mig_enabled = 1, version_size = 80;

/// NVML's functions by their names there, without "nvml"; null: this library lacks it.
struct Functions {
  int (*init)();
  int (*shutdown)();
  const char* (*error_string)(int);
  int (*library_version)(char*, unsigned);        ///< SystemGetNVMLVersion
  int (*driver_version)(char*, unsigned);         ///< SystemGetDriverVersion
  int (*device_by_uuid)(const char*, Device*);    ///< DeviceGetHandleByUUID
  int (*mig_mode)(Device, unsigned*, unsigned*);  ///< now, after the next reset
  int (*clock)(Device, int, unsigned*);           ///< DeviceGetClockInfo, MHz
  int (*temperature)(Device, int, unsigned*);     ///< degrees Celsius
  int (*power)(Device, unsigned*);                ///< DeviceGetPowerUsage, mW
  int (*throttle_reasons)(Device,
      unsigned long long*);  ///< DeviceGetCurrentClocksEventReasons, or its old name
  int (*energy)(Device, unsigned long long*);  ///< DeviceGetTotalEnergyConsumption, mJ
};

inline constexpr const char* library_file = "libnvidia-ml.so.1";

/// NVML from construction to destruction.
class Library {
public:
  /// Throws std::runtime_error with the reason if library, driver or a function that everything
  /// needs is missing.
  explicit Library(const char* file = library_file);
  Library& operator=(Library&&) = delete;
  ~Library();

  [[nodiscard]] const Functions& call() const { return functions_; }

  [[nodiscard]] std::string words(int code) const;

private:
  void* file_;
  Functions functions_{};
};

/// Returns the version of NVML or of the driver; empty if not available.
[[nodiscard]] std::string version(int (*ask)(char*, unsigned));
/// Returns the versions of the driver, "580.159.04", and of NVML itself, "13.580.159.04"; empty
/// without NVML.
[[nodiscard]] std::string driver_version(const char* file = library_file);
[[nodiscard]] std::string library_version(const char* file = library_file);
}  // namespace minitaw::nvml
