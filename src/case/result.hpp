// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <optional>
#include "base/statistics.hpp"
#include "base/table.hpp"
#include "case/case.hpp"
#include "instruments/blame/blame.hpp"
#include "schedule/account.hpp"
#include "trace/timeline.hpp"

namespace minitaw {
enum class Status {
  ok,
  wrong,    ///< a check failed
  oom,      ///< memory ran out
  timeout,  ///< it took too long, or stopped
  skipped,  ///< it was not started: its planned memory does not fit
  error,    ///< it ended early
};
[[nodiscard]] std::string name_of(Status status);

/// Memory of a rank during a case, bytes.
struct RankMemory {
  std::array<std::uint64_t, schedule::memory_kinds> planned{};  ///< from the program
  std::array<std::uint64_t, schedule::memory_kinds>
      measured{};           ///< that Kokkos has allocated, by its callbacks
  std::uint64_t other = 0;  ///< that Kokkos has allocated for nothing that was planned
  std::uint64_t libraries =
      0;  ///< workspaces that libraries were given beside the arena, on a device
  std::uint64_t process_begin = 0;  ///< resident set when the case began; 0: its peak is not known
  std::uint64_t process_peak = 0;   ///< largest resident set of the process during the case
  std::uint64_t device_begin =
      0;  ///< in use on the device when the case began, by all that runs there
  std::uint64_t device_used = 0;  ///< in use there at its end; 0: no device
};

/// Readings of a rank's device after a timed step; NaN: not available.
struct DeviceSample {
  double clock_mhz, memory_clock_mhz, temperature_c, power_w;
  std::uint64_t throttle =
      0;  ///< reasons for a lower clock: bits as in NVML's nvmlClocksEventReasons
};

/// Bits of the reasons heat and power: software and hardware thermal slow-down, power cap and
/// brake.
inline constexpr std::uint64_t throttled_by_heat_or_power = 0x4 | 0x8 | 0x20 | 0x40 | 0x80;
/// All bits: the device gives no reasons.
inline constexpr std::uint64_t throttle_unknown = ~std::uint64_t{0};

/// What meters of one kind have read, and what they are: "nvml 12.580.65", or "unavailable:
/// reason".
struct Readings {
  std::string source = "unavailable";
  std::vector<std::vector<DeviceSample>> samples;  ///< [timed step][rank]; empty: unavailable
  std::vector<std::vector<double>>
      energy;  ///< [repetition][rank], J of its timed steps; empty: unavailable
};

struct CaseResult {
  Case settings;
  Status status = Status::ok;
  std::string reason;          ///< empty when ok
  std::vector<double> losses;  ///< mean loss of every step of a repetition, warm-up included
  /// [sample][rank], all timed steps of all repetitions; a sample is the maximum over ranks.
  std::vector<std::vector<double>> seconds;
  std::vector<int> repetition;  ///< [sample], from 0
  std::vector<int> position;    ///< [repetition]: how many runs came before it in its session
  std::vector<std::string> begun,
      ended;        ///< [repetition]: its first timed step and its last, as utc_now()
  Readings device;  ///< of each rank's device
  Readings node;    ///< of nodes, divided evenly among their ranks: power and energy only
  std::vector<RankMemory> memory;  ///< per rank
  int accounted_step = -1;         ///< the timed step that `time` and `timeline` are of; -1: none
  double accounted_length = 0;  ///< its seconds, from the first rank's begin to the last one's end
  std::vector<trace::RankTime> time;  ///< per rank
  trace::Blame blame;                 ///< what stands out in the timed steps, of one repetition
  std::optional<trace::Timeline> timeline;   ///< where it was asked for
  std::vector<std::uint64_t> planned_bytes;  ///< [from][to][kind], one step
  std::vector<std::uint64_t> counted_bytes;  ///< same shape, per step, from the transport
  std::string bytes_source;                  ///< of them: "counted", "by formula"
  static constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
  double peak = unknown;        ///< FLOP/s that a rank's device can do
  int ticks = 0;                ///< of the program
  std::vector<int> idle_ticks;  ///< per rank
  double max_gradient_error =
      unknown;  ///< against the serial reference, relative norm; NaN: not checked
  double max_loss_error = unknown;  ///< relative; NaN: not checked
  std::string attention;            ///< the kernel that ran
  std::string matmul_algorithms;    ///< chosen by time, a line for each kind of product
  std::string transport;            ///< the one that moved the data
  std::string started;              ///< ISO 8601, UTC
};

/// Sets the status `wrong` and its reason, unless the result has failed before: the first failure
/// counts.
void fail(CaseResult& result, std::string reason);
/// Now, ISO 8601, UTC: "2026-07-18T09:30:00Z", or to the millisecond, "2026-07-18T09:30:00.250Z".
[[nodiscard]] std::string utc_now(bool to_millisecond = false);
}  // namespace minitaw
