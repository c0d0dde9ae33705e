// SPDX-License-Identifier: BSD-3-Clause
// Three ranks of a job say how far they have come: rank 0 says who is late, the others say nothing.
#include <cstring>
#include <gmock/gmock.h>
#include "comm/mpi/sends.hpp"
#include "harness/cases.hpp"
#include "instruments/stalls/stalls.hpp"

namespace minitaw::stalls {
namespace {
/// Of four ranks on nodes of 2, 1 and 1: a rank is s(ilent), i(n time), l(ate) or slow (F).
TEST(Sentence, NamesTheRanksWhoseDelayNothingExplains) {
  for (const auto& [ranks, expected] :
      std::map<std::string, std::string>{{"iFsl", "rank 2 (node 1) does not answer"},
          {"isis", "ranks 1,3 (nodes 0,2) do not answer"},
          {"ssii", "ranks 0-1 (node 0) do not answer"},
          {"lFii", "rank 1 (node 0) is at F s0 m0"},
          {"iiFF", "rank 2 (node 1) is at F s0 m0; 1 more"},
          {"liii", "rank 0 (node 0) has not come as far as the others"},
          {"iill", "ranks 2-3 (nodes 1-2) have not come as far as the others"},
          {"iiii", ""}}) {
    std::vector<State> states;
    for (const char rank : ranks) {
      states.push_back({.cases = rank == 's' ? -1 : rank == 'l' ? 2 : 3});
      if (rank == 'F')
        std::strcpy(states.back().unexplained.data(), "is at F s0 m0");
    }
    EXPECT_EQ(sentence(states, topology::Groups({2, 1, 1})), expected);
  }
}

class Stalling : public ::testing::Test {
protected:
  /// All live to the end: MPI gives a communicator that is free, with messages on their way, to the
  /// next one.
  static void TearDownTestSuite() { all_.clear(); }

  static void wait() { std::this_thread::sleep_for(std::chrono::seconds(1)); }

  static inline std::vector<std::unique_ptr<Stalls>> all_;

  int rank_ = comm::mpi::rank_in(MPI_COMM_WORLD);

  struct Signals {
    std::atomic<int> caught = 0, told = 0, rank = -1, number = 0;
  };

  /// Of one test; the thread may look at it later.
  std::shared_ptr<Signals> signals_ = std::make_shared<Signals>();
  Stalls& stalls_ = *all_.emplace_back(std::make_unique<Stalls>(MPI_COMM_WORLD,
      topology::Groups({2, 1}),
      Stalls::Signals{[all = signals_] { return all->caught.load(); },
          [all = signals_](int rank, int number) {
            ++all->told;
            all->rank = rank;
            all->number = number;
          }}));
};

/// During a step, whose bytes stay those of the case.
TEST_F(Stalling, ASignalIsPassedOnToRankZeroOnce) {
  const comm::mpi::StepSends step;
  if (rank_ == 2)
    signals_->caught = 12;
  wait();
  MPI_Barrier(MPI_COMM_WORLD);
  EXPECT_EQ(signals_->told, rank_ == 0 ? 1 : 0);
  EXPECT_EQ(signals_->rank, rank_ == 0 ? 2 : -1);
  EXPECT_EQ(signals_->number, rank_ == 0 ? 12 : 0);
  EXPECT_EQ(comm::mpi::take_uncounted(), "");
}

/// Rank 1 asks, the others when all have been told.
TEST_F(Stalling, IsExplainedOnceAndRankZeroKnowsTheCause) {
  for (int c = 0; c < (rank_ == 2 ? 1 : 2); ++c)
    stalls_.between_cases();
  testing::internal::CaptureStderr();
  MPI_Barrier(MPI_COMM_WORLD);
  std::optional<std::string> found;
  if (rank_ == 1)
    found = stalls_.explain_stall("rank 1: a thing has not ended");
  wait();
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank_ != 1)
    found = stalls_.explain_stall("too late");
  MPI_Barrier(MPI_COMM_WORLD);
  const std::string printed = testing::internal::GetCapturedStderr();
  EXPECT_EQ(found, rank_ == 0 ? "rank 2 (node 1) has not come as far as the others" : "");
  EXPECT_EQ(printed,
      rank_ > 0 ? ""
                : "minitaw: " + *found +
                      "\nminitaw: rank 0: between steps\nminitaw: rank 1: a thing has not ended\n"
                      "minitaw: rank 2: between steps\n");
}

/// Ranks 0 and 2 wait in a step for rank 1, which asks before it begins.
TEST_F(Stalling, HasTheLanesOfRanksInAStep) {
  const Case c = harness::tests::small_case("ddp", topology::Groups({2, 1}), 1, 1);
  const auto runtime = harness::tests::runtime_by_mpi(c);
  stalls_.begin_case({c, *runtime, MPI_COMM_WORLD});
  runtime->prepare();
  testing::internal::CaptureStderr();
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank_ == 1) {
    wait();
    EXPECT_EQ(stalls_.explain_stall("rank 1: sleeps"), "");
    wait();  // others may not have answered yet
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
