// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <memory>
#include "instruments/energy/readings.hpp"
#include "topology/nvml.hpp"

/// Readings of devices and nodes at work: clocks, temperature, power, energy. src/topology finds
/// the devices.
namespace minitaw::energy {
/// Meter of one device or node; this base reads nothing. A meter can fail at any time (a device may
/// be lost, a driver replaced). It then becomes unavailable, stays so, and says why. It never
/// throws.
class Meter {
public:
  explicit Meter(std::string fault = {}) : fault_(std::move(fault)) {}

  Meter& operator=(Meter&&) = delete;
  virtual ~Meter() = default;

  /// Returns source, lacking readings and time of one: "nvml 12.580.65 without power, 0.21 ms a
  /// reading".
  [[nodiscard]] const std::string& name() const { return name_; }

  /// Why nothing can be read; empty: it can.
  [[nodiscard]] const std::string& fault() const { return fault_; }

  /// Reads the device now; NaN: not available.
  [[nodiscard]] virtual DeviceSample read() { return {none, none, none, none, throttle_unknown}; }

  /// J since a moment in the past that does not change; NaN where it is not counted.
  [[nodiscard]] virtual double energy() { return none; }

protected:
  /// Reads once, and says how long it took: "0.21 ms a reading".
  [[nodiscard]] std::string timed_reading();

  static constexpr double none = std::numeric_limits<double>::quiet_NaN();
  std::string name_ = "none", fault_;
};

/// The meter of the device of this UUID (topology::Device::uuid; empty: none), hidden ones too.
/// None of a part (MIG).
[[nodiscard]] std::unique_ptr<Meter> make_meter(
    const std::string& uuid, const char* nvml_file = nvml::library_file);

/// Where Linux shows the energy and the power of a node; tests have other folders.
struct NodeFolders {
  std::string powercap = "/sys/class/powercap";  ///< RAPL
  std::string cray = "/sys/cray/pm_counters", hwmon = "/sys/class/hwmon";
  /// Cray's counters that were not renewed for this long are no readings.
  double stale_seconds = 2;
};

/// Returns the meter of this node: energy (Cray's counters, else RAPL) and power (Cray's, else
/// hwmon), if readable.
[[nodiscard]] std::unique_ptr<Meter> make_node_meter(const NodeFolders& folders = {});
}  // namespace minitaw::energy
