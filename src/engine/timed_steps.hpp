#pragma once

#include <mpi.h>

#include <vector>

#include "engine/account.hpp"
#include "engine/player.hpp"

namespace minitaw::engine {

/// What a rank remembers of its timed steps, so that one of them can be looked at afterwards: nothing is
/// exchanged while steps are being timed.
class TimedSteps {
public:
  /// A rank keeps the spans of all its `steps` if those of the longest rank are at most this many (24 bytes
  /// each); else those of the last step only. Every rank decides alike.
  static constexpr std::size_t most_kept = std::size_t{1} << 20;

  TimedSteps(const schedule::Program& program, int steps, std::size_t most = most_kept);

  /// The step that `player` has just played.
  void add(const Player& player, StepTime time);

  [[nodiscard]] int count() const { return static_cast<int>(seconds_.size()); }
  /// Length of each step on this rank.
  [[nodiscard]] const std::vector<double>& seconds() const { return seconds_; }

  /// The step that stands for all, given the length of each: the (lower) median one, or the last where only
  /// that was kept.
  [[nodiscard]] int choose(const std::vector<double>& lengths) const;

  /// The spans of all ranks in that step on rank 0, on one clock, from the moment when the first rank began;
  /// on the others nothing. Collective.
  [[nodiscard]] StepSpans gather(int step, MPI_Comm comm) const;

private:
  struct Kept {
    double started = 0;  ///< by host_seconds()
    std::vector<Span> spans;
  };
  [[nodiscard]] const Kept& kept(int step) const { return kept_[keeps_all_ ? step : 0]; }

  const schedule::Program& program_;
  bool keeps_all_;
  std::vector<double> seconds_;
  std::vector<Kept> kept_;
};

}  // namespace minitaw::engine
