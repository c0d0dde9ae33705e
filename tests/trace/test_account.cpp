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

/// Rank 0 computes, then sends; rank 1 asks for it from the beginning, computes without it, then
/// with it.
const std::string hand_over = R"(program hand-over
shards 1
micro_batches 3
groups 1+1
rank 0 slots h1 a1 x1 owned 0
   0 compute         F s0 m0 h0 a0 x0
   0 inputs_send     send W0 h0 -> r1 after compute:1
rank 1 slots w1 a1 x1 owned
   0 inputs_recv     recv W0 w0 <- r0
   0 compute         F s0 m1 w0 a0 x0
   1 compute         F s0 m2 w0 a0 x0 after inputs_recv:1
)";

void compare(const RankTime& found, const RankTime& expected) {
  for (const auto part :
      {&RankTime::compute, &RankTime::idle, &RankTime::communication, &RankTime::hidden})
    EXPECT_NEAR(found.*part, expected.*part, 1e-9);
  for (int k = 0; k < schedule::traffic_kinds; ++k)
    EXPECT_NEAR(found.exposed[k], expected.exposed[k], 1e-9) << k;
}

TEST(Account, WaitingForAPeerThatComputesIsIdleAndTheTransferIsExposed) {
  const StepAccount step = account(
      parse_program(hand_over), {{{0, 0, 4}, {0, 4, 6}}, {{0, 0, 6}, {0, 0, 0}, {0, 6.5, 8.5}}});
  compare(step.ranks[0], {.compute = 4, .idle = 4.5, .communication = 2});
  RankTime second{.compute = 2, .idle = 4, .communication = 2};
  second.exposed[index_of(schedule::Traffic::weights)] = 2.5;  // under way 4 to 6, noticed at 6.5
  compare(step.ranks[1], second);
}

/// The transfer ends with the visit in front of the one that waits for it: what begins late is not
/// its fault.
TEST(Account, WaitingForATransferThatHasEndedIsIdle) {
  const StepAccount step = account(
      parse_program(hand_over), {{{0, 0, 0}, {0, 0, 4}}, {{0, 0, 4}, {0, 0, 4}, {4, 5, 7}}});
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
  for (const RankTime& rank : step.ranks)
    EXPECT_NEAR(rank.compute + rank.exposed_total() + rank.idle, 7, 1e-12);
}

constexpr int nothing = -1;

class Definition {
public:
  Definition(const Program& program, const StepSpans& spans)
      : program_(program),
        spans_(spans),
        matching_(schedule::detail::match(program)) {}

  /// The kind of the transfer that is under way on a lane of a rank or holds it up; else `nothing`.
  int at(int rank, Lane lane, double moment) const {
    const Place next = not_ended(rank, lane, moment);
    if (next.action < 0)
      return nothing;
    if (span(next).begin > moment)
      return held_up(next, moment);
    if (lane == Lane::compute)
      return nothing;
    const Place last = last_side(next);
    if (last.rank == rank || span(last).begin <= moment)
      return static_cast<int>(traffic_of(action(next).payload));
    return at(last.rank, action(last).lane, moment);
  }

  bool computes(int rank, double moment) const {
    const Place next = not_ended(rank, Lane::compute, moment);
    return next.action >= 0 && span(next).begin <= moment && action(next).kind != Kind::join;
  }

  bool transfers(int rank, double moment) const {
    return std::ranges::any_of(indices(spans_[rank]), [&](int i) {
      const Place place{rank, i};
      return is_communication(action(place).kind) && span(last_side(place)).begin <= moment &&
             moment < span(place).end;
    });
  }

private:
  const Action& action(Place place) const { return action_at(program_, place); }

  const Span& span(Place place) const { return spans_[place.rank][place.action]; }

  Place not_ended(int rank, Lane lane, double moment) const {
    for (const int i : indices(spans_[rank]))
      if (action({rank, i}).lane == lane && span({rank, i}).end > moment)
        return {rank, i};
    return {rank, -1};
  }

  int held_up(Place waiting, double moment) const {
    Place last = waiting;
    double end = moment;
    // Of lanes that end together the first counts, as everywhere.
    for (int l = 0; l < schedule::lanes; ++l) {
      const auto lane = static_cast<Lane>(l);
      int left = lane == action(waiting).lane ? 0 : action(waiting).waits[l];
      for (Place needed{waiting.rank, 0}; left > 0; ++needed.action)
        if (action(needed).lane == lane && --left == 0 && span(needed).end > end) {
          last = needed;
          end = span(needed).end;
        }
    }
    return end > moment ? at(last.rank, action(last).lane, moment) : nothing;
  }

  Place last_side(Place place) const {
    Place last = place;
    if (is_communication(action(place).kind))
      for (const Place side : matching_.sides_of(matching_.transfer_of(place)))
        if (span(side).begin > span(last).begin && span(side).begin <= span(place).end)
          last = side;
    return last;
  }

  const Program& program_;
  const StepSpans& spans_;
  schedule::Matching matching_;
};

/// By moments in the middle between whole seconds, when nothing begins or ends.
RankTime by_moments(const Definition& definition, int rank, double length) {
  RankTime time;
  for (double moment = 0.5; moment < length; moment += 1) {
    const int held = definition.at(rank, Lane::compute, moment);
    const bool transfer = definition.transfers(rank, moment),
               computing = definition.computes(rank, moment);
    (computing ? time.compute : held == nothing ? time.idle : time.exposed[held]) += 1;
    time.communication += transfer ? 1 : 0;
    time.hidden += transfer && computing ? 1 : 0;
  }
  return time;
}

TEST(Account, IsWhatItsDefinitionSaysMomentByMoment) {
  std::mt19937 random(test::seed());
  for (const char* spec : {"ddp",
           "fsdp:hierarchical=on",
           "1f1b:blocking=on",
           "zb1",
           "weipipe",
           "tawpipe",
           "tawpipe:cco=off",
           "tawpipe:gwps=off"})
    for (int trial = 0; trial < 30; ++trial) {
      const Program program =
          schedule::build({schedule::parse_spec(spec), topology::Groups({2, 2}), 4, 5});
      // Whole seconds; some actions take none.
      const StepSpans spans = as_measured(program,
          schedule::simulate(
              program, [&](int, const Action&) { return static_cast<double>(random() % 5); }));
      double length = 0;
      for (const Span& s : spans | std::views::join)
        length = std::max(length, s.end);
      const StepAccount found = account(program, spans);
      const Definition definition(program, spans);
      ASSERT_EQ(found.length, length);
      for (const int r : indices(spans)) {
        SCOPED_TRACE(fmt::format("{}, seed {}, rank {}", spec, test::seed(), r));
        compare(found.ranks[r], by_moments(definition, r, length));
      }
    }
}
}  // namespace
}  // namespace minitaw::trace
