#include "engine/account.hpp"

#include <gtest/gtest.h>

#include "schedule/program.hpp"

namespace minitaw::engine {
namespace {

using schedule::Traffic;

/// Programs of lanes without slots that matter: the account asks who waits for whom, not whether it is valid.
schedule::Program program(const std::string& ranks) { return schedule::parse_program(ranks); }

double exposed(const trace::RankTime& rank, Traffic kind) {
  return rank.exposed[static_cast<std::size_t>(kind)];
}

/// Rank 0 computes, then sends; rank 1 asks for it from the beginning.
const std::string hand_over = R"(program hand-over
shards 1
micro_batches 2
groups 1+1
rank 0 slots h1 a1 x1 owned 0
   0 compute F s0 m0 h0 a0 x0
   0 operands_out send W0 h0 -> r1 after compute:1
rank 1 slots w1 a1 x1 owned
   0 operands_in recv W0 w0 <- r0
   0 compute F s0 m1 w0 a0 x0 after operands_in:1
)";

TEST(Account, WaitingForAPeerThatComputesIsIdleAndTheTransferIsExposed) {
  const StepAccount step = account(program(hand_over), {{{0, 0, 4}, {0, 4, 6}}, {{0, 0, 6}, {0, 6.5, 8.5}}});
  EXPECT_DOUBLE_EQ(step.length, 8.5);
  const trace::RankTime &first = step.ranks[0], &second = step.ranks[1];
  EXPECT_DOUBLE_EQ(first.compute, 4);
  EXPECT_DOUBLE_EQ(first.exposed_total(), 0);
  EXPECT_DOUBLE_EQ(first.idle, 4.5);
  EXPECT_DOUBLE_EQ(first.communication, 2);
  EXPECT_DOUBLE_EQ(second.compute, 2);
  EXPECT_DOUBLE_EQ(exposed(second, Traffic::weights), 2.5) << "under way 4 to 6, noticed at 6.5";
  EXPECT_DOUBLE_EQ(second.exposed_total(), 2.5);
  EXPECT_DOUBLE_EQ(second.idle, 4);
  EXPECT_DOUBLE_EQ(second.communication, 2);
  EXPECT_DOUBLE_EQ(second.hidden, 0);
}

TEST(Account, ASideThatComesAfterTheEndHeldUpNobody) {
  // The send is buffered: it is over before the other side begins.
  const StepAccount step = account(program(hand_over), {{{0, 0, 1}, {0, 1, 2}}, {{0, 5, 6}, {0, 6, 7}}});
  EXPECT_DOUBLE_EQ(step.ranks[0].communication, 1);
  EXPECT_DOUBLE_EQ(step.ranks[1].communication, 1);
  EXPECT_DOUBLE_EQ(exposed(step.ranks[1], Traffic::weights), 1);
  EXPECT_DOUBLE_EQ(step.ranks[1].idle, 5);
}

// Rank 2 waits for rank 1, whose lane first takes a gradient from rank 0, which first computes.
TEST(Account, WaitsAreFollowedThroughOtherRanks) {
  const StepAccount step =
      account(program(R"(program chain
shards 1
micro_batches 2
groups 1+1+1
rank 0 slots h1 g1 a1 x1 owned 0
   0 compute F s0 m0 h0 a0 x0
   0 gradients_out send G0 g0 -> r1 after compute:1
rank 1 slots h1 g1 owned
   0 gradients_in recv G0 g0 <- r0
   0 operands_out send A0 m1 x0 -> r2 after gradients_in:1
rank 2 slots h1 a1 x1 owned
   0 operands_in recv A0 m1 x0 <- r1
   0 compute F s0 m1 h0 a0 x0 after operands_in:1
)"),
              {{{0, 0, 3}, {0, 3, 7}}, {{0, 0, 7}, {0, 8, 10}}, {{0, 1, 10}, {0, 10, 11}}});
  const trace::RankTime& last = step.ranks[2];
  EXPECT_DOUBLE_EQ(exposed(last, Traffic::gradients), 4) << "3 to 7, between the others";
  EXPECT_DOUBLE_EQ(exposed(last, Traffic::activations), 2) << "8 to 10, its own";
  EXPECT_DOUBLE_EQ(exposed(last, Traffic::weights), 0);
  EXPECT_DOUBLE_EQ(last.idle, 4) << "0 to 3, while rank 0 computes; 7 to 8, nobody knows";
  EXPECT_DOUBLE_EQ(last.communication, 2);
}

// Clocks of two nodes never agree exactly; a circle of waits must end.
TEST(Account, ACircleOfWaitsEnds) {
  const StepAccount step = account(program(R"(program circle
shards 2
micro_batches 2
groups 1+1
rank 0 slots h1 w1 owned 0
   0 operands_out send W0 h0 -> r1
   0 operands_in recv W1 w0 <- r1 after operands_out:1
   0 compute join after operands_in:1
rank 1 slots h1 w1 owned 1
   0 operands_out send W1 h0 -> r0
   0 operands_in recv W0 w0 <- r0 after operands_out:1
   0 compute join after operands_in:1
)"),
                                   {{{0, 0, 6}, {0, 5, 7}, {0, 7, 7}}, {{0, 0, 6}, {0, 5, 7}, {0, 7, 7}}});
  for (const trace::RankTime& rank : step.ranks) {
    EXPECT_NEAR(rank.compute + rank.exposed_total() + rank.idle, 7, 1e-12);
    EXPECT_GE(rank.idle, 0);
  }
}

}  // namespace
}  // namespace minitaw::engine
