// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <deque>
#include <fmt/format.h>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include "base/error.hpp"
#include "schedule/validate.hpp"

/// How a program is executed, whoever does it: which actions make up a transfer, and when the lanes
/// of the ranks advance.
namespace minitaw::schedule {
/// An action of a rank; ranks are those of one replica, or of all that are executed.
struct Place {
  std::int32_t rank = -1, action = -1;
};

inline const Action& action_at(const Program& program, Place place) {
  return program.ranks[program.rank_of(place.rank)].actions[place.action];
}

/// All that begins together: a local action; a send and its receive; the members' calls of a
/// collective, in ring order. Where one replica is executed, a sum among replicas has one side.
using Sides = std::span<const Place>;

namespace detail {
/// A program that breaks a rule; a defect wherever it is not what one looks for.
struct Refusal : LogicError {
  explicit Refusal(Violation v)
      : LogicError("this program cannot be executed: " + v.message),
        violation(std::move(v)) {}

  Violation violation;
};

/// "rank 1, tick 3, 'BW s2 m1 h0 a2 x0 g0'", "rank 1" or "the program".
std::string text_of(const Program& program, Place place);

/// Base of what looks at a program and refuses what is wrong.
class Check {
public:
  explicit Check(const Program& program) : program_(program) {}

protected:
  const Action& at(Place place) const { return action_at(program_, place); }

  /// Throws Refusal: "rank 1, tick 3, 'BW s2 m1 h0 a2 x0 g0': <what>".
  template <class... Args>
  [[noreturn]] void fail(
      Rule rule, Place place, fmt::format_string<Args...> what, Args&&... args) const {
    const std::string message = fmt::format(
        "{}: {}", text_of(program_, place), fmt::format(what, std::forward<Args>(args)...));
    throw Refusal({rule, place.rank, place.action, message});
  }

  const Program& program_;
};
}  // namespace detail

/// The transfers of one replica of a program, or of several that are executed together. They are
/// numbered: messages, then collectives.
struct Matching {
  std::vector<std::int64_t> base;                  ///< an action's number: base[rank] + its index
  std::vector<std::int32_t> transfers_of_actions;  ///< by number; -1: a local action
  int messages = 0;
  std::vector<Place> sides;                    ///< of one transfer after the other
  std::vector<std::int64_t> first_side = {0};  ///< of each transfer, and the end

  std::int64_t number(Place place) const { return base[place.rank] + place.action; }

  int transfers() const { return std::ssize(first_side) - 1; }

  std::int32_t transfer_of(Place place) const { return transfers_of_actions[number(place)]; }

  /// The sides of a transfer; none for -1.
  Sides sides_of(std::int32_t transfer) const {
    if (transfer < 0)
      return {};
    return Sides(sides).subspan(
        first_side[transfer], first_side[transfer + 1] - first_side[transfer]);
  }
};

/// What is known of the finished actions of each lane of a rank, in order.
template <class T>
using Finished = std::array<std::vector<T>, lanes>;

/// Calls `see` with what is known of the last action of each other lane that an action waits for.
template <class T>
void for_each_wait(const Finished<T>& finished, const Action& action, const auto& see) {
  for (std::size_t l = 0; l < lanes; ++l)
    if (const int count = action.waits[l]; count > 0 && l != index_of(action.lane))
      see(finished[l][count - 1]);
}

/// What a transport allows beyond rendezvous transfers, one at a time in a lane.
struct LaneRules {
  int messages = 1;  ///< of one direction that a lane may have under way at once
  /// Returns whether messages of two ranks leave with their sends, before the receives have
  /// started; empty: none do.
  std::function<bool(int from, int to)> eager{};
};

/// An action that its lane has started.
struct Started {
  Place place;
  double reached;  ///< when its lane got to it: the time of finish()
  Sides begins;    ///< what begins with it; empty: sides of a transfer are missing
};

/// Advances the lanes of all ranks of some replicas of a program, which it outlives: an action
/// starts when those in front of it in its lane are finished and what it waits for in other lanes
/// is; a transfer begins when all of its sides have started. Whoever uses it says when actions end.
/// Actions of a lane count as finished in order.
class LaneMachine : detail::Check {
public:
  /// Throws Refusal as match().
  explicit LaneMachine(const Program& program, LaneRules rules = {}, int replicas = 1);

  /// Returns an action that starts, until nothing else can before something ends. What begins is
  /// valid until the next call.
  std::optional<Started> next();
  /// Ends what has begun, at a time that does not fall. Sides that have not started yet, receives
  /// of eager messages, end when they start.
  void finish(Sides sides, double now = 0);
  /// Throws Refusal (no_deadlock) unless all actions are finished.
  void require_end() const;

  const Matching& matching() const { return matching_; }

private:
  struct LaneState {
    std::vector<std::int32_t> actions;
    std::int32_t next = 0;   ///< to start
    std::int32_t first = 0;  ///< that is not finished
    double reached = -1;     ///< when it got to the next one; below 0: it has not
  };

  struct RankLanes {
    std::array<LaneState, lanes> all;
    bool queued = false;  ///< in queue_
  };

  bool can_start();
  bool may_join(const LaneState& lane) const;
  Sides begin(Place place);
  void advance(Place finished);
  void wake(int rank);

  LaneRules rules_;
  const Matching matching_;
  std::vector<RankLanes> ranks_;
  std::vector<std::int32_t> arrived_;  ///< sides at each transfer
  std::vector<bool> over_;             ///< actions, by number
  std::deque<int> queue_;              ///< ranks to look at, in the order of what happened to them
  int rank_ = 0, lane_ = lanes;        ///< where next() looks
  Place local_;                        ///< the local action that begins
  double now_ = 0;
};

namespace detail {
/// Throws Refusal for matched_messages and same_collectives.
Matching match(const Program& program, int replicas = 1);

/// Calls `perform` with all that begins, in an order that is possible with rendezvous transfers;
/// which one does not matter: what can happen does not depend on it. Throws Refusal as match(), and
/// for no_deadlock if the program stops before its end.
void execute(const Program& program, const std::function<void(Sides)>& perform);
/// Executes a program on the contents of slots. Throws Refusal as execute(), for exact_gradients
/// and fresh_reads.
void check_contents(const Program& program);
}  // namespace detail
}  // namespace minitaw::schedule
