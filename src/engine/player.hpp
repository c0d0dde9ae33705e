#pragma once

#include <chrono>
#include <memory>

#include "comm/transport.hpp"
#include "engine/compute.hpp"
#include "engine/lane_thread.hpp"
#include "engine/transfers.hpp"
#include "engine/watchdog.hpp"

namespace minitaw::engine {

/// Where the time of a step went on one rank, seconds.
struct StepTime {
  double total = 0;
  double compute = 0;        ///< in compute actions
  double exposed = 0;        ///< compute lane waiting for transfers, between its first and its last action
  double idle = 0;           ///< before the first and after the last compute action
  double communication = 0;  ///< in transfers, hidden or not, both lanes added up
};

/// Plays a rank's program step after step: the compute lane on the calling thread, each communication lane on
/// a thread of its own.
class Player {
public:
  Player(const schedule::Program& program, int rank, Compute& compute, Transfers& transfers,
         std::chrono::duration<double> patience, Watchdog::OnStall on_stall);

  /// One step. Throws what any lane throws.
  StepTime play();

  /// Clock of every action of the last step, indexed as RankProgram::actions.
  [[nodiscard]] const Clock& clock() const { return clock_; }

private:
  [[nodiscard]] StepTime account() const;

  const schedule::RankProgram& program_;
  Progress progress_;
  Clock clock_;
  Lane compute_;
  Lane intra_;
  Lane inter_;
  LaneThread intra_thread_;
  LaneThread inter_thread_;
  Watchdog watchdog_;
};

}  // namespace minitaw::engine
