// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <functional>
#include <string>
#include "topology/nvml.hpp"

/// Energy of devices and nodes, as the system counts it.
namespace minitaw::energy {
using Counter = std::function<double()>;  ///< J; throws std::runtime_error, which says why

/// Where the system shows its counters; tests have other places.
struct Places {
  std::string cray = "/sys/cray/pm_counters/energy";
  std::string nvml = nvml::library_file;
};

/// Reads the energy of a rank's device or node. A meter can fail at any time (a device may be lost,
/// a driver replaced). It then becomes unavailable, stays so, and says why. It never throws.
class Meter {
public:
  /// Takes the counter of the node, or else of the device.
  /// `device`: UUID of the rank's device (topology::Device::uuid); empty: none that it uses alone.
  explicit Meter(const std::string& device, const Places& places = {});

  /// "the node (pm_counters)", or "unavailable: " and why.
  [[nodiscard]] const std::string& source() const { return source_; }

  /// The ranks of a node read the same counters.
  [[nodiscard]] bool of_node() const { return of_node_; }

  /// Returns J since the meter was made; NaN if unavailable.
  [[nodiscard]] double joules();

private:
  Counter counter_;  ///< empty: unavailable
  double begin_ = 0;
  bool of_node_ = false;
  std::string source_;
};
}  // namespace minitaw::energy
