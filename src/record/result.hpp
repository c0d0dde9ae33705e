#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "deck/deck.hpp"
#include "schedule/account.hpp"
#include "trace/timeline.hpp"

namespace minitaw::record {

/// How a case ended.
enum class Status {
  ok,
  wrong,    ///< a check failed
  oom,      ///< memory ran out
  timeout,  ///< it took too long, or stopped
  skipped,  ///< it was not started: its planned memory does not fit
  error,    ///< it ended early
};
[[nodiscard]] std::string name_of(Status status);

/// Memory of one rank, bytes.
struct RankMemory {
  std::array<std::uint64_t, schedule::memory_kinds> planned{};   ///< from the program
  std::array<std::uint64_t, schedule::memory_kinds> measured{};  ///< handed out by the arena
  std::uint64_t process_peak = 0;                                ///< peak resident set of the process
  std::uint64_t device_used = 0;  ///< of the device, by all that runs there, libraries included; 0: no device
};

/// What the device of a rank said after a timed step; NaN: it does not tell.
struct DeviceSample {
  double clock_mhz, memory_clock_mhz;
  double temperature_c;
  double power_w;
  std::uint64_t throttle = 0;  ///< reasons for a lower clock: bits as in NVML's nvmlClocksEventReasons
};
/// The reasons that are heat or power: software and hardware thermal slow-down, power cap and brake.
inline constexpr std::uint64_t throttled_by_heat_or_power = 0x4 | 0x8 | 0x20 | 0x40 | 0x80;
/// All bits: the device does not tell its reasons.
inline constexpr std::uint64_t throttle_unknown = ~std::uint64_t{0};

/// Everything that is known about a finished case.
struct CaseResult {
  deck::Case settings;
  Status status = Status::ok;
  std::string reason;          ///< empty when ok
  std::vector<double> losses;  ///< mean loss of every step of a repetition, warm-up included
  /// [sample][rank], all timed steps of all repetitions; a sample is the maximum over ranks.
  std::vector<std::vector<double>> seconds;
  std::vector<int> repetition;  ///< [sample], from 0
  std::vector<int> position;    ///< [repetition]: how many runs came before it in its session
  std::vector<std::vector<DeviceSample>> device_samples;  ///< [sample][rank]; empty: unavailable
  std::vector<std::vector<double>> energy;  ///< [repetition][rank], J of its timed steps; empty: unavailable
  std::string counters = "unavailable";     ///< what told it: "nvml 12.580.65", or "unavailable: reason"
  std::vector<RankMemory> memory;           ///< per rank
  int accounted_step = -1;                  ///< the timed step that `time` and `timeline` are of; -1: none
  double accounted_length = 0;        ///< its seconds, from the first rank's begin to the last one's end
  std::vector<trace::RankTime> time;  ///< per rank
  std::optional<trace::Timeline> timeline;   ///< where it was asked for
  std::vector<std::uint64_t> planned_bytes;  ///< [from][to][kind], one step
  std::vector<std::uint64_t> counted_bytes;  ///< same shape, per step, from the transport
  double peak = std::numeric_limits<double>::quiet_NaN();  ///< FLOP/s that a rank's device can do; NaN: unknown
  std::string bytes_source;                  ///< of them: "counted", "by formula"
  int ticks = 0;                             ///< of the program
  std::vector<int> idle_ticks;               ///< per rank
  double max_gradient_error = -1;            ///< against the serial reference, relative norm; -1: not checked
  double max_loss_error = -1;                ///< relative; -1: not checked
  std::string attention;                     ///< the kernel that ran
  std::string matmul_algorithms;             ///< chosen by time, a line for each kind of product
  std::string transport;                     ///< the one that moved the data
  std::string started;                       ///< ISO 8601, UTC
};

/// Figures derived from the samples, computed in one place for table, file and verdict. Figures that have no
/// samples or no planned / counted values behind them are NaN or 0.
struct Summary {
  int samples = 0;
  /// Of the timed steps: seconds, quantiles by linear interpolation.
  double median_s, q1_s, q3_s, min_s, max_s;
  double cv;            ///< standard deviation (n - 1) / mean
  double spread;        ///< (q3 - q1) / median
  double tokens_per_s;  ///< all ranks, from the median
  double tokens_per_s_rank;
  double tflops_causal, tflops_full;                      ///< model TFLOP/s, all ranks
  std::uint64_t memory_planned = 0, memory_measured = 0;  ///< bytes of the worst rank
  std::uint64_t process_peak = 0;                         ///< bytes of the worst rank
  std::uint64_t device_used = 0;                          ///< bytes of the worst rank's device
  std::uint64_t bytes_inside = 0, bytes_between = 0;      ///< counted, per step
  std::uint64_t planned_inside = 0, planned_between = 0;  ///< planned, per step
  /// Of the accounted step: seconds, means over ranks.
  double compute_s, idle_s;
  std::array<double, schedule::traffic_kinds> exposed_s;
  double exposed_share;       ///< of the step's length
  double bubble, bubble_max;  ///< idle share of the step's length, mean over ranks and worst rank
  double overlap;             ///< hidden / communication, all ranks together
  /// Of the devices, over all samples.
  double energy_per_token;  ///< J, all ranks
  double power_mean;        ///< W, sum over ranks
  double clock_min;         ///< MHz
  double temperature_max;   ///< degC
  double throttled;         ///< share of samples in which heat or power slowed a device
};
[[nodiscard]] Summary summarise(const CaseResult& result);

/// Tokens of one step: M B S.
[[nodiscard]] double tokens_of(const deck::Case& settings);

/// FLOP/s of an NVIDIA device in its datasheet, dense: bf16 on tensor cores, fp32 outside of them. `unit`
/// holds the device's name, as RankPlace::unit does. NaN for what is not in the table.
[[nodiscard]] double datasheet_peak(const std::string& unit, model::Dtype dtype);

/// Now, ISO 8601, UTC, in seconds: "2026-07-18T09:30:00Z".
[[nodiscard]] std::string utc_now();

}  // namespace minitaw::record
