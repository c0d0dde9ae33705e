// SPDX-License-Identifier: BSD-3-Clause
// The account against examples, and against the definition of docs/results.md, asked moment by
// moment.
#include <gtest/gtest.h>
#include <random>
#include "schedule/execute.hpp"
#include "schedule/measured.hpp"
#include "schedule/parse.hpp"
#include "this_run.hpp"
#include "trace/account.hpp"

namespace minitaw::trace {
namespace {
using schedule::Action, schedule::Kind, schedule::Lane, schedule::parse_program, schedule::Place;
using schedule::Program, schedule::Span;

/// Rank 0 computes, then sends; rank 1 asks for it from the beginning.
const std::string hand_over = R"(program hand-over
shards 1
micro_batches 2
groups 1+1
rank 0 slots h1 a1 x1 owned 0
   0 compute         F s0 m0 h0 a0 x0
   0 inputs_send     send W0 h0 -> r1 after compute:1
rank 1 slots w1 a1 x1 owned
   0 inputs_recv     recv W0 w0 <- r0
   0 compute         F s0 m1 w0 a0 x0 after inputs_recv:1
)";

void compare(const RankTime& found, const RankTime& expected) {
  for (const auto part :
      {&RankTime::compute, &RankTime::idle, &RankTime::communication, &RankTime::hidden})
    EXPECT_NEAR(found.*part, expected.*part, 1e-9);
  for (int k = 0; k < schedule::traffic_kinds; ++k)
    EXPECT_NEAR(found.exposed[k], expected.exposed[k], 1e-9) << k;
}

TEST(Account, WaitingForAPeerThatComputesIsIdleAndTheTransferIsExposed) {
  const StepAccount step =
      account(parse_program(hand_over), {{{0, 0, 4}, {0, 4, 6}}, {{0, 0, 6}, {0, 6.5, 8.5}}});
  EXPECT_DOUBLE_EQ(step.length, 8.5);
  compare(step.ranks[0], {.compute = 4, .idle = 4.5, .communication = 2});
  RankTime second{.compute = 2, .idle = 4, .communication = 2};
  second.exposed[index_of(schedule::Traffic::weights)] = 2.5;  // under way 4 to 6, noticed at 6.5
  compare(step.ranks[1], second);
}

/// The transfer ends with the visit in front of the one that waits for it: what begins late is not
/// its fault.
TEST(Account, WaitingForATransferThatHasEndedIsIdle) {
  const StepAccount step = account(parse_program(R"(program late
shards 1
micro_batches 2
groups 1+1
rank 0 slots h1 owned 0
   0 inputs_send     send W0 h0 -> r1
rank 1 slots w1 a1 x1 owned
   0 inputs_recv     recv W0 w0 <- r0
   0 compute         F s0 m0 w0 a0 x0
   1 compute         F s0 m1 w0 a0 x0 after inputs_recv:1
)"),
      {{{0, 0, 4}}, {{0, 0, 4}, {0, 0, 4}, {4, 5, 7}}});
  compare(step.ranks[1], {.compute = 6, .idle = 1, .communication = 4, .hidden = 4});
}

// Clocks of two nodes never agree exactly; a circle of waits must end.
TEST(Account, ACircleOfWaitsEnds) {
  const StepAccount step = account(parse_program(R"(program circle
shards 2
micro_batches 2
groups 1+1
rank 0 slots h1 w1 owned 0
   0 inputs_send     send W0 h0 -> r1
   0 inputs_recv     recv W1 w0 <- r1 after inputs_send:1
   0 compute         join after inputs_recv:1
rank 1 slots h1 w1 owned 1
   0 inputs_send     send W1 h0 -> r0
   0 inputs_recv     recv W0 w0 <- r0 after inputs_send:1
   0 compute         join after inputs_recv:1
)"),
      {{{0, 0, 6}, {0, 5, 7}, {0, 7, 7}}, {{0, 0, 6}, {0, 5, 7}, {0, 7, 7}}});
  for (const RankTime& rank : step.ranks) {
    EXPECT_NEAR(rank.compute + rank.exposed_total() + rank.idle, 7, 1e-12);
    EXPECT_GE(rank.idle, 0);
  }
}

constexpr int nothing = -1;

class Definition {
public:
  Definition(const Program& program, const StepSpans& spans)
      : program_(program),
        spans_(spans),
        matching_(schedule::detail::match(program)) {}

  /// The kind of the transfer that is under way on a lane of a rank or holds it up; else `nothing`.
  [[nodiscard]] int at(int rank, Lane lane, double moment) const {
    const int next = not_ended(rank, lane, moment);
    if (next < 0)
      return nothing;
    if (span(rank, next).begin > moment)
      return held_up(rank, next, moment);
    const Action& a = action(rank, next);
    if (lane == Lane::compute)
      return nothing;
    const Place last = last_side(rank, next);
    if (last.rank == rank || span(last.rank, last.action).begin <= moment)
      return static_cast<int>(traffic_of(a.payload));
    return at(last.rank, action(last.rank, last.action).lane, moment);
  }

