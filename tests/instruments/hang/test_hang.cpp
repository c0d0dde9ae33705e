// SPDX-License-Identifier: BSD-3-Clause
// From the states of the ranks of a job that hangs: what all wait for. Programs are executed as far
// as they get with one fault, at every action of many schedules; the fault must be found, and
// nothing else.
#include <gtest/gtest.h>
#include <numeric>
#include <random>
#include "instruments/hang/hang.hpp"
#include "schedule/execute.hpp"
#include "schedule/hand_written.hpp"
#include "schedule/shapes.hpp"
#include "this_run.hpp"

namespace minitaw::hang {
using namespace schedule;

namespace {
using Fault = Culprit::Kind;

Sides sides_of(const Matching& matching, Place p) {
  return matching.sides_of(matching.transfer_of(p));
}

/// Executes a step until no lane gets on; the fault is at one action. `eager`: sends do not wait
/// for their receives.
class Stuck {
public:
  Stuck(const Program& program, const Culprit& fault, bool eager)
      : program_(program),
        matching_(detail::match(program)),
        fault_(fault),
        eager_(eager),
        states_(program.ranks.size(), {.position = 1}) {
    for (const RankProgram& rank : program.ranks)
      for (int l = 0; l < lanes; ++l)
        lanes_.push_back(actions_of(rank, static_cast<Lane>(l)));
    for (bool moved = true; std::exchange(moved, false);)
      for (int r = 0; r < std::ssize(states_); ++r)
        for (int l = 0; l < lanes; ++l)
          moved = advance(r, l) || moved;
    for (int r = 0; r < std::ssize(states_); ++r) {
      const int done = std::accumulate(states_[r].completed.begin(), states_[r].completed.end(), 0);
      if (done == std::ssize(program.ranks[r].actions))
        states_[r].position = 2;
    }
    if (fault.kind == Fault::silent)
      states_[fault.rank] = {};
  }

  [[nodiscard]] const std::vector<RankState>& states() const { return states_; }

private:
  [[nodiscard]] bool is_fault(Fault kind, Place p) const {
    return fault_ == Culprit{kind, p.rank, p.action};
  }

  [[nodiscard]] bool begun(Place p) const {
    const std::size_t lane = index_of(program_.ranks[p.rank].actions[p.action].lane);
    const std::vector<int>& actions = lanes_[p.rank * lanes + lane];
    return std::ranges::find(actions, p.action) - actions.begin() < states_[p.rank].begun[lane];
  }

  bool advance(int r, int l) {
    RankState& state = states_[r];
    const std::vector<int>& lane = lanes_[r * lanes + l];
    if (state.completed[l] == std::ssize(lane))
      return false;
    const Place here{r, lane[state.completed[l]]};
    for (int other = 0; other < lanes; ++other)
      if (program_.ranks[r].actions[here.action].waits[other] > state.completed[other])
        return false;
    if (fault_.kind == Fault::silent && r == fault_.rank && here.action >= fault_.action)
      return false;
    if (is_fault(Fault::late, here))
      return false;
    const bool begins = state.begun[l] == state.completed[l];
    state.begun[l] = state.completed[l] + 1;
    if (!ends(here))
      return begins;
    ++state.completed[l];
    return true;
  }

  [[nodiscard]] bool ends(Place here) const {
    const Action& a = program_.ranks[here.rank].actions[here.action];
    if (!is_communication(a.kind))
      return !is_fault(Fault::unfinished, here);
    if (a.kind == Kind::send && eager_)
      return true;
    return std::ranges::all_of(sides_of(matching_, here),
        [&](Place side) { return begun(side) && !is_fault(Fault::lost, side); });
  }

