#pragma once

#include <span>

#include "schedule/play_matching.hpp"
#include "schedule/validate_detail.hpp"

namespace minitaw::schedule {

/// Told what happens while a program is played, each event when all of its sides are there.
class Listener {
public:
  Listener() = default;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  virtual ~Listener() = default;

  /// A compute action, zero, add or join.
  virtual void local(Place action) = 0;
  virtual void message(Place send, Place receive) = 0;
  /// The members' calls in ring order.
  virtual void collective(std::span<const Place> calls) = 0;
};

namespace detail {
/// Plays all ranks together with rendezvous transfers: a unit starts when its lane is free and its waits are
/// met, a message or collective happens when every side has started it. What can happen does not depend on
/// the order in which it is tried, so one play decides. Throws Refusal (g) if it stops before the end.
void play(const Program& program, const std::vector<LaneSequences>& sequences, const Matching& matching,
          Listener& listener);
}  // namespace detail

}  // namespace minitaw::schedule