  [[nodiscard]] bool computes(int rank, double moment) const {
    const int next = not_ended(rank, Lane::compute, moment);
    return next >= 0 && span(rank, next).begin <= moment && action(rank, next).kind != Kind::join;
  }

  [[nodiscard]] bool transfers(int rank, double moment) const {
    for (int i = 0; i < static_cast<int>(program_.ranks[rank].actions.size()); ++i) {
      const Span& s = span(rank, i);
      if (!is_communication(action(rank, i).kind) || moment < s.begin || moment >= s.end)
        continue;
      const Place last = last_side(rank, i);
      if (span(last.rank, last.action).begin <= moment)
        return true;
    }
    return false;
  }

private:
  [[nodiscard]] const Action& action(int rank, int i) const {
    return program_.ranks[rank].actions[i];
  }

  [[nodiscard]] const Span& span(int rank, int i) const { return spans_[rank][i]; }

  [[nodiscard]] int not_ended(int rank, Lane lane, double moment) const {
    for (int i = 0; i < static_cast<int>(program_.ranks[rank].actions.size()); ++i)
      if (action(rank, i).lane == lane && span(rank, i).end > moment)
        return i;
    return -1;
  }

  [[nodiscard]] int held_up(int rank, int next, double moment) const {
    int last = -1;
    // Of lanes that end together the first counts, as everywhere.
    for (int l = 0; l < schedule::lanes; ++l) {
      if (static_cast<Lane>(l) == action(rank, next).lane)
        continue;
      int left = action(rank, next).waits[l];
      for (int k = 0; left > 0; ++k)
        if (static_cast<int>(action(rank, k).lane) == l && --left == 0)
          if (last < 0 || span(rank, k).end > span(rank, last).end)
            last = k;
    }
    if (last < 0 || span(rank, last).end <= moment)
      return nothing;
    return at(rank, action(rank, last).lane, moment);
  }

  [[nodiscard]] Place last_side(int rank, int i) const {
    Place last{rank, i};
    const auto see = [&](Place side) {
      const double begin = span(side.rank, side.action).begin;
      if (begin > span(last.rank, last.action).begin && begin <= span(rank, i).end)
        last = side;
    };
    if (is_communication(action(rank, i).kind))
      for (const Place side : matching_.sides_of(matching_.transfer_of({rank, i})))
        see(side);
    return last;
  }

  const Program& program_;
  const StepSpans& spans_;
  schedule::Matching matching_;
};

/// By moments in the middle between whole seconds, when nothing begins or ends.
StepAccount by_moments(const Program& program, const StepSpans& spans) {
  const Definition definition(program, spans);
  StepAccount result;
  for (const auto& rank : spans)
    for (const Span& s : rank)
      result.length = std::max(result.length, s.end);
  for (int r = 0; r < static_cast<int>(spans.size()); ++r) {
    RankTime& rank = result.ranks.emplace_back();
    for (double moment = 0.5; moment < result.length; moment += 1) {
      const int held = definition.at(r, Lane::compute, moment);
      const bool transfer = definition.transfers(r, moment),
                 computing = definition.computes(r, moment);
      if (computing)
        rank.compute += 1;
      else if (held == nothing)
        rank.idle += 1;
      else
        rank.exposed[held] += 1;
      if (transfer)
        rank.communication += 1;
      if (transfer && computing)
        rank.hidden += 1;
    }
  }
  return result;
}

class AccountOf : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Schedules,
    AccountOf,
    ::testing::Values("ddp",
        "fsdp",
        "fsdp:hierarchical=on",
        "1f1b",
        "1f1b:blocking=on",
        "zb1",
        "zb2",
        "weipipe",
        "tawpipe",
        "tawpipe:cco=off",
        "tawpipe:gwps=off",
        "tawpipe:dbs=off",
        "tawpipe:prefetch=1"));

TEST_P(AccountOf, IsWhatItsDefinitionSaysMomentByMoment) {
  const unsigned seed = test::seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const Program program =
      schedule::build({schedule::parse_spec(GetParam()), topology::Groups({2, 2}), 4, 5});
  for (int trial = 0; trial < 20; ++trial) {
    // Whole seconds; some actions take none.
    const StepSpans spans = as_measured(program,
        schedule::simulate(
            program, [&](int, const Action&) { return static_cast<double>(random() % 5); }));
    const StepAccount found = account(program, spans), expected = by_moments(program, spans);
    ASSERT_EQ(found.length, expected.length);
    for (std::size_t r = 0; r < spans.size(); ++r) {
      SCOPED_TRACE(fmt::format("rank {}", r));
      compare(found.ranks[r], expected.ranks[r]);
    }
  }
}
}  // namespace
}  // namespace minitaw::trace