  const Program& program_;
  Matching matching_;
  Culprit fault_;
  bool eager_;
  std::vector<RankState> states_;
  std::vector<std::vector<int>> lanes_;
};

Culprit expected(const Matching& matching, const Culprit& fault) {
  if (fault.kind == Fault::silent)
    return {fault.kind, fault.rank};
  if (fault.kind != Fault::lost)
    return fault;
  const Place first = sides_of(matching, {fault.rank, fault.action}).front();
  return {fault.kind, first.rank, first.action};
}

class Hangs : public testing::TestWithParam<int> {};

TEST_P(Hangs, AFaultAtAnyActionIsFoundAndNothingElse) {
  const int ranks = GetParam();
  std::mt19937 random(test::seed());
  std::vector<std::string> specs = shapes::other_specs();
  for (const auto& more : {shapes::tawpipe_specs(), shapes::keeping_specs()})
    for (std::size_t i = ranks; i < more.size(); i += 5)
      specs.push_back(more[i]);
  int tried = 0;
  for (const std::string& spec : specs) {
    const std::vector<topology::Groups> groupings = shapes::groupings(ranks);
    Request request{parse_spec(spec), groupings[random() % groupings.size()], ranks, ranks};
    request.replicas = ranks % 2 == 0 && random() % 3 == 0 ? 2 : 1;
    request = shapes::with_enough_layers(request);
    if (!possible(request))
      continue;
    const Program program = build(request);
    const Matching matching = detail::match(program);
    for (int r = 0; r < ranks; ++r)
      for (int i = 0; const Action& a : program.ranks[r].actions) {
        const Fault own = is_communication(a.kind) ? Fault::lost : Fault::unfinished;
        const Culprit fault{std::array{Fault::silent, Fault::late, own}[random() % 3], r, i++};
        const bool eager = random() % 2 == 0, left_out = test::sanitized && random() % 8 != 0;
        if (left_out || (eager && fault.kind == Fault::lost && a.kind == Kind::send))
          continue;
        const Hang hang =
            find_culprits(program, Stuck(program, fault, eager).states(), request.groups);
        ASSERT_TRUE(hang.culprits == std::vector{expected(matching, fault)})
            << shapes::name_of(request) << " fault " << static_cast<int>(fault.kind)
            << (eager ? " eager" : "") << " at rank " << r << " " << to_text(a, program) << ": "
            << hang.sentence;
        ++tried;
      }
  }
  EXPECT_GT(tried, 500);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Hangs, testing::Values(2, 3, 4, 5, 6));

std::string sentence(const Program& program, const Culprit& fault, const topology::Groups& nodes) {
  return find_culprits(program, Stuck(program, fault, false).states(), nodes).sentence;
}

TEST(Hang, TheSentenceFollowsTheChain) {
  const Program relay = parse_program(hand_written::relay);
  const auto said = [&](const Culprit& fault) {
    return sentence(relay, fault, topology::Groups({1, 1}));
  };
  EXPECT_EQ(said({Fault::unfinished, 0, 6}),
      "rank 1 waits for rank 0's send of G1; rank 0 (node 0) has not finished BW s1 m0");
  EXPECT_EQ(said({Fault::lost, 0, 7}),
      "the send of G1 from rank 0 (node 0) to rank 1 (node 1) has begun on both sides and does not "
      "arrive");
  EXPECT_EQ(said({Fault::late, 1, 1}),
      "rank 0 waits for rank 1's send of W1; rank 1 (node 1) does not begin send of W1");
  EXPECT_EQ(said({Fault::silent, 1, 1}),
      "rank 0 waits for rank 1's send of W1; node 1 (rank 1) does not answer: it is down or cut "
      "off");
  const Program group = parse_program(hand_written::group);
  EXPECT_EQ(sentence(group, {Fault::lost, 1, 7}, topology::Groups({2})),
      "all ranks of group0 (0, 1) have begun the reduce of G1, and it does not end");
  const Program pipeline = build({parse_spec("1f1b"), topology::Groups({2, 3}), 5, 5});
  const auto loss = std::ranges::find(pipeline.ranks[4].actions, Kind::loss, &Action::kind);
  const auto at = static_cast<int>(loss - pipeline.ranks[4].actions.begin());
  EXPECT_EQ(sentence(pipeline, {Fault::unfinished, 4, at}, pipeline.groups),
      "rank 1 waits for rank 2's send of D2 m0, which waits for rank 3's send of D3 m0, which "
      "waits for rank 4's send "
      "of D4 m0; rank 4 (node 1) has not finished loss m0");
}

TEST(Hang, OnlyTheStrongestKindOfRootIsNamed) {
  const Program relay = parse_program(hand_written::relay);
  std::vector<RankState> states(2, {.position = 1});  // nothing else has begun
  states[1].begun[0] = 1;
  const Hang hang = find_culprits(relay, states, topology::Groups({2}));
  EXPECT_TRUE(hang.culprits == std::vector{Culprit(Fault::unfinished, 1, 2)}) << hang.sentence;
}

/// A queue of rank 0 has taken the send before its gradient is there.
TEST(Hang, WhatWaitsForItsRankHasNotBegun) {
  const std::size_t compute = index_of(Lane::compute), transfers = index_of(Lane::inputs_recv);
  std::vector<RankState> states(2, {.position = 1});
  for (RankState& state : states)
    state.begun[transfers] = 3, state.completed[transfers] = 2;
  states[0].begun[compute] = 3, states[0].completed[compute] = 2;
  states[1].begun[compute] = states[1].completed[compute] = 5;
  EXPECT_EQ(
      find_culprits(parse_program(hand_written::relay), states, topology::Groups({2})).sentence,
      "rank 1 waits for rank 0's send of G1; rank 0 (node 0) has not finished F s1 m0");
}

TEST(Hang, BetweenStepsRanksThatAreSilentOrBehindAreNamed) {
  const auto said = [](const std::vector<int>& positions,
                        const topology::Groups& nodes = topology::Groups({2, 2})) {
    std::vector<RankState> states;
    for (const int position : positions)
      states.push_back({.position = position});
    return find_culprits({}, states, nodes).sentence;
  };
  EXPECT_EQ(said({4, 4, -1, 4}), "rank 0 waits for rank 2; rank 2 (node 1) does not answer");
  EXPECT_EQ(said({4, 2, 0, 4}),
      "rank 0 waits for rank 2; rank 2 (node 1) has not come as far as the others");
  EXPECT_EQ(said({4, -1, -1, 4}),
      "rank 0 waits for rank 1; rank 1 (node 0) does not answer; rank 2 (node 1) does not answer");
  EXPECT_EQ(said({4, 4, -1, -1}),
      "rank 0 waits for rank 2; node 1 (ranks 2, 3) does not answer: it is down or cut off");
  EXPECT_EQ(said({4, 4, 4, 4}), "");
  EXPECT_EQ(said({2, 4, 2, 2, 2, 2, 2}, topology::Groups({7})),
      "rank 1 waits for rank 0; rank 0 (node 0) has not come as far as the others; rank 2 (node 0) "
      "has not come as far "
      "as the others; rank 3 (node 0) has not come as far as the others; rank 4 (node 0) has not "
      "come as far as the "
      "others; 2 more");
  EXPECT_EQ(said({-1, 4, -1, 4}, topology::Groups({1, 1, 1, 1})),
      "rank 1 waits for rank 0; node 0 (rank 0) does not answer: it is down or cut off; node 2 "
      "(rank 2) does not "
      "answer: "
      "it is down or cut off");
  EXPECT_EQ(said({-1, -1, 4, 4, -1, -1}, topology::Groups({2, 2, 2})),
      "rank 2 waits for rank 0; only node 1 answers here: it is cut off, or all others are down");
}

/// Rank 2 of the job has no part in the case. Rank 1 has ended the step; rank 0 then lacks a
/// message of it.
TEST(Hang, WhoHasNoPartInTheCaseOrHasEndedTheStepIsNotWaitedFor) {
  const Program relay = parse_program(hand_written::relay);
  std::vector<RankState> states = {{.position = 2}, {.position = 2}, {.position = 0}};
  EXPECT_EQ(find_culprits(relay, states, topology::Groups({1, 1, 1})).sentence, "");
  states[0].position = 1;
  states[0].begun[index_of(Lane::inputs_recv)] = 2;
  states[0].completed[index_of(Lane::inputs_recv)] = 1;
  states[0].begun[0] = states[0].completed[0] = 2;
  EXPECT_EQ(find_culprits(relay, states, topology::Groups({1, 1, 1})).sentence,
      "rank 1 waits for rank 0; the send of W1 from rank 1 (node 1) to rank 0 (node 0) has begun "
      "on both sides and "
      "does not arrive");
  states = {{.position = 1}, {}, {}};
  EXPECT_EQ(find_culprits(relay, states, topology::Groups({1, 1, 1})).sentence,
      "node 1 (rank 1) does not answer: it is down or cut off");
}

TEST(Hang, StatesThatWaitForEachOtherHaveNoRoot) {
  Program program = parse_program(hand_written::relay);
  std::vector<RankState> states(2, {.position = 1});
  for (int r = 0; r < 2; ++r) {  // each waits for a send that the other one has not come to
    states[r].begun[index_of(Lane::inputs_recv)] = 1;
    for (Action& a : program.ranks[r].actions)
      if (a.lane == Lane::compute)
        a.waits[index_of(Lane::inputs_recv)] = 1;
  }
  std::swap(program.ranks[0].actions[0], program.ranks[0].actions[1]);
  EXPECT_EQ(find_culprits(program, states, topology::Groups({2})).sentence, "");
}
}  // namespace
}  // namespace minitaw::hang
