// SPDX-License-Identifier: BSD-3-Clause
// From the states of the ranks of a job that hangs: what all wait for. Programs are executed as far as they get
// with one fault, at every action of many schedules; the fault must be found, and nothing else.
#include "schedule/hang.hpp"

#include <gtest/gtest.h>
#include <random>

#include "sanitized.hpp"
#include "schedule/execute.hpp"
#include "schedule/hand_written.hpp"
#include "schedule/shapes.hpp"
#include "seed.hpp"

namespace minitaw::schedule {
namespace {
using Kind = Root::Kind;

/// Executes a step by trying every lane until none gets on. The fault is at one action; a silent rank does
/// nothing from there on. `eager`: sends do not wait for their receives.
class Stuck {
public:
  Stuck(const Program& program, Kind fault, Place where, bool eager)
      : program_(program), matching_(detail::match(program)), fault_(fault), where_(where), eager_(eager),
        states_(program.ranks.size()) {
    for (const RankProgram& rank : program.ranks)
      for (int l = 0; l < lanes; ++l) lanes_.push_back(actions_of(rank, static_cast<Lane>(l)));
    for (RankState& state : states_) state.position = 1;
    for (bool moved = true; std::exchange(moved, false);)
      for (int r = 0; r < ranks(); ++r)
        for (int l = 0; l < lanes; ++l) moved = advance(r, l) || moved;
    for (int r = 0; r < ranks(); ++r) finish(r);
  }
  [[nodiscard]] const std::vector<RankState>& states() const { return states_; }

private:
  [[nodiscard]] int ranks() const { return static_cast<int>(program_.ranks.size()); }
  [[nodiscard]] const std::vector<int>& lane(int r, int l) const { return lanes_[r * lanes + l]; }
  [[nodiscard]] bool is_fault(Place p) const { return p.rank == where_.rank && p.action == where_.action; }
  [[nodiscard]] bool begun(Place p) const {
    const int l = static_cast<int>(program_.ranks[p.rank].actions[p.action].lane);
    const auto place = std::ranges::find(lane(p.rank, l), p.action) - lane(p.rank, l).begin();
    return place < states_[p.rank].begun[l];
  }

  bool advance(int r, int l) {
    RankState& state = states_[r];
    if (state.completed[l] == static_cast<int>(lane(r, l).size())) return false;
    const Place here{r, lane(r, l)[state.completed[l]]};
    for (int other = 0; other < lanes; ++other)
      if (program_.ranks[r].actions[here.action].waits[other] > state.completed[other]) return false;
    if (fault_ == Kind::silent && r == where_.rank && here.action >= where_.action) return false;
    if (fault_ == Kind::late && is_fault(here)) return false;
    const bool begins = state.begun[l] == state.completed[l];
    state.begun[l] = state.completed[l] + 1;
    if (!ends(here)) return begins;
    ++state.completed[l];
    return true;
  }

  [[nodiscard]] bool ends(Place here) const {
    const Action& a = program_.ranks[here.rank].actions[here.action];
    if (!is_communication(a.kind)) return !(fault_ == Kind::unfinished && is_fault(here));
    const std::int32_t other = matching_.other[matching_.number(here)];
    std::vector<Place> sides{here};
    if (is_collective(a.kind)) sides.assign(matching_.calls_of(other).begin(), matching_.calls_of(other).end());
    else sides.push_back({a.peer, other});
    if (a.kind == schedule::Kind::send && eager_) return true;
    return std::ranges::all_of(
        sides, [&](Place side) { return begun(side) && !(fault_ == Kind::lost && is_fault(side)); });
  }

  void finish(int r) {
    const auto over = [&](int l) { return states_[r].completed[l] == static_cast<int>(lane(r, l).size()); };
    bool all = true;
    for (int l = 0; l < lanes; ++l) all = all && over(l);
    if (all) states_[r].position = 2;
    if (fault_ == Kind::silent && r == where_.rank) states_[r] = {};
  }

