// SPDX-License-Identifier: BSD-3-Clause
// Ranks of a job say how far they have come: rank 0 says who is late, and the others say nothing.
#include <gmock/gmock.h>
#include "harness/cases.hpp"
#include "instruments/stalls/stalls.hpp"

namespace minitaw::stalls {
namespace {
State state_of(std::int64_t cases, const std::string& unexplained = "") {
  State state{.cases = cases};
  unexplained.copy(state.unexplained.data(), state.unexplained.size() - 1);
  return state;
}

std::string said(const std::vector<State>& states) {
  return sentence(states, topology::Groups({2, 1, 1}));
}

const State silent, in_time = state_of(3), late = state_of(2),
                    slow = state_of(3, "has not finished F s0 m0");

TEST(Sentence, NamesWhoeverDoesNotAnswer) {
  EXPECT_EQ(said({in_time, slow, silent, late}), "rank 2 (node 1) does not answer");
  EXPECT_EQ(said({in_time, silent, in_time, silent}), "ranks 1,3 (nodes 0,2) do not answer");
  EXPECT_EQ(said({silent, silent, in_time, in_time}), "ranks 0-1 (node 0) do not answer");
}

TEST(Sentence, NamesWhoDoesNotGetOnWithAnActionOfItsOwn) {
  EXPECT_EQ(said({late, slow, in_time, in_time}), "rank 1 (node 0) has not finished F s0 m0");
  EXPECT_EQ(
      said({in_time, in_time, slow, slow}), "rank 2 (node 1) has not finished F s0 m0; 1 more");
}

TEST(Sentence, NamesWhoHasNotComeToTheCase) {
  EXPECT_EQ(
      said({late, in_time, in_time, in_time}), "rank 0 (node 0) has not come as far as the others");
  EXPECT_EQ(said({in_time, in_time, late, late}),
      "ranks 2-3 (nodes 1-2) have not come as far as the others");
}

TEST(Sentence, IsEmptyWhereEachRankWaitsForAnother) {
  EXPECT_EQ(said({in_time, in_time, in_time, in_time}), "");
}

class Gathering : public ::testing::Test {
protected:
  /// All live to the end: MPI gives a communicator that is free, with messages on their way, to the
  /// next one.
  static void TearDownTestSuite() { all_.clear(); }

  /// Rank 1 asks. Returns what each rank knows a second later, and keeps what it has printed.
  std::optional<std::string> explained() {
    testing::internal::CaptureStderr();
    MPI_Barrier(MPI_COMM_WORLD);
    std::optional<std::string> found;
    if (rank_ == 1)
      found = stalls_.explain_stall("rank 1: a thing has not ended");
    std::this_thread::sleep_for(std::chrono::seconds(1));
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank_ != 1)
      found = stalls_.explain_stall(fmt::format("rank {}: too late", rank_));
    MPI_Barrier(MPI_COMM_WORLD);
    printed_ = testing::internal::GetCapturedStderr();
    return found;
  }

  static inline std::vector<std::unique_ptr<Stalls>> all_;

  int rank_ = comm::mpi::rank_in(MPI_COMM_WORLD);
  Stalls& stalls_ =
      *all_.emplace_back(std::make_unique<Stalls>(MPI_COMM_WORLD, topology::Groups({2, 1})));
  std::string printed_;
};

TEST_F(Gathering, IsDoneOnceAndRankZeroKnowsTheCause) {
  for (int c = 0; c < (rank_ == 2 ? 1 : 2); ++c)
    stalls_.between_cases();
  const std::string cause = "rank 2 (node 1) has not come as far as the others";
  EXPECT_EQ(explained(), rank_ == 0 ? cause : "");
  EXPECT_EQ(printed_,
      rank_ > 0 ? ""
                : fmt::format("minitaw: {}\nminitaw: rank 0: between steps\n"
                              "minitaw: rank 1: a thing has not ended\n"
                              "minitaw: rank 2: between steps\n",
                      cause));
}

TEST_F(Gathering, OfRanksThatAreAllAsFarHasNoCause) {
  EXPECT_EQ(explained(), "");
  EXPECT_EQ(printed_.starts_with("minitaw: every rank waits for others\n"), rank_ == 0) << printed_;
}

/// Ranks 0 and 2 wait in a step for rank 1, which asks before it begins.
TEST_F(Gathering, HasTheLanesOfRanksInAStep) {
  const Case c = harness::tests::small_case("ddp", topology::Groups({2, 1}), 1, 1);
  const auto runtime = harness::tests::runtime_by_mpi(c);
  stalls_.begin_case({c, *runtime, MPI_COMM_WORLD});
  runtime->prepare();
  testing::internal::CaptureStderr();
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank_ == 1) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    EXPECT_EQ(stalls_.explain_stall("rank 1: sleeps"), "");
    std::this_thread::sleep_for(std::chrono::seconds(1));  // others may not have answered yet
  }
  (void)runtime->step();
  EXPECT_EQ(stalls_.explain_stall(""), "");
  stalls_.end_case();
  const std::string printed = testing::internal::GetCapturedStderr();
  if (rank_ == 0) {
    EXPECT_THAT(printed,
        testing::MatchesRegex("minitaw: every rank waits for others\n"
                              "minitaw: rank 0: in a step\n  compute before .*"
                              "\n  [a-z_]+ in .* all_reduce .*\n"
                              "minitaw: rank 1: sleeps\n"
                              "minitaw: rank 2: in a step\n  compute before .*\n"));
  }
}
}  // namespace
}  // namespace minitaw::stalls
