// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/execute.hpp"
#include <algorithm>
#include <fmt/ranges.h>
#include <map>
#include <tuple>

namespace minitaw::schedule::detail {
std::string text_of(const Program& program, Place place) {
  const auto [rank, action] = place;
  if (rank < 0)
    return "the program";
  if (action < 0)
    return fmt::format("rank {}", rank);
  Action shown = action_at(program, place);
  if (shown.communicator >= std::ssize(program.communicators))
    shown.communicator = -1;
  return fmt::format("rank {}, tick {}, '{}'",
      rank,
      shown.tick,
      to_text(in_job(program, shown, program.replica_of(rank)), program));
}

namespace {
using enum Rule;

class Matcher : Check {
public:
  using Check::Check;

  /// Messages keep their order between a sender, a receiver and for a payload, collectives in a
  /// lane of a communicator.
  Matching run(int replicas) {
    std::map<std::tuple<int, int, Payload>, Calls> messages;
    std::map<std::tuple<int, int, Lane>, Calls> collectives;
    for (int r = 0; r < replicas * std::ssize(program_.ranks); ++r) {
      const int rank = program_.rank_of(r), replica = program_.replica_of(r);
      const std::vector<Action>& actions = program_.ranks[rank].actions;
      result_.base.push_back(std::ssize(result_.transfers_of_actions));
      result_.transfers_of_actions.resize(result_.base.back() + actions.size(), -1);
      for (const std::int32_t i : indices(actions)) {
        const Action a = in_job(program_, actions[i], replica);
        if (a.kind == Kind::send)
          messages[{r, a.peer, a.payload}][r].push_back(i);
        if (a.kind == Kind::recv)
          messages[{a.peer, r, a.payload}][r].push_back(i);
        if (!is_collective(a.kind))
          continue;
        const bool joint = program_.communicators[a.communicator].among_replicas();
        collectives[{a.communicator, joint ? rank : program_.job_rank(replica, 0), a.lane}][r]
            .push_back(i);
      }
    }
    for (auto& [key, calls] : messages)
      join(matched_messages, {std::get<0>(key), std::get<1>(key)}, calls);
    result_.messages = result_.transfers();
    for (auto& [key, calls] : collectives) {
      const auto& [communicator, rank, lane] = key;
      const bool alone = replicas == 1 && program_.communicators[communicator].among_replicas();
      join(same_collectives, alone ? Ranks{rank} : members_of(program_, communicator, rank), calls);
    }
    return std::move(result_);
  }

private:
  using Calls = std::map<int, std::vector<std::int32_t>>;  ///< by rank: numbers of its actions

  /// The k-th calls of all members are one transfer.
  void join(Rule rule, const Ranks& members, Calls& calls) {
    const auto count = [](const auto& of_rank) { return of_rank.second.size(); };
    const auto& [rank, most] = *std::ranges::max_element(calls, {}, count);
    for (const int k : indices(most)) {
      const Place first{rank, most[k]};
      for (const int member : members) {
        if (std::ssize(calls[member]) <= k)
          fail(rule, first, "rank {} never joins it", member);
        const Place side{member, calls[member][k]};
        if (!same_transfer(at(first), at(side)))
          fail(rule, side, "meets {}; expected the same transfer", text_of(program_, first));
        result_.sides.push_back(side);
        result_.transfers_of_actions[result_.number(side)] = result_.transfers();
      }
      result_.first_side.push_back(std::ssize(result_.sides));
    }
  }

  /// Returns whether two sides mean the same part of the same data, in the same precision.
  static bool same_transfer(const Action& a, const Action& b) {
    const bool same_call = is_point_to_point(a.kind) || (a.kind == b.kind && a.peer == b.peer);
    return same_call && a.payload == b.payload && a.shard == b.shard &&
           a.micro_batch == b.micro_batch && a.block == b.block && a.part == b.part &&
           a.parts == b.parts && is_sum(a[Operand::buffer].cls) == is_sum(b[Operand::buffer].cls);
  }

