// SPDX-License-Identifier: BSD-3-Clause
#include "base/clocks.hpp"
#include <algorithm>
#include <chrono>
#include <cmath>
#include <fmt/ranges.h>
#include <fstream>
#include <limits>
#include <sys/syscall.h>
#include <vector>
#if defined(__x86_64__)
#include <ctime>
#include <x86intrin.h>
#endif

namespace minitaw {
namespace {
constexpr double largest_share = 1e-3;
/// Seconds by which readings of one moment may differ, however short the time between two of them
/// is.
constexpr double slack = 50e-6;

double seconds_now(const auto& now) {
  return std::chrono::duration<double>(now.time_since_epoch()).count();
}

/// Of several readings that of shortest width: nothing has interrupted it.
template <class Reading>
Reading quickest(const auto& read) {
  constexpr int readings = 5;
  std::pair<double, Reading> best = read();
  for (int i = 1; i < readings; ++i)
    best = std::min(best, read(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return best.second;
}

/// A moment by the counter and by the kernel's clock, which no one adjusts.
struct Calibration {
  double ticks = 0, seconds = 0;
};

#if defined(__x86_64__)
std::uint64_t ticks_now() {
  return __rdtsc();
}

/// A preloaded library can replace every function of libc, those that read the two other clocks
/// among them. It cannot replace the instruction that calls the kernel.
double kernel_seconds() {
  timespec now{};
  long result = SYS_clock_gettime;
  asm volatile("syscall"
      : "+a"(result)
      : "D"(long{CLOCK_MONOTONIC_RAW}), "S"(&now)
      : "rcx", "r11", "memory");
  return result == 0 ? static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec)
                     : std::nan("");
}

Calibration calibrate() {
  return quickest<Calibration>([] {
    const std::uint64_t before = ticks_now();
    const double seconds = kernel_seconds();
    const double width = static_cast<double>(ticks_now() - before);
    return std::pair(width, Calibration{static_cast<double>(before) + width / 2, seconds});
  });
}

/// Whether the counter runs at one rate in all states of the processor.
bool is_constant() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("flags"))
      return line.find(" constant_tsc") != line.npos && line.find(" nonstop_tsc") != line.npos;
  return false;
}

const Calibration first = calibrate();

/// Ticks a second.
double rate() {
  static const bool constant = is_constant();
  const Calibration now = calibrate();
  return constant ? (now.ticks - first.ticks) / (now.seconds - first.seconds) : std::nan("");
}
#elif defined(__aarch64__)
std::uint64_t ticks_now() {
  std::uint64_t ticks = 0;
  asm volatile("isb; mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
}

const Calibration first = {.ticks = static_cast<double>(ticks_now())};

/// The processor itself knows it.
double rate() {
  std::uint64_t ticks = 0;
  asm volatile("mrs %0, cntfrq_el0" : "=r"(ticks));
  return static_cast<double>(ticks);
}
#else
std::uint64_t ticks_now() {
  return 0;
}

const Calibration first;

double rate() {
  return std::nan("");
}
#endif
}  // namespace

ClockReading read_clocks() {
  using std::chrono::steady_clock, std::chrono::system_clock;
  return quickest<ClockReading>([] {
    const double before = seconds_now(steady_clock::now());
    const double real = seconds_now(system_clock::now());
    const std::uint64_t ticks = ticks_now();
    const double width = seconds_now(steady_clock::now()) - before;
    return std::pair(width, ClockReading{before + width / 2, real, ticks});
  });
}

std::array<ClockSeconds, 2> seconds_of(const ClockReading& begin, const ClockReading& end) {
  const double ticks_a_second = rate();
  const auto seconds = [&](const ClockReading& reading) {
    return ClockSeconds{reading.monotonic,
        reading.real,
        (static_cast<double>(reading.ticks) - first.ticks) / ticks_a_second};
  };
  return {seconds(begin), seconds(end)};
}

std::string disagreement(const ClockSeconds& begin, const ClockSeconds& end) {
  double least = std::numeric_limits<double>::infinity(), most = -least;
  std::vector<std::string> texts;
  for (std::size_t clock = 0; clock < begin.size(); ++clock) {
    const double passed = end[clock] - begin[clock];
    texts.push_back(std::isnan(passed) ? fmt::format("{} not known", clock_names[clock])
                                       : fmt::format("{} {:.6f} s", clock_names[clock], passed));
    least = std::fmin(least, passed);  // of NaN and a number, the number
    most = std::fmax(most, passed);
  }
  if (most - least <= largest_share * most + slack)
    return "";
  return fmt::format("the clocks disagree about the time of all steps: {}", fmt::join(texts, ", "));
}
}  // namespace minitaw
