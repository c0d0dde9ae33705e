// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/execute.hpp"
#include <algorithm>
#include <fmt/ranges.h>
#include <map>
#include <tuple>

namespace minitaw::schedule::detail {
std::string place(const Program& program, int rank, int action) {
  if (rank < 0)
    return "the program";
  if (action < 0)
    return fmt::format("rank {}", rank);
  Action shown = program.ranks[rank].actions[action];
  if (shown.communicator >= static_cast<int>(program.communicators.size()))
    shown.communicator = -1;
  return fmt::format("rank {}, tick {}, '{}'", rank, shown.tick, to_text(shown, program));
}

namespace {
using enum Rule;

/// Returns whether two sides mean the same part of the same data, in the same precision.
bool same_content(const Action& a, const Action& b) {
  return a.shard == b.shard && a.micro_batch == b.micro_batch && a.block == b.block &&
         a.part == b.part && a.parts == b.parts && is_sum(a[Operand::buffer].cls) == is_sum(b[Operand::buffer].cls);
}

class Matcher {
public:
  explicit Matcher(const Program& program) : program_(program) {}

  Matching run() {
    number_actions();
    pair_messages();
    result_.messages = result_.transfers();
    match_collectives();
    return std::move(result_);
  }

private:
  [[nodiscard]] const Action& at(Place p) const { return action_at(program_, p); }

  template <class... Args>
  [[noreturn]] void fail(
      Rule rule, Place p, fmt::format_string<Args...> what, Args&&... args) const {
    refuse(rule, program_, p.rank, p.action, what, std::forward<Args>(args)...);
  }

  [[nodiscard]] std::string text(Place p) const { return place(program_, p.rank, p.action); }

  void number_actions() {
    std::int64_t count = 0;
    for (const RankProgram& rank : program_.ranks) {
      result_.base.push_back(count);
      count += static_cast<std::int64_t>(rank.actions.size());
    }
    result_.transfers_of_actions.assign(count, -1);
  }

  void add_side(Place side) {
    result_.sides.push_back(side);
    result_.transfers_of_actions[result_.number(side)] = result_.transfers();
  }

  void end_transfer() {
    result_.first_side.push_back(static_cast<std::int64_t>(result_.sides.size()));
  }

  /// Messages keep their order between a sender, a receiver and for a payload.
  void pair_messages() {
    struct Queue {
      std::vector<Place> sends, receives;
    };

    std::map<std::tuple<int, int, Payload>, Queue> queues;
    for (std::int32_t r = 0; r < static_cast<int>(program_.ranks.size()); ++r)
      for (std::int32_t i = 0; const Action& a : program_.ranks[r].actions) {
        if (a.kind == Kind::send)
          queues[{r, a.peer, a.payload}].sends.push_back({r, i});
        if (a.kind == Kind::recv)
          queues[{a.peer, r, a.payload}].receives.push_back({r, i});
        ++i;
      }
    for (const auto& [key, queue] : queues)
      for (std::size_t i = 0; i < std::max(queue.sends.size(), queue.receives.size()); ++i) {
        if (i == queue.sends.size())
          fail(matched_messages, queue.receives[i], "no send of the peer is left for it");
        if (i == queue.receives.size())
          fail(matched_messages, queue.sends[i], "no receive of the peer is left for it");
        const Place from = queue.sends[i], to = queue.receives[i];
        if (!same_content(at(from), at(to)))
          fail(matched_messages, to, "meets {}; expected the same message", text(from));
        add_side(from);
        add_side(to);
        end_transfer();
      }
  }

  /// The calls of each member of a communicator on a lane, in order: those at one place belong
  /// together.
  void match_collectives() {
    std::vector<std::map<std::pair<int, Lane>, std::vector<std::int32_t>>> calls(
        program_.ranks.size());
    for (std::size_t r = 0; r < calls.size(); ++r)
      for (std::int32_t i = 0; const Action& a : program_.ranks[r].actions) {
        if (is_collective(a.kind))
          calls[r][{a.communicator, a.lane}].push_back(i);
        ++i;
      }
    for (int c = 0; c < static_cast<int>(program_.communicators.size()); ++c)
      for (int l = 0; l < lanes; ++l) {
        const std::vector<int>& members = program_.communicators[c].ranks;
        std::vector<const std::vector<std::int32_t>*> of_member;
        for (const int rank : members) {
          of_member.push_back(&calls[rank][{c, static_cast<Lane>(l)}]);
          compare(members[0], *of_member[0], rank, *of_member.back());
        }
        for (std::size_t k = 0; k < of_member[0]->size(); ++k) {
          for (std::size_t m = 0; m < members.size(); ++m)
            add_side({members[m], (*of_member[m])[k]});
          end_transfer();
        }
      }
  }

  void compare(int first,
      const std::vector<std::int32_t>& expected,
      int rank,
      const std::vector<std::int32_t>& calls) const {
    const auto same = [&](std::int32_t a, std::int32_t b) {
      return same_call(at({first, a}), at({rank, b}));
    };
    const auto [e, c] = std::ranges::mismatch(expected, calls, same);
    if (e == expected.end() && c == calls.end())
      return;
    if (c == calls.end())
      fail(same_collectives, {first, *e}, "rank {} never joins it", rank);
    fail(same_collectives,
        {rank, *c},
        "{}",
        e == expected.end() ? fmt::format("rank {} never joins it", first)
                            : fmt::format("expected the collective of {}", text({first, *e})));
  }

  static bool same_call(const Action& a, const Action& b) {
    return a.kind == b.kind && a.payload == b.payload && a.peer == b.peer && same_content(a, b);
  }

