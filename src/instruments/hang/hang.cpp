// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/hang/hang.hpp"
#include <algorithm>
#include <deque>
#include <fmt/ranges.h>
#include <map>
#include <ranges>
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

/// A lane of a rank or, behind these, the rank as a whole.
struct Node {
  int rank = -1;
  std::vector<int> actions{};                    ///< of the lane
  std::vector<std::pair<Node*, int>> waiters{};  ///< and the action that each waits for; -1: all
  int length =
      -1;  ///< of the shortest chain to the root: ranks that are waited for; -1: there is none
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
    for (const auto& [root, at_node] : roots_)  // in order of their kinds
      if (root.kind == roots_.begin()->first.kind)
        hang.roots.push_back(root);
    if (!roots_.empty())
      hang.sentence = chain_to(*roots_.begin()->second) + clauses(hang.roots);
    return hang;
  }

private:
  [[nodiscard]] int ranks() const { return static_cast<int>(states_.size()); }

  [[nodiscard]] const Action& at(Place p) const { return program_.ranks[p.rank].actions[p.action]; }

  Node& node(int rank, int lane = lanes) { return graph_[rank * (lanes + 1) + lane]; }

  Node& node(Place p) { return node(p.rank, static_cast<int>(at(p).lane)); }

  [[nodiscard]] bool is_ready(Place p) const {
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
      roots_.emplace(Root{Root::Kind::silent, r}, &node(r));
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
      roots_.emplace(Root{Root::Kind::late, r}, &node(r));
  }

  void visit_action(Place here) {
    for (int l = 0; l < lanes; ++l)
      if (at(here).waits[l] > states_[here.rank].completed[l])
        node(here.rank, l).waiters.emplace_back(&node(here), -1);
    if (!is_ready(here))
      return;
    const auto found = [&](Root::Kind kind, Place p) {
      roots_.emplace(Root{kind, p.rank, p.action}, &node(here));
    };
    if (!has_begun(here))
      return found(Root::Kind::late, here);
    if (!is_communication(at(here).kind))
      return found(Root::Kind::unfinished, here);
    const std::vector<Place> sides = sides_of(here);
    if (std::ranges::count_if(sides, [&](Place side) { return waits_for(here, side); }) == 0)
      found(Root::Kind::lost, sides.front());
  }

  /// The sender comes first.
  [[nodiscard]] std::vector<Place> sides_of(Place p) const {
    const std::int32_t other = matching_.other[matching_.number(p)];
    if (at(p).kind == Kind::send)
      return {p, {at(p).peer, other}};
    if (at(p).kind == Kind::recv)
      return {{at(p).peer, other}, p};
    return {matching_.calls_of(other).begin(), matching_.calls_of(other).end()};
  }

  /// Returns whether this side of a transfer has not begun, or its rank does not say.
  bool waits_for(Place here, Place side) {
    const std::int64_t theirs = states_[side.rank].position, mine = states_[here.rank].position;
    if (theirs > mine || (theirs == mine && has_begun(side)))
      return false;
    (theirs == mine ? node(side) : node(side.rank)).waiters.emplace_back(&node(here), side.action);
    return true;
  }

  /// "rank 3 waits for rank 0; ": the longest of the shortest chains of up to three ranks behind
  /// each other.
  std::string chain_to(Node& root) {
    root.length = 0;
    for (std::deque<Node*> open{&root}; !open.empty(); open.pop_front())
      for (const auto& [waiter, action] : open.front()->waiters)
        if (waiter->length < 0) {
          follow(*waiter, *open.front(), action);
          open.push_back(waiter);
        }
    const Node* longest = &root;
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

  [[nodiscard]] std::string name(int r) const {
    return fmt::format("rank {} (node {})", r, nodes_.group_of(r));
  }

  [[nodiscard]] std::string clauses(const std::vector<Root>& roots) const {
    std::vector<std::string> texts;
    if (roots.front().kind == Root::Kind::silent)
      texts = silence();
    else
      std::ranges::transform(
          roots, std::back_inserter(texts), [this](const Root& root) { return clause(root); });
    constexpr int most = 4;
    const std::string more =
        texts.size() > most ? fmt::format("; {} more", texts.size() - most) : "";
    return fmt::format("{}{}", fmt::join(texts | std::views::take(most), "; "), more);
  }

  [[nodiscard]] std::string clause(const Root& root) const {
    if (root.action < 0)
      return name(root.rank) + " has not come as far as the others";
    const Action& a = at({root.rank, root.action});
    const std::string what = short_text(a);
    if (root.kind == Root::Kind::unfinished)
      return name(root.rank) + " has not finished " + what;
    if (root.kind == Root::Kind::late)
      return name(root.rank) + " does not begin " + what;
    if (is_point_to_point(a.kind))
      return fmt::format("the {} from {} to {} has begun on both sides and does not arrive",
          what,
          name(root.rank),
          name(a.peer));
    const Communicator& all = program_.communicators[a.communicator];
    return fmt::format("all ranks of {} ({}) have begun the {}, and it does not end",
        all.name,
        fmt::join(all.ranks, ", "),
        what);
  }

  /// Where nobody on a node answers, it is the node or its link.
  [[nodiscard]] std::vector<std::string> silence() const {
    std::vector<std::string> texts;
    int down = 0, up = 0;  // nodes; one that answers
    for (int n = 0; n < nodes_.count(); ++n) {
      std::vector<int> silent = nodes_.members(n);
      const bool whole = std::erase_if(silent, [this](int r) { return states_[r].answers(); }) == 0;
      if (whole)
        ++down;
      else
        up = n;
      if (whole)
        texts.push_back(fmt::format("node {} (rank{} {}) does not answer: it is down or cut off",
            n,
            silent.size() > 1 ? "s" : "",
            fmt::join(silent, ", ")));
      else
        for (const int r : silent)
          texts.push_back(name(r) + " does not answer");
    }
    if (down < 2 || down + 1 < nodes_.count())
      return texts;
    return {fmt::format("only node {} answers here: it is cut off, or all others are down", up)};
  }

  const Program& program_;
  std::span<const RankState> states_;
  topology::Groups nodes_;
  Matching matching_;
  std::vector<Node> graph_;      ///< the lanes of each rank, and the rank
  std::map<Root, Node*> roots_;  ///< and where each was found
};
}  // namespace

Hang find_root(
    const Program& program, std::span<const RankState> states, const topology::Groups& nodes) {
  return Search(program, states, nodes).run();
}
}  // namespace minitaw::hang