  Matching result_;
};

}  // namespace

Matching match(const Program& program, int replicas) {
  return Matcher(program).run(replicas);
}

void execute(const Program& program, const std::function<void(Sides)>& perform) {
  LaneMachine machine(program);
  while (const std::optional<Started> start = machine.next()) {
    if (start->begins.empty())
      continue;
    perform(start->begins);
    machine.finish(start->begins);
  }
  machine.require_end();
}
}  // namespace minitaw::schedule::detail

namespace minitaw::schedule {
LaneMachine::LaneMachine(const Program& program, LaneRules rules, int replicas)
    : Check(program),
      rules_(std::move(rules)),
      matching_(detail::match(program, replicas)),
      ranks_(replicas * program.ranks.size()),
      arrived_(matching_.transfers()),
      over_(matching_.transfers_of_actions.size()) {
  for (const int r : indices(ranks_)) {
    for (std::int32_t i = 0; const Action& a : program.ranks[program.rank_of(r)].actions)
      ranks_[r].all[index_of(a.lane)].actions.push_back(i++);
    wake(r);
  }
}

std::optional<Started> LaneMachine::next() {
  while (true) {
    for (; lane_ < lanes; ++lane_)
      if (can_start()) {
        LaneState& lane = ranks_[rank_].all[lane_];
        const Place place{rank_, lane.actions[lane.next++]};
        return Started{place, std::exchange(lane.reached, -1), begin(place)};
      }
    if (queue_.empty())
      return {};
    rank_ = queue_.front();
    lane_ = 0;
    queue_.pop_front();
    ranks_[rank_].queued = false;
  }
}

bool LaneMachine::can_start() {
  RankLanes& rank = ranks_[rank_];
  LaneState& lane = rank.all[lane_];
  if (lane.next == std::ssize(lane.actions) || !may_join(lane))
    return false;
  if (lane.reached < 0)
    lane.reached = now_;
  const LaneCounts& waits = at({rank_, lane.actions[lane.next]}).waits;
  for (int l = 0; l < lanes; ++l)
    if (l != lane_ && rank.all[l].first < waits[l])
      return false;
  return true;
}

/// Returns whether the next action may start beside those of its lane that are under way, as
/// Sequence::may_join() of the engine.
bool LaneMachine::may_join(const LaneState& lane) const {
  const auto action = [&](int i) -> const Action& { return at({rank_, lane.actions[i]}); };
  return lane.next - lane.first < rules_.messages &&
         std::ranges::all_of(
             std::views::iota(lane.first, lane.next),
             [&](int i) { return may_overlap(action(i), action(lane.next)); });
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
  if (at(place).kind == Kind::send)
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
  const int l = static_cast<int>(at(finished).lane);
  LaneState& lane = ranks_[finished.rank].all[l];
  const std::int32_t before = lane.first;
  const auto is_over = [&](std::int32_t i) {
    return over_[matching_.number({finished.rank, lane.actions[i]})];
  };
  while (lane.first < lane.next && is_over(lane.first))
    ++lane.first;
  if (lane.first > before)
    wake(finished.rank);
}

void LaneMachine::wake(int rank) {
  if (!std::exchange(ranks_[rank].queued, true))
    queue_.push_back(rank);
}

void LaneMachine::require_end() const {
  std::vector<std::string> heads;
  Place first;
  for (const int r : indices(ranks_))
    for (const LaneState& lane : ranks_[r].all) {
      if (lane.first == std::ssize(lane.actions))
        continue;
      const Place head{r, lane.actions[lane.first]};
      if (heads.empty())
        first = head;
      heads.push_back(detail::text_of(program_, head) +
                      (lane.first < lane.next ? " waits for the other side"
                                              : " waits for earlier actions of its rank"));
    }
  if (heads.empty())
    return;
  constexpr std::size_t shown = 16;
  fail(Rule::no_deadlock,
      first,
      "nothing can go on; {} lanes are stuck, for example: {}",
      heads.size(),
      fmt::join(heads.begin(), heads.begin() + std::min(shown, heads.size()), "; "));
}
}  // namespace minitaw::schedule