  const Program& program_;
  Matching result_;
};

constexpr unsigned bit(int lane) {
  return 1U << static_cast<unsigned>(lane);
}

constexpr unsigned all_lanes = bit(lanes) - 1;
}  // namespace

Matching match(const Program& program) {
  return Matcher(program).run();
}

void execute(const Program& program, const std::function<void(Sides)>& perform) {
  LaneMachine machine(program);
  while (const std::optional<Start> start = machine.next()) {
    if (start->begins.empty())
      continue;
    perform(start->begins);
    machine.finish(start->begins);
  }
  machine.require_end();
}
}  // namespace minitaw::schedule::detail

namespace minitaw::schedule {
using detail::all_lanes, detail::bit;

LaneMachine::LaneMachine(const Program& program, LaneRules rules)
    : program_(program),
      rules_(std::move(rules)),
      matching_(detail::match(program)),
      ranks_(program.ranks.size()),
      arrived_(matching_.transfers()),
      over_(matching_.transfers_of_actions.size()) {
  for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) {
    for (std::int32_t i = 0; const Action& a : program.ranks[r].actions)
      ranks_[r].all[index_of(a.lane)].actions.push_back(i++);
    wake(r, all_lanes);
  }
}

std::optional<Start> LaneMachine::next() {
  while (true) {
    for (; lane_ < lanes; ++lane_)
      if (LaneSet& ready = ranks_[rank_].ready; (ready & bit(lane_)) != 0) {
        if (can_start())
          return start();
        ready &= ~bit(lane_);
      }
    if (queue_.empty())
      return {};
    rank_ = queue_.front();
    lane_ = 0;
    queue_.pop_front();
    ranks_[rank_].queued = false;
  }
}

/// Unless the lane's next action waits for another lane, whose progress then wakes this one.
bool LaneMachine::can_start() {
  RankLanes& rank = ranks_[rank_];
  LaneState& lane = rank.all[lane_];
  if (lane.next == std::ssize(lane.actions) || !may_join(lane))
    return false;
  if (lane.reached < 0)
    lane.reached = now_;
  const LaneCounts& waits = program_.ranks[rank_].actions[lane.actions[lane.next]].waits;
  for (int l = 0; l < lanes; ++l)
    if (LaneState& other = rank.all[l]; l != lane_ && other.first < waits[l]) {
      other.holds |= bit(lane_);
      return false;
    }
  return true;
}

/// Returns whether the next action may start beside those of its lane that are under way, as
/// LaneExecutor::may_join() of the engine.
bool LaneMachine::may_join(const LaneState& lane) const {
  const auto action = [&](int i) -> const Action& {
    return program_.ranks[rank_].actions[lane.actions[i]];
  };
  if (lane.next - lane.first >= rules_.messages)
    return false;
  for (int i = lane.first; i < lane.next; ++i)
    if (!may_overlap(action(i), action(lane.next)))
      return false;
  return true;
}

Start LaneMachine::start() {
  LaneState& lane = ranks_[rank_].all[lane_];
  const Place place{rank_, lane.actions[lane.next++]};
  const double reached = std::exchange(lane.reached, -1);
  return {place, reached, begin(place)};
}

Sides LaneMachine::begin(Place place) {
  const std::int32_t transfer = matching_.transfer_of(place);
  if (transfer < 0) {
    local_ = place;
    return {&local_, 1};
  }
  const Sides sides = matching_.sides_of(transfer);
  const bool eager =
      transfer < matching_.messages && rules_.eager && rules_.eager(sides[0].rank, sides[1].rank);
  if (!eager)
    return ++arrived_[transfer] == std::ssize(sides) ? sides : Sides();
  if (action_at(program_, place).kind == Kind::send)
    return sides;
  if (over_[matching_.number(place)])
    advance(place);
  return {};
}

void LaneMachine::finish(Sides sides, double now) {
  now_ = now;
  for (const Place side : sides) {
    over_[matching_.number(side)] = true;
    advance(side);
  }
}

void LaneMachine::advance(Place finished) {
  const int l = static_cast<int>(action_at(program_, finished).lane);
  LaneState& lane = ranks_[finished.rank].all[l];
  const std::int32_t before = lane.first;
  const auto is_over = [&](std::int32_t i) {
    return over_[matching_.number({finished.rank, lane.actions[i]})];
  };
  while (lane.first < lane.next && is_over(lane.first))
    ++lane.first;
  if (lane.first > before)
    wake(finished.rank, bit(l) | std::exchange(lane.holds, 0));
}

void LaneMachine::wake(int rank, LaneSet ready) {
  ranks_[rank].ready |= ready;
  if (!std::exchange(ranks_[rank].queued, true))
    queue_.push_back(rank);
}

void LaneMachine::require_end() const {
  std::vector<std::string> heads;
  Place first;
  for (int r = 0; r < static_cast<int>(ranks_.size()); ++r)
    for (const LaneState& lane : ranks_[r].all) {
      if (lane.first == std::ssize(lane.actions))
        continue;
      const Place head{r, lane.actions[lane.first]};
      if (heads.empty())
        first = head;
      heads.push_back(detail::place(program_, r, head.action) +
                      (lane.first < lane.next ? " waits for the other side"
                                              : " waits for earlier actions of its rank"));
    }
  if (heads.empty())
    return;
  constexpr std::size_t shown = 16;
  detail::refuse(Rule::no_deadlock,
      program_,
      first.rank,
      first.action,
      "nothing can go on; {} lanes are stuck, for example: {}",
      heads.size(),
      fmt::join(heads.begin(), heads.begin() + std::min(shown, heads.size()), "; "));
}
}  // namespace minitaw::schedule
