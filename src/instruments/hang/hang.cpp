// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/hang/hang.hpp"
#include <algorithm>
#include <deque>
#include <fmt/ranges.h>
#include <map>
#include <ranges>
#include "base/range.hpp"
#include "schedule/execute.hpp"

namespace minitaw::hang {
using namespace schedule;

namespace {
/// "send of G5", "BW s2 m1"
std::string short_text(const Action& a) {
  const std::string what = payload_text(a.payload, a.shard);
  return fmt::format("{}{}{}{}",
      name_of(a.kind),
      what.empty() ? "" : (is_communication(a.kind) ? " of " : " "),
      what,
      a.micro_batch < 0 ? "" : fmt::format(" m{}", a.micro_batch));
}

/// A lane of a rank or, after its lanes, the rank as a whole.
struct Node {
  int rank = -1;
  std::vector<int> actions{};                    ///< of the lane
  std::vector<std::pair<Node*, int>> waiters{};  ///< and the action that each waits for; -1: all
  /// Of the shortest chain to the culprit: ranks that are waited for; -1: there is none.
  int length = -1;
  std::string chain{};  ///< " waits for rank 2's send of G5, which waits for rank 0"
};

class Search {
public:
  Search(const Program& program, std::span<const RankState> states, const topology::Groups& nodes)
      : program_(program),
        states_(states.first(program.ranks.empty() ? states.size() : program.ranks.size())),
        nodes_(nodes.within(0, ranks())),
        matching_(detail::match(program)),
        graph_(states_.size() * (lanes + 1)) {
    for (int i = 0; Node & node : graph_)
      node.rank = i++ / (lanes + 1);
    for (int r = 0; r < std::ssize(program.ranks); ++r)
      for (int l = 0; l < lanes; ++l)
        node(r, l).actions = actions_of(program.ranks[r], static_cast<Lane>(l));
  }

  Hang run() {
    for (int r = 0; r < ranks(); ++r)
      visit(r);
    Hang hang;
    for (const auto& [culprit, at_node] : culprits_)  // in order of their kinds
      if (culprit.kind == culprits_.begin()->first.kind)
        hang.culprits.push_back(culprit);
    if (!culprits_.empty())
      hang.sentence = chain_to(*culprits_.begin()->second) + clauses(hang.culprits);
    return hang;
  }

private:
  int ranks() const { return std::ssize(states_); }

  const Action& at(Place p) const { return action_at(program_, p); }

  Node& node(int rank, int lane = lanes) { return graph_[rank * (lanes + 1) + lane]; }

  Node& node(Place p) { return node(p.rank, static_cast<int>(at(p).lane)); }

  bool is_ready(Place p) const {
    const LaneCounts& completed = states_[p.rank].completed;
    return max_of(at(p).waits, completed) == completed;
  }

  bool has_begun(Place p) {
    const RankState& state = states_[p.rank];
    const std::size_t lane = index_of(at(p).lane);
    const auto place =
        std::ranges::lower_bound(node(p).actions, p.action) - node(p).actions.begin();
    return place < state.completed[lane] || (place < state.begun[lane] && is_ready(p));
  }

  void visit(int r) {
    const RankState& state = states_[r];
    if (!state.answers())
      culprits_.emplace(Culprit{Culprit::Kind::silent, r}, &node(r));
    else if (!state.in_step())
      visit_between(r);
    for (int l = 0; l < lanes && state.in_step(); ++l) {
      const std::vector<int>& actions = node(r, l).actions;
      if (state.completed[l] >= std::ssize(actions))
        continue;
      node(r, l).waiters.emplace_back(&node(r), -1);
      visit_action({r, actions[state.completed[l]]});
    }
  }

  void visit_between(int r) {
    const auto [least, most] = std::ranges::minmax(states_, {}, &RankState::position);
    const std::int64_t mine = states_[r].position;
    for (int other = 0; other < ranks(); ++other)
      if (states_[other].position < mine)
        node(other).waiters.emplace_back(&node(r), -1);
    if (mine == least.position && mine < most.position)
      culprits_.emplace(Culprit{Culprit::Kind::late, r}, &node(r));
  }

  void visit_action(Place here) {
    for (int l = 0; l < lanes; ++l)
      if (at(here).waits[l] > states_[here.rank].completed[l])
        node(here.rank, l).waiters.emplace_back(&node(here), -1);
    if (!is_ready(here))
      return;
    const auto found = [&](Culprit::Kind kind, Place p) {
      culprits_.emplace(Culprit{kind, p.rank, p.action}, &node(here));
    };
    if (!has_begun(here))
      return found(Culprit::Kind::late, here);
    if (!is_communication(at(here).kind))
      return found(Culprit::Kind::unfinished, here);
    const Sides sides = matching_.sides_of(matching_.transfer_of(here));
    if (std::ranges::count_if(sides, [&](Place side) { return waits_for(here, side); }) == 0)
      found(Culprit::Kind::lost, sides.front());
  }