  const Program& program_;
  Matching matching_;
  Kind fault_;
  Place where_;
  bool eager_;
  std::vector<RankState> states_;
  std::vector<std::vector<int>> lanes_;
};

/// What must be found; nothing if there can be no such fault at the action.
std::optional<Root> expected(const Program& program, const Matching& matching, Kind fault, Place at) {
  const Action& a = program.ranks[at.rank].actions[at.action];
  if (fault == Kind::silent) return Root{fault, at.rank};
  if (fault == Kind::late) return Root{fault, at.rank, at.action};
  if ((fault == Kind::lost) != is_communication(a.kind)) return {};
  if (fault == Kind::unfinished) return Root{fault, at.rank, at.action};
  const std::int32_t other = matching.other[matching.number(at)];
  if (is_collective(a.kind)) return Root{fault, matching.calls_of(other)[0].rank, matching.calls_of(other)[0].action};
  if (a.kind == schedule::Kind::recv) return Root{fault, a.peer, other, at.rank};
  return Root{fault, at.rank, at.action, a.peer};
}

class Hangs : public testing::TestWithParam<int> {};

TEST_P(Hangs, AFaultAtAnyActionIsFoundAndNothingElse) {
  const int ranks = GetParam();
  std::mt19937 random(test::seed());
  std::vector<std::string> specs = shapes::other_specs();
  for (const auto& more : {shapes::tawpipe_specs(), shapes::keeping_specs()})
    for (std::size_t i = ranks; i < more.size(); i += 5) specs.push_back(more[i]);
  int tried = 0;
  for (const std::string& spec : specs) {
    const std::vector<topology::Groups> groupings = shapes::groupings(ranks);
    Request request{parse_spec(spec), groupings[random() % groupings.size()], ranks, ranks};
    request.replicas = ranks % 2 == 0 && random() % 3 == 0 ? 2 : 1;
    request = shapes::with_enough_layers(request);
    if (!possible(request)) continue;
    const Program program = build(request);
    const Matching matching = detail::match(program);
    for (std::int32_t r = 0; r < ranks; ++r)
      for (std::int32_t i = 0; i < static_cast<int>(program.ranks[r].actions.size()); ++i) {
        if (test::sanitized && random() % 8 != 0) continue;
        const Kind fault = static_cast<Kind>(random() % 4);
        const std::optional<Root> wanted = expected(program, matching, fault, {r, i});
        const bool eager = random() % 2 == 0;
        if (!wanted || (eager && fault == Kind::lost && program.ranks[r].actions[i].kind == schedule::Kind::send))
          continue;
        const Hang hang = find_root(program, Stuck(program, fault, {r, i}, eager).states(), request.groups);
        ASSERT_TRUE(hang.roots == std::vector{*wanted})
            << shapes::name_of(request) << " fault " << static_cast<int>(fault) << (eager ? " eager" : "")
            << " at rank " << r << " " << to_text(program.ranks[r].actions[i], program) << ": " << hang.sentence;
        ++tried;
      }
  }
  EXPECT_GT(tried, 500);
}
INSTANTIATE_TEST_SUITE_P(Ranks, Hangs, testing::Values(2, 3, 4, 5, 6));

/// One fault in the relay of tests/schedule/hand_written.hpp, on two nodes.
std::string sentence(Kind fault, Place where) {
  const Program program = parse_program(hand_written::relay);
  return find_root(program, Stuck(program, fault, where, false).states(), topology::Groups({1, 1})).sentence;
}

TEST(Hang, TheSentenceFollowsTheChain) {
  EXPECT_EQ(sentence(Kind::unfinished, {0, 6}),
      "rank 1 waits for rank 0's send of G1; rank 0 (node 0) has not finished BW s1 m0");
  EXPECT_EQ(sentence(Kind::lost, {0, 7}),
      "the send of G1 from rank 0 (node 0) to rank 1 (node 1) has begun on both sides and does not arrive");
  EXPECT_EQ(
      sentence(Kind::late, {1, 1}), "rank 0 waits for rank 1's send of W1; rank 1 (node 1) does not begin send of W1");
  EXPECT_EQ(sentence(Kind::silent, {1, 1}),
      "rank 0 waits for rank 1's send of W1; node 1 (rank 1) does not answer: it is down or cut off");
}

TEST(Hang, TheSentenceFollowsTheChainThroughSeveralRanks) {
  const Program program = build({parse_spec("1f1b"), topology::Groups({1, 2}), 3, 3});
  const auto& last = program.ranks[2].actions;
  const auto loss = std::ranges::find(last, schedule::Kind::loss, &Action::kind) - last.begin();
  const Stuck stuck(program, Kind::unfinished, {2, static_cast<std::int32_t>(loss)}, false);
  EXPECT_EQ(find_root(program, stuck.states(), program.groups).sentence,
      "rank 0 waits for rank 1's send of D1 m0, which waits for rank 2's send of D2 m0; rank 2 (node 1) has not "
      "finished loss m0");
}

RankState between(std::int64_t position) { return {.position = position}; }

TEST(Hang, BetweenStepsRanksThatAreSilentOrBehindAreNamed) {
  const auto said = [](const std::vector<RankState>& states) {
    return find_root({}, states, topology::Groups({2, 2})).sentence;
  };
  EXPECT_EQ(said({between(4), between(4), between(-1), between(4)}),
      "rank 0 waits for rank 2; rank 2 (node 1) does not answer");
  EXPECT_EQ(said({between(4), between(2), between(4), between(4)}),
      "rank 0 waits for rank 1; rank 1 (node 0) has not come as far as the others");
  EXPECT_EQ(said({between(4), between(-1), between(-1), between(4)}),
      "rank 0 waits for rank 1; rank 1 (node 0) does not answer; rank 2 (node 1) does not answer");
  EXPECT_EQ(said({between(4), between(4), between(-1), between(-1)}),
      "rank 0 waits for rank 2; node 1 (ranks 2, 3) does not answer: it is down or cut off");
  EXPECT_EQ(said({between(4), between(4), between(4), between(4)}), "");
}

TEST(Hang, WhoIsCutOffFromAllOthersSaysSo) {
  std::vector<RankState> states(6);
  states[2] = states[3] = between(4);
  EXPECT_EQ(find_root({}, states, topology::Groups({2, 2, 2})).sentence,
      "rank 2 waits for rank 0; only node 1 answers here: it is cut off, or all others are down");
}

TEST(Hang, StatesThatWaitForEachOtherHaveNoRoot) {
  Program program = parse_program(hand_written::relay);
  std::vector<RankState> states(2, {.position = 1});
  for (int r = 0; r < 2; ++r) {  // each waits for a send that the other one has not come to
    states[r].begun[index_of(Lane::inputs_recv)] = 1;
    for (Action& a : program.ranks[r].actions)
      if (a.lane == Lane::compute) a.waits[index_of(Lane::inputs_recv)] = 1;
  }
  std::swap(program.ranks[0].actions[0], program.ranks[0].actions[1]);
  const Hang hang = find_root(program, states, topology::Groups({2}));
  EXPECT_TRUE(hang.roots.empty()) << hang.sentence;
  EXPECT_EQ(hang.sentence, "");
}
}  // namespace
}  // namespace minitaw::schedule
