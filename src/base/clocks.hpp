// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <array>
#include <cstdint>
#include <string>

/// Three clocks that are read in different ways, so that a library or a program that slows one down
/// does not reach them all.
namespace minitaw {
/// "monotonic" times steps, "real" is the time of the day, "counter" is the processor's.
inline constexpr std::array clock_names = {"monotonic", "real", "counter"};
/// Seconds by each of them. The counter's begin with the program; NaN: it has no constant rate.
using ClockSeconds = std::array<double, clock_names.size()>;

struct ClockReading {
  double monotonic = 0, real = 0;
  std::uint64_t ticks = 0;  ///< of the counter
};

/// All three at one moment.
ClockReading read_clocks();
/// The seconds of two readings. The rate of the counter is that from the start of the program to
/// now.
std::array<ClockSeconds, 2> seconds_of(const ClockReading& begin, const ClockReading& end);
/// Returns a sentence if two clocks disagree about the time that has passed by more than 0.1 % and
/// a slack; else nothing.
[[nodiscard]] std::string disagreement(const ClockSeconds& begin, const ClockSeconds& end);
}  // namespace minitaw
