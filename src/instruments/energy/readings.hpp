// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "record/extension.hpp"

namespace minitaw::energy {
/// Readings of a rank's device after a timed step; NaN: not available.
struct DeviceSample {
  double clock_mhz, memory_clock_mhz, temperature_c, power_w;
  /// Reasons for a lower clock: bits as in NVML's nvmlClocksEventReasons.
  std::uint64_t throttle = 0;
};

/// Bits of the reasons heat and power: software and hardware thermal slow-down, power cap and
/// brake.
inline constexpr std::uint64_t throttled_by_heat_or_power = 0x4 | 0x8 | 0x20 | 0x40 | 0x80;
/// All bits: the device gives no reasons.
inline constexpr std::uint64_t throttle_unknown = ~std::uint64_t{0};

/// What the meters of all ranks have read in one repetition of a case.
struct Readings {
  std::string source = "unavailable";                ///< "nvml 12.580.65", or "unavailable: reason"
  std::vector<std::vector<DeviceSample>> samples{};  ///< [timed step][rank]; empty: unavailable
  std::vector<double> energy{};  ///< [rank], J of its timed steps; empty: unavailable
};

/// Adds the datasets "counters" and "device/..." of devices, or "node_counters" and "node/..." of
/// nodes (docs/results.md), to a result.
void add(const Readings& readings, bool of_nodes, CaseResult& result);
/// Columns of energy, power, clocks and temperature. Of a case whose meters were lost in one
/// repetition, no repetition counts.
[[nodiscard]] record::Extension extension();
}  // namespace minitaw::energy
