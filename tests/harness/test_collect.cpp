// SPDX-License-Identifier: BSD-3-Clause
// Times of all ranks: on one clock, of the right steps, and no more than the step.
#include "harness/collect.hpp"
#include "harness/job_test.hpp"

namespace minitaw::harness {
namespace {
using engine::Span;

// Rank 0's clock stands at 100, the others' advance while they wait for it: by 6, 5, 4, ... 1, 2,
// 3, 4 s.
TEST(ClockOffset, IsTakenInTheMiddleOfTheFastestRound) {
  const int rank = comm::mpi::rank_in(MPI_COMM_WORLD);
  double time = 0;
  int asked = 0;
  const double offset = offset_by_messages(MPI_COMM_WORLD, [&] {
    if (rank == 0)
      return 100.0;
    if (asked++ % 2 == 1)
      time += 1 + std::abs(asked / 2 - 6);
    return time;
  });
  constexpr double before = 6 + 5 + 4 + 3 + 2;
  EXPECT_EQ(offset, rank == 0 ? 0 : 100 - (before + 0.5));
  EXPECT_EQ(clock_offset(MPI_COMM_WORLD), 0) << "a node has one clock";
}

/// A runtime of all ranks that executes steps.
class Steps : public tests::Job {
protected:
  /// Executes a step that the last rank begins `seconds` after the others, and adds it.
  std::vector<Span> execute(TimedSteps& steps, double late = 0) {
    runtime_->prepare();
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank_ == ranks_ - 1)
      std::this_thread::sleep_for(std::chrono::duration<double>(late));
    steps.add(runtime_->executor(), runtime_->step());
    return runtime_->executor().spans();
  }

  /// But for the moment at which the first of all ranks began.
  static void expect_alike(const std::vector<Span>& gathered, const std::vector<Span>& executed) {
    for (std::size_t i = 0; i < executed.size(); ++i)
      EXPECT_NEAR(gathered[i].end - gathered[i].begin, executed[i].end - executed[i].begin, 1e-6);
  }

  std::unique_ptr<engine::Runtime> runtime_ =
      tests::runtime_by_mpi(tests::small_case("ddp", topology::Groups({ranks_}), 2, 1));
};

TEST_F(Steps, OnlyTheLastIsKeptWhereAllAreTooMany) {
  const std::size_t actions = runtime_->program().ranks[0].actions.size();
  EXPECT_TRUE(TimedSteps(runtime_->program(), 3, 3 * actions).keeps_all());
  TimedSteps last(runtime_->program(), 3, 3 * actions - 1);
  EXPECT_FALSE(last.keeps_all());
  execute(last);
  const std::vector<Span> executed = execute(last);
  const trace::StepSpans spans = last.gather(1, MPI_COMM_WORLD);
  if (rank_ == 0)
    expect_alike(spans[0], executed);
}

TEST_F(Steps, AreGatheredOnOneClock) {
  constexpr double late = 0.25;
  TimedSteps steps(runtime_->program(), 3);
  (void)execute(steps);
  const std::vector<Span> executed = execute(steps, late);
  (void)execute(steps);
  const trace::StepSpans spans = steps.gather(1, MPI_COMM_WORLD);
  if (rank_ != 0)
    return;
  expect_alike(spans[0], executed);
  EXPECT_GE(spans.back()[0].begin, ranks_ == 1 ? 0 : 0.9 * late) << "later than the first rank's";
}

// The slowest ranks of the steps took 5, 3, 4 and 6 s, the fastest ones 0.1, 0.2, 0.05 and 0.3 s.
TEST_F(Steps, AreCollectedWithTheirRanks) {
  TimedSteps steps(runtime_->program(), 4);
  const auto seconds = [&](int step, int rank) {
    return rank == ranks_ - 1 ? std::array{5.0, 3.0, 4.0, 6.0}[step]
                              : std::array{0.1, 0.2, 0.05, 0.3}[step] * (rank + 1);
  };
  for (int step = 0; step < 4; ++step) {
    runtime_->prepare();
    (void)runtime_->step();
    steps.add(runtime_->executor(), seconds(step, rank_));
  }
  for (const int executed : {4, 5}) {  // the second is not true
    CaseResult result;
    topology::MemoryTaken taken;
    taken.process_peak = 1000U + static_cast<unsigned>(rank_);
    for (const auto& [kind, name] : schedule::table_of<schedule::Memory>)
      taken.kokkos[engine::label_of(kind)] = runtime_->footprint().by_kind[index_of(kind)];
    collect(*runtime_, steps, executed, taken, false, MPI_COMM_WORLD, result);
    if (rank_ != 0)
      continue;
    const bool adds_up = executed == 4 || ranks_ == 1;
    EXPECT_EQ(result.status, adds_up ? Status::ok : Status::wrong) << result.reason;
    if (!adds_up) {
      EXPECT_THAT(result.reason, test::Says({"rank 0 sent ", "in 5 steps where"}));
    }
    EXPECT_EQ(result.accounted_step, 2) << "the lower median of the slowest ranks";
    for (int rank = 0; rank < ranks_; ++rank) {
      for (int step = 0; step < 4; ++step)
        EXPECT_EQ(result.seconds[step][rank], seconds(step, rank));
      EXPECT_EQ(result.memory.at(rank).process_peak, 1000U + static_cast<unsigned>(rank));
    }
  }
}
}  // namespace
}  // namespace minitaw::harness
