// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <functional>
#include <limits>
#include <string>
#include <vector>
#include "topology/nvml.hpp"

/// Energy of devices and nodes, as the system counts it.
namespace minitaw::energy {
/// A number of the system that rises with the energy that was used.
struct Counter {
  std::function<double()> read;  ///< J; throws std::runtime_error, which says why
  double range = 0;              ///< J after which it begins at 0 again; 0: it never does
  double last = 0;
};

/// Where the system shows its counters; tests have other files.
struct CounterFiles {
  std::string cray = "/sys/cray/pm_counters/energy";
  std::string nvml = nvml::library_file;
  std::string rapl = "/sys/class/powercap";
};

/// Reads the energy of a rank's device or node. A meter can fail at any time (a device may be lost,
/// a driver replaced). It then becomes unavailable, stays so, and says why. It never throws.
class Meter {
public:
  /// Takes the first counters that can be read: of the node, of the device, of the processors.
  /// `device`: UUID of the rank's device (topology::Device::uuid); empty: none that it uses alone.
  explicit Meter(const std::string& device, const CounterFiles& files = {});

  /// "the node (pm_counters)", or "unavailable: " and why.
  const std::string& source() const { return source_; }

  /// The ranks of a node read the same counters.
  bool of_node() const { return of_node_; }

  /// Returns J since the meter was made; NaN if unavailable. A counter must not begin again twice
  /// between two calls.
  double joules();

private:
  std::vector<Counter> counters_;
  double used_ = std::numeric_limits<double>::quiet_NaN();
  bool of_node_ = false;
  std::string source_;
};
}  // namespace minitaw::energy
