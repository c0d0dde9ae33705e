// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <numeric>
#include <optional>
#include <string_view>
#include "base/clocks.hpp"
#include "base/statistics.hpp"
#include "base/table.hpp"
#include "case/case.hpp"
#include "schedule/account.hpp"
#include "trace/account.hpp"
#include "trace/timeline.hpp"

namespace minitaw {
/// Values for columns of the record, by their names.
using Cells = std::vector<std::pair<std::string_view, Cell>>;

enum class Status {
  ok,
  wrong,    ///< a check failed
  oom,      ///< memory ran out
  timeout,  ///< it took too long, or stopped
  skipped,  ///< it was not started: its planned memory does not fit
  error,    ///< it ended early
};
std::string name_of(Status status);

/// Memory of a rank during a case, bytes.
struct RankMemory {
  std::array<std::uint64_t, schedule::memory_kinds> planned{};  ///< from the program
  std::array<std::uint64_t, schedule::memory_kinds>
      measured{};                   ///< that Kokkos has allocated, by its callbacks
  std::uint64_t other = 0;          ///< that Kokkos has allocated for nothing that was planned
  std::uint64_t process_begin = 0;  ///< resident set when the case began; 0: its peak is not known
  std::uint64_t process_peak = 0;   ///< largest resident set of the process during the case
  std::uint64_t device_used = 0;    ///< in use on the device at the end, by all; 0: no device

  std::uint64_t planned_sum() const {
    return std::accumulate(planned.begin(), planned.end(), std::uint64_t{0});
  }

  /// With what is of no kind.
  std::uint64_t measured_sum() const {
    return std::accumulate(measured.begin(), measured.end(), other);
  }
};

/// Bytes of one kind that a rank sends another in a step.
struct LinkBytes {
  int from = 0, to = 0;
  schedule::Traffic kind = schedule::Traffic::weights;
  std::uint64_t planned = 0;
  std::uint64_t counted = 0;  ///< by the transport
  friend bool operator==(const LinkBytes&, const LinkBytes&) = default;
};

/// One repetition of a case.
struct CaseResult {
  static constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

  Case asked;
  Status status = Status::ok;
  std::string reason;   ///< empty when ok
  std::string remark;   ///< what readers of its times should know; empty: nothing
  std::string started;  ///< as utc_now()

  std::vector<double> losses;  ///< mean loss of every step, warm-up included
  /// [timed step][rank]; a sample is the maximum over ranks.
  std::vector<std::vector<double>> seconds;
  /// Before the first and after the last timed step, by the clocks of rank 0; empty: not executed.
  std::vector<ClockSeconds> clocks;
  double peak = unknown;  ///< FLOP/s that a rank's device can do

  std::vector<RankMemory> memory;  ///< per rank
  std::vector<LinkBytes> bytes;    ///< those that are not 0, by from, to and kind
  std::string bytes_source;        ///< of those counted: "counted", "by formula"

  int accounted_step = -1;      ///< the timed step that `time` and `timeline` are of; -1: none
  double accounted_length = 0;  ///< its seconds, from the first rank's begin to the last one's end
  std::vector<trace::RankTime> time;        ///< per rank
  std::optional<trace::Timeline> timeline;  ///< where it was asked for
  int ticks = 0;                            ///< of the program
  std::vector<int> idle_ticks;              ///< per rank

  /// Against the serial reference, a relative norm; NaN: not checked.
  double max_gradient_error = unknown;
  double max_loss_error = unknown;  ///< relative; NaN: not checked

  std::string attention;          ///< the kernel that ran
  std::string matmul_algorithms;  ///< chosen by time, a line for each kind of product
  std::string transport;          ///< the one that moved the data

  Cells found;  ///< by instruments
};

/// Sets the status `wrong` and its reason, unless the result has failed before: the first failure
/// counts.
void fail(CaseResult& result, std::string reason);
/// Now, ISO 8601, UTC: "2026-07-18T09:30:00.250Z".
std::string utc_now();
/// The same of seconds since 1970.
std::string utc_text(double seconds);
}  // namespace minitaw
