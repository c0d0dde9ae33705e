// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/hang.hpp"

#include <algorithm>
#include <deque>
#include <fmt/ranges.h>
#include <map>

#include "schedule/execute.hpp"

namespace minitaw::schedule {
namespace {
/// "send of G5", "BW s2 m1"
std::string short_text(const Action& a) {
  const std::string what = payload_text(a.payload, a.shard);
  return fmt::format("{}{}{}{}", name_of(a.kind), what.empty() ? "" : (is_communication(a.kind) ? " of " : " "), what,
      a.micro_batch < 0 ? "" : fmt::format(" m{}", a.micro_batch));
}

/// Nodes of the graph are the lanes of each rank, and behind them the rank as a whole.
class Search {
public:
  Search(const Program& program, std::span<const RankState> states, const topology::Groups& nodes)
      : program_(program), states_(states.first(program.ranks.empty() ? states.size() : program.ranks.size())),
        nodes_(nodes), waiters_(states_.size() * (lanes + 1)) {
    if (!program.ranks.empty()) matching_ = detail::match(program);
    for (const RankProgram& rank : program.ranks) {
      lanes_.emplace_back();
      places_.emplace_back();
      for (int i = 0; const Action& a : rank.actions) {
        std::vector<int>& lane = lanes_.back()[index_of(a.lane)];
        places_.back().push_back(static_cast<int>(lane.size()));
        lane.push_back(i++);
      }
    }
  }

  Hang run() {
    for (int r = 0; r < ranks(); ++r) {
      visit_rank(r);
      for (int l = 0; l < lanes && states_[r].in_step(); ++l) visit_lane(r, l);
    }
    Hang hang;
    for (const auto& [root, node] : roots_)  // in order of their kinds
      if (root.kind == roots_.begin()->first.kind) hang.roots.push_back(root);
    if (roots_.empty()) return hang;
    const std::string chain = chain_to(roots_.begin()->second);
    hang.sentence = fmt::format("{}{}{}", chain, chain.empty() ? "" : "; ", clauses(hang.roots));
    return hang;
  }

private:
  /// `action`: of the rank that is waited for; -1: all that it does.
  struct Edge {
    int node, action;
  };

  [[nodiscard]] int ranks() const { return static_cast<int>(states_.size()); }
  static int node(int rank, int lane = lanes) { return rank * (lanes + 1) + lane; }
  static int rank_of(int node) { return node / (lanes + 1); }
  [[nodiscard]] const Action& at(int rank, int action) const { return program_.ranks[rank].actions[action]; }
  void wait(int from, int to, int action = -1) { waiters_[to].push_back({from, action}); }

  [[nodiscard]] int pending(int rank, int lane) const {
    if (program_.ranks.empty()) return -1;
    const std::vector<int>& actions = lanes_[rank][lane];
    const int done = states_[rank].completed[lane];
    return done < static_cast<int>(actions.size()) ? actions[done] : -1;
  }
  [[nodiscard]] bool has_begun(Place p) const {
    const RankState& state = states_[p.rank];
    const std::size_t lane = index_of(at(p.rank, p.action).lane);
    const int place = places_[p.rank][p.action];
    return place < state.completed[lane] || (place < state.begun[lane] && is_ready(p));
  }
  [[nodiscard]] bool is_ready(Place p) const {
    const LaneCounts& waits = at(p.rank, p.action).waits;
    return max_of(waits, states_[p.rank].completed) == states_[p.rank].completed;
  }

  void visit_rank(int r) {
    if (!states_[r].answers()) return (void)roots_.emplace(Root{Root::Kind::silent, r}, node(r));
    bool waits = false, ahead = false;
    for (int l = 0; l < lanes && states_[r].in_step(); ++l)
      if (pending(r, l) >= 0) wait(node(r), node(r, l));
    for (int other = 0; other < ranks() && !states_[r].in_step(); ++other) {
      if (states_[other].position < states_[r].position) wait(node(r), node(other)), waits = true;
      ahead = ahead || states_[other].position > states_[r].position;
    }
    if (!waits && ahead) roots_.emplace(Root{Root::Kind::late, r}, node(r));
  }

  void visit_lane(int r, int lane) {
    const int i = pending(r, lane);
    if (i < 0) return;
    const Action& a = at(r, i);
    for (int l = 0; l < lanes; ++l)
      if (a.waits[l] > states_[r].completed[l]) wait(node(r, lane), node(r, l));
    if (!is_ready({r, i})) return;
    const auto root = [&](const Root& found) { roots_.emplace(found, node(r, lane)); };
    if (!has_begun({r, i})) return root({Root::Kind::late, r, i});
    if (!is_communication(a.kind)) return root({Root::Kind::unfinished, r, i});
    const std::int32_t other = matching_.other[matching_.number({r, i})];
    if (is_point_to_point(a.kind)) {
      if (wait_for_side(node(r, lane), {a.peer, other})) return;
      return root(
          a.kind == Kind::send ? Root{Root::Kind::lost, r, i, a.peer} : Root{Root::Kind::lost, a.peer, other, r});
    }
    bool waits = false;
    for (const Place call : matching_.calls_of(other)) waits = wait_for_side(node(r, lane), call) || waits;
    const Place first = matching_.calls_of(other).front();
    if (!waits) root({Root::Kind::lost, first.rank, first.action});
  }

