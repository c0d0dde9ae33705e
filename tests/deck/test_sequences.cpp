// SPDX-License-Identifier: BSD-3-Clause
#include "deck/deck.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include "helpers.hpp"

namespace minitaw::deck {
namespace {
using testing::ElementsAre, testing::HasSubstr;

TEST(Sequences, AreThoseOfAllMicroBatches) {
  const Case c = make(small, {"ranks=2", "micro_batch=3", "micro_batches=8"}).cases[0];
  EXPECT_EQ(std::tuple(sequences_of_step(c), tokens_of_step(c)), std::tuple(24, 24 * 128));
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
}  // namespace
}  // namespace minitaw::deck
