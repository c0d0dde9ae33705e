// SPDX-License-Identifier: BSD-3-Clause
#include "deck/deck.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include "helpers.hpp"

namespace minitaw::deck {
namespace {
using testing::AllOf, testing::ElementsAre, testing::HasSubstr, testing::StartsWith;

Case own_sizes(const std::vector<std::string>& more = {}) {
  std::vector<std::string> overrides = {"ranks=3", "micro_batch_per_rank=1,3,2", "micro_batches=6"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return make(small, overrides).cases[0];
}

TEST(Sequences, OfEqualMicroBatchesFollowEachOther) {
  const Case c = make(small, {"ranks=2", "micro_batch=3", "micro_batches=8"}).cases[0];
  EXPECT_EQ(std::tuple(sequences_of_step(c), tokens_of_step(c)), std::tuple(24, 24 * 128));
  EXPECT_EQ(std::tuple(first_sequence(c, 0), first_sequence(c, 5)), std::tuple(0, 15));
  EXPECT_EQ(micro_batch_text(c), "3");
}

// Ranks 0, 1, 2 have two micro-batches each, of 1, 3 and 2 sequences.
TEST(Sequences, OfRanksWithTheirOwnSizesFollowEachOtherToo) {
  const Case c = own_sizes();
  std::vector<std::int64_t> firsts;
  for (int m = 0; m <= c.micro_batches; ++m)
    firsts.push_back(first_sequence(c, m));
  EXPECT_THAT(firsts, ElementsAre(0, 1, 2, 5, 8, 10, 12));
  EXPECT_EQ(std::tuple(sequences_of_step(c), tokens_of_step(c)), std::tuple(12, 12 * 128));
  EXPECT_EQ(c.shape.micro_batch, 3) << "the largest, by which buffers are checked";
  EXPECT_EQ(std::tuple(micro_batch_of(c, 2), shape_of_rank(c, 0).micro_batch), std::tuple(2, 1));
  EXPECT_THAT(identity(c), HasSubstr(" micro_batch=1,3,2 micro_batches=6 "));
}

// Ranks 0 and 1 share two micro-batches of 1 sequence, ranks 2 and 3 two of 3.
TEST(Sequences, OfContextGroupsWithTheirOwnSizesFollowEachOtherToo) {
  const Case c =
      make(small, {"ranks=4", "context=2", "micro_batch_per_rank=1,1,3,3", "micro_batches=4"})
          .cases[0];
  std::vector<std::int64_t> firsts;
  for (int m = 0; m <= c.micro_batches; ++m)
    firsts.push_back(first_sequence(c, m));
  EXPECT_THAT(firsts, ElementsAre(0, 1, 2, 5, 8));
  EXPECT_EQ(std::tuple(sequences_of_step(c), tokens_of_step(c)), std::tuple(8, 8 * 128));
}

TEST(Sequences, OnOneRankAreOneMicroBatchEach) {
  const Case one = on_one_rank(own_sizes());
  EXPECT_EQ(std::tuple(one.ranks, one.micro_batches, one.shape.micro_batch), std::tuple(1, 12, 1));
  EXPECT_EQ(tokens_of_step(one), tokens_of_step(own_sizes()));
  Case serial = one;
  serial.schedule = "serial";
  EXPECT_EQ(identity(own_sizes({"schedule=serial"})), identity(serial));
}

TEST(Replicas, AreAnAxisThatSchedulesCheck) {
  const Deck deck = make(small, {"replicas=1,2,4", "schedule=serial,tawpipe"});
  std::vector<std::string> cases;
  for (const Case& c : deck.cases)
    cases.push_back(fmt::format("{} {}", c.schedule, c.replicas));
  EXPECT_THAT(cases, ElementsAre("serial 1", "tawpipe 1", "tawpipe 2", "tawpipe 4"));
  EXPECT_THAT(identity(deck.cases[2]), testing::EndsWith("data=synthetic replicas=2"));
  EXPECT_THAT(identity(deck.cases[1]), testing::Not(HasSubstr("replicas")));
}

TEST(Sequences, EqualSizesAreThoseOfMicroBatch) {
  const Case listed = make(small, {"ranks=3", "micro_batch_per_rank=2,2,2"}).cases[0];
  EXPECT_TRUE(listed.micro_batch_per_rank.empty());
  EXPECT_EQ(identity(listed), identity(make(small, {"ranks=3", "micro_batch=2"}).cases[0]));
}

TEST(Sequences, SizesThatDoNotFitAreRefused) {
  for (const auto& [sizes, other, begin, says] :
      {std::tuple{"1,2", "seed=1", "--set: micro_batch_per_rank", "2 values for 4 ranks"},
          {"1,2,3,4", "micro_batch=2", "--set: micro_batch", "keep one"},
          {"1,2,3,4", "micro_batches=6", "", "multiple of 4"},
          {"1,2,3,0", "seed=1", "", "out of range"},
          {"1,2,3,4", "schedule=zb1", "", "zb1 visit all ranks"},
          {"3", "seed=1", "", "takes a list"},
          {"999999,999999,999999,1", "micro_batches=4000", "", "sequences per step"}})
    EXPECT_THAT(refusal(small, {std::string("micro_batch_per_rank=") + sizes, other}),
        AllOf(StartsWith(begin), HasSubstr(says)));
}
}  // namespace
}  // namespace minitaw::deck
