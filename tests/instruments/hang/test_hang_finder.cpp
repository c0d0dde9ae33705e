// SPDX-License-Identifier: BSD-3-Clause
// Ranks of a job say how far they have come: rank 0 says who is late, and the others say nothing.
#include <gtest/gtest.h>
#include "harness/cases.hpp"
#include "instruments/hang/hang_finder.hpp"

namespace minitaw::hang {
namespace {
class HangFinding : public ::testing::Test {
protected:
  /// Executes so many steps of a case that this rank has for itself.
  void execute(int steps) {
    const Case c = harness::tests::small_case("serial", topology::Groups({1}), 1, 1);
    engine::Runtime runtime(c, 0, engine::StepOptions{});
    runtime.connect(engine::make_transport(
        "mpi", {MPI_COMM_SELF, runtime.program(), runtime.arena().staging(), {}, true}));
    const auto watched = finder_.listen({c, runtime, MPI_COMM_SELF});
    for (int s = 0; s < steps; ++s) {
      runtime.prepare();
      (void)runtime.step();
    }
  }

  /// Rank 2 asks. Returns what this rank says.
  std::string said() {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank_ == 2)
      (void)finder_.explain_stall();
    MPI_Barrier(MPI_COMM_WORLD);
    return finder_.explain_stall();
  }

  void expect(const std::string& sentence) { EXPECT_EQ(said(), rank_ == 0 ? sentence : ""); }

  /// All live to the end: MPI gives a communicator that is free, with messages on their way, to the
  /// next one.
  static void TearDownTestSuite() { finders_.clear(); }

  static inline std::vector<std::unique_ptr<HangFinder>> finders_;

  int rank_ = comm::mpi::rank_in(MPI_COMM_WORLD);
  HangFinder& finder_ = *finders_.emplace_back(
      std::make_unique<HangFinder>(MPI_COMM_WORLD, topology::Groups({2, 1})));
};

TEST_F(HangFinding, NamesWhoHasExecutedFewerSteps) {
  finder_.between_cases();
  execute(rank_ == 1 ? 1 : 2);
  expect("rank 0 waits for rank 1; rank 1 (node 0) has not come as far as the others");
}

TEST_F(HangFinding, NamesWhoHasNotBegunTheCase) {
  for (int c = 0; c < 3; ++c) {
    if (c < 2 || rank_ != 2)
      finder_.between_cases();
    execute(rank_);
  }
  expect("rank 0 waits for rank 2; rank 2 (node 1) has not come as far as the others");
}

TEST_F(HangFinding, NoRankIsLateWhereTheLastCaseHadFewerSteps) {
  execute(2 - rank_);
  finder_.between_cases();
  expect("");
}

/// Rank 1 asks before it begins the step in which the others wait for it.
TEST_F(HangFinding, NamesTheActionThatIsWaitedFor) {
  const Case c = harness::tests::small_case("ddp", topology::Groups({2, 1}), 1, 1);
  const auto runtime = harness::tests::runtime_by_mpi(c);
  const auto watched = finder_.listen({c, *runtime, MPI_COMM_WORLD});
  runtime->prepare();
  if (rank_ == 1) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    EXPECT_EQ(finder_.explain_stall(), "");
  }
  (void)runtime->step();
  EXPECT_EQ(finder_.explain_stall(),
      rank_ == 0 ? "rank 0 waits for rank 1's all_reduce of G0; rank 1 (node 0) has not come as "
                   "far as the others"
                 : "");
}
}  // namespace
}  // namespace minitaw::hang
