#pragma once

#include <functional>
#include <vector>

#include "schedule/program.hpp"
#include "schedule/span.hpp"

namespace minitaw::schedule {

/// Seconds that an action takes once all of its sides are there. A message is asked for once, as its send; a
/// collective once, as the call of its communicator's first member.
using Costs = std::function<double(int rank, const Action& action)>;

/// Plays a program that validate() accepts with durations: spans[r][i] of action i of rank r. An action
/// is ready when the one before it in its lane has finished and starts when its waits are met; a message or
/// collective begins when all sides have started. Transfers do not slow each other down: only lanes and waits
/// order them. Time grows with the number of actions. Throws LogicError if the program stops before its end.
[[nodiscard]] std::vector<std::vector<Span>> simulate(const Program& program, const Costs& costs);

/// How much of a step the compute lanes stand still.
struct Idle {
  double seconds = 0;        ///< from the step's begin to the end of the last action of any rank
  std::vector<double> busy;  ///< per rank: seconds in which its compute lane works

  /// Of all ranks together, 0 to 1.
  [[nodiscard]] double share() const;
  [[nodiscard]] double share(int rank) const;
};
[[nodiscard]] Idle idle(const Program& program, const std::vector<std::vector<Span>>& spans);

}  // namespace minitaw::schedule