  /// Returns whether this side of a transfer has not begun, or its rank does not say.
  bool waits_for(Place here, Place side) {
    const std::int64_t theirs = states_[side.rank].position, mine = states_[here.rank].position;
    if (theirs > mine || (theirs == mine && has_begun(side)))
      return false;
    (theirs == mine ? node(side) : node(side.rank)).waiters.emplace_back(&node(here), side.action);
    return true;
  }

  /// "rank 3 waits for rank 0; ": of the shortest chains to the culprit, the longest one that is
  /// not longer than three ranks.
  std::string chain_to(Node& culprit) {
    culprit.length = 0;
    for (std::deque<Node*> open{&culprit}; !open.empty(); open.pop_front())
      for (const auto& [waiter, action] : open.front()->waiters)
        if (waiter->length < 0) {
          follow(*waiter, *open.front(), action);
          open.push_back(waiter);
        }
    const Node* longest = &culprit;
    for (int r = ranks() - 1; r >= 0; --r)
      if (const int length = node(r).length; length <= 3 && length >= longest->length)
        longest = &node(r);
    return longest->length > 0 ? fmt::format("rank {}{}; ", longest->rank, longest->chain) : "";
  }

  void follow(Node& waiter, const Node& next, int action) const {
    waiter.length = next.length + (waiter.rank == next.rank ? 0 : 1);
    waiter.chain = next.chain;
    if (waiter.rank == next.rank || waiter.length > 3)
      return;  // longer ones are not shown
    waiter.chain = fmt::format(" waits for rank {}{}{}",
        next.rank,
        action < 0 ? "" : "'s " + short_text(at({next.rank, action})),
        next.length > 0 ? ", which" + next.chain : "");
  }

  std::string name(int r) const { return fmt::format("rank {} (node {})", r, nodes_.group_of(r)); }

  std::string clauses(const std::vector<Culprit>& culprits) const {
    const std::vector<std::string> texts =
        culprits.front().kind == Culprit::Kind::silent
            ? silence()
            : list_of(culprits, [this](const Culprit& culprit) { return clause(culprit); });
    constexpr int most = 4;
    const std::string more =
        texts.size() > most ? fmt::format("; {} more", texts.size() - most) : "";
    return fmt::format("{}{}", fmt::join(texts | std::views::take(most), "; "), more);
  }

  std::string clause(const Culprit& culprit) const {
    if (culprit.action < 0)
      return name(culprit.rank) + " has not come as far as the others";
    const Action& a = at({culprit.rank, culprit.action});
    const std::string what = short_text(a);
    if (culprit.kind == Culprit::Kind::unfinished)
      return name(culprit.rank) + " has not finished " + what;
    if (culprit.kind == Culprit::Kind::late)
      return name(culprit.rank) + " does not begin " + what;
    if (is_point_to_point(a.kind))
      return fmt::format("the {} from {} to {} has begun on both sides and does not arrive",
          what,
          name(culprit.rank),
          name(a.peer));
    const Communicator& all = program_.communicators[a.communicator];
    return fmt::format("all ranks of {} ({}) have begun the {}, and it does not end",
        all.name,
        fmt::join(all.ranks, ", "),
        what);
  }

  /// Where no rank of a node answers, it is the node or its link.
  std::vector<std::string> silence() const {
    std::vector<std::string> texts;
    int down = 0, up = 0;  // nodes; one that answers
    for (int n = 0; n < nodes_.count(); ++n) {
      std::vector<int> silent = nodes_.members(n);
      if (std::erase_if(silent, [this](int r) { return states_[r].answers(); }) > 0) {
        up = n;
        for (const int r : silent)
          texts.push_back(name(r) + " does not answer");
        continue;
      }
      ++down;
      texts.push_back(fmt::format("node {} (rank{} {}) does not answer: it is down or cut off",
          n,
          silent.size() > 1 ? "s" : "",
          fmt::join(silent, ", ")));
    }
    if (down < 2 || down + 1 < nodes_.count())
      return texts;
    return {fmt::format("only node {} answers here: it is cut off, or all others are down", up)};
  }

  const Program& program_;
  std::span<const RankState> states_;
  topology::Groups nodes_;
  Matching matching_;
  std::vector<Node> graph_;            ///< the lanes of each rank, and the rank
  std::map<Culprit, Node*> culprits_;  ///< and where each was found
};
}  // namespace

Hang find_culprits(
    const Program& program, std::span<const RankState> states, const topology::Groups& nodes) {
  return Search(program, states, nodes).run();
}
}  // namespace minitaw::hang
