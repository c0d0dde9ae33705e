#pragma once

#include <chrono>
#include <string>

namespace minitaw::app {

/// From now on SIGTERM, SIGINT and SIGUSR1 are noted instead of ending the process, which says at once what
/// it will do. A second one ends it; a second SIGTERM only if it comes more than a second after the first.
void note_signals();
/// Another rank speaks.
void silence_signals();
/// The run is over, and only MPI is to end: when the first rank has ended, srun sends SIGTERM to the others.
void outlast_signals();

/// The last one noted, 0: none.
[[nodiscard]] int noted_signal();

/// "SIGTERM"
[[nodiscard]] std::string name_of_signal(int number);

/// Seconds of "45m", "90s", "2h", "MM:SS", "HH:MM:SS" or "D-HH:MM:SS". Throws InputError for anything else,
/// also for a number without a unit, which a batch system would take for minutes.
[[nodiscard]] double parse_duration(const std::string& text);

/// Until when a run may last.
class TimeLimit {
public:
  /// `text` as for parse_duration(), counted from now; empty: the end of the Slurm job if that is known
  /// (SLURM_JOB_END_TIME), else none.
  explicit TimeLimit(const std::string& text);

  [[nodiscard]] bool exists() const { return length_ > 0; }
  /// Seconds that are left for work: up to the limit less what ending takes, a tenth of it, at most 30 s.
  [[nodiscard]] double left() const;
  /// Whether the limit is all the time there can be: of a Slurm job, its better part was left at the start.
  [[nodiscard]] bool is_whole() const { return whole_; }
  /// "the time limit of 1:30:00"
  [[nodiscard]] const std::string& name() const { return name_; }

private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
  double length_ = 0;  ///< seconds from the start; 0: no limit
  bool whole_ = true;
  std::string name_;
};

}  // namespace minitaw::app