  /// Returns whether this side of a transfer has not begun, or its rank does not say.
  bool wait_for_side(int from, Place side) {
    const std::int64_t theirs = states_[side.rank].position, mine = states_[rank_of(from)].position;
    if (theirs > mine || (theirs == mine && has_begun(side))) return false;
    const auto lane = static_cast<int>(at(side.rank, side.action).lane);
    wait(from, theirs == mine ? node(side.rank, lane) : node(side.rank), side.action);
    return true;
  }

  /// The longest of the shortest chains of up to three ranks behind each other.
  [[nodiscard]] std::string chain_to(int root) const {
    std::vector<Edge> next(waiters_.size(), {-1, -1});
    next[root] = {root, -1};
    for (std::deque<int> open{root}; !open.empty(); open.pop_front())
      for (const Edge& waiter : waiters_[open.front()])
        if (next[waiter.node].node < 0) {
          next[waiter.node] = {open.front(), waiter.action};
          open.push_back(waiter.node);
        }
    std::pair<int, std::string> best;
    for (int r = 0; r < ranks(); ++r)
      if (next[node(r)].node >= 0)
        if (const auto found = hops(node(r), root, next); found.first > best.first && found.first <= 3) best = found;
    return best.second;
  }

  /// "rank 3 waits for rank 2's send of G5, which waits for rank 0", and how many ranks are waited for.
  [[nodiscard]] std::pair<int, std::string> hops(int start, int root, const std::vector<Edge>& next) const {
    std::pair<int, std::string> text;
    for (int at_node = start; at_node != root; at_node = next[at_node].node) {
      const int from = rank_of(at_node), to = rank_of(next[at_node].node), action = next[at_node].action;
      if (from == to) continue;
      text.second += text.first++ == 0 ? fmt::format("rank {} waits", from) : ", which waits";
      text.second += fmt::format(" for rank {}", to);
      if (action >= 0) text.second += "'s " + short_text(at(to, action));
    }
    return text;
  }

  [[nodiscard]] std::string name(int rank) const {
    return fmt::format("rank {} (node {})", rank, nodes_.group_of(rank));
  }

  [[nodiscard]] std::string clauses(const std::vector<Root>& roots) const {
    std::vector<std::string> texts = silence(roots);
    for (const Root& root : roots)
      if (root.kind != Root::Kind::silent) texts.push_back(clause(root));
    constexpr std::size_t shown = 4;
    if (const std::size_t all = texts.size(); all > shown) {
      texts.resize(shown);
      texts.push_back(fmt::format("{} more", all - shown));
    }
    return fmt::format("{}", fmt::join(texts, "; "));
  }

  [[nodiscard]] std::string clause(const Root& root) const {
    if (root.action < 0) return name(root.rank) + " has not come as far as the others";
    const Action& a = at(root.rank, root.action);
    const std::string what = short_text(a);
    if (root.kind == Root::Kind::unfinished) return name(root.rank) + " has not finished " + what;
    if (root.kind == Root::Kind::late) return name(root.rank) + " does not begin " + what;
    if (root.peer >= 0)
      return fmt::format(
          "the {} from {} to {} has begun on both sides and does not arrive", what, name(root.rank), name(root.peer));
    const Communicator& all = program_.communicators[a.communicator];
    return fmt::format(
        "all ranks of {} ({}) have begun the {}, and it does not end", all.name, fmt::join(all.ranks, ", "), what);
  }

  /// Where nobody on a node answers, it is the node or its link.
  [[nodiscard]] std::vector<std::string> silence(const std::vector<Root>& roots) const {
    std::map<int, std::vector<int>> silent;
    for (const Root& root : roots)
      if (root.kind == Root::Kind::silent) silent[nodes_.group_of(root.rank)].push_back(root.rank);
    const topology::Groups all = nodes_.within(0, ranks());
    std::vector<std::string> texts;
    int whole = 0;
    for (const auto& [node, members] : silent) {
      const bool is_whole = static_cast<int>(members.size()) == all.size(node) && all.count() > 1;
      whole += is_whole ? 1 : 0;
      for (const int rank : members)
        if (!is_whole) texts.push_back(name(rank) + " does not answer");
      if (is_whole)
        texts.push_back(fmt::format("node {} (rank{} {}) does not answer: it is down or cut off", node,
            members.size() > 1 ? "s" : "", fmt::join(members, ", ")));
    }
    if (whole < 2 || whole + 1 < all.count()) return texts;
    const auto here = std::ranges::find_if(states_, &RankState::answers) - states_.begin();
    return {fmt::format(
        "only node {} answers here: it is cut off, or all others are down", nodes_.group_of(static_cast<int>(here)))};
  }

  const Program& program_;
  std::span<const RankState> states_;
  const topology::Groups& nodes_;
  Matching matching_;
  std::vector<std::array<std::vector<int>, lanes>> lanes_;  ///< actions of each rank's lanes
  std::vector<std::vector<int>> places_;                    ///< of each rank's actions in their lanes
  std::vector<std::vector<Edge>> waiters_;                  ///< by node: the chain is followed back from the root
  std::map<Root, int> roots_;                               ///< and the node where each was found
};
}  // namespace

Hang find_root(const Program& program, std::span<const RankState> states, const topology::Groups& nodes) {
  return Search(program, states, nodes).run();
}
}  // namespace minitaw::schedule
