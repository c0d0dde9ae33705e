#include "engine/timed_steps.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "cases.hpp"
#include "comm/mpi/size.hpp"
#include "engine/clock_offset.hpp"
#include "engine/session.hpp"

namespace minitaw::engine {
namespace {

int world_rank() { return comm::mpi::rank_in(MPI_COMM_WORLD); }

TEST(ClockOffset, FindsClocksThatAreSetApart) {
  const double apart = 1000.0 * world_rank();
  const double before = MPI_Wtime();
  const double offset = offset_by_messages(MPI_COMM_WORLD, [&] { return host_seconds() + apart; });
  EXPECT_NEAR(offset, -apart, MPI_Wtime() - before) << "no round took longer than all of them";
}

TEST(ClockOffset, IsNoneOnOneNode) { EXPECT_EQ(clock_offset(MPI_COMM_WORLD), 0); }

/// A session of all ranks that plays steps.
class Steps : public ::testing::Test {
protected:
  Steps() : rank_(world_rank()) {
    int ranks = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    session_ = std::make_unique<Session>(tests::small_case("ddp", topology::Groups({ranks}), 2, 1), rank_,
                                         tests::by_mpi, SessionOptions());
  }

  /// Plays a step that rank `late` begins `seconds` after the others, and adds it.
  std::vector<Span> play(TimedSteps& steps, int late = -1, double seconds = 0) {
    session_->prepare();
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank_ == late) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    const StepTime time = session_->play();
    steps.add(session_->player(), time);
    return session_->player().spans();
  }

  int rank_;
  std::unique_ptr<Session> session_;
};

TEST_F(Steps, OfAllOfThemTheLowerMedianIsChosen) {
  TimedSteps steps(session_->program(), 4);
  for (int s = 0; s < 4; ++s) (void)play(steps);
  EXPECT_EQ(steps.count(), 4);
  EXPECT_EQ(steps.choose({5, 3, 9, 4}), 3);
  EXPECT_EQ(steps.choose({5, 3, 9}), 0);
  EXPECT_EQ(steps.choose({2}), 0);
}

TEST_F(Steps, WhereTooMuchWouldBeKeptTheLastIs) {
  const std::size_t actions = session_->program().ranks[0].actions.size();
  TimedSteps all(session_->program(), 3, 3 * actions), last(session_->program(), 3, 3 * actions - 1);
  std::vector<std::vector<Span>> played;
  for (int s = 0; s < 3; ++s) {
    played.push_back(play(all));
    last.add(session_->player(), {});
  }
  EXPECT_EQ(last.choose({1, 2, 3}), 2);
  EXPECT_EQ(all.choose({1, 2, 3}), 1);
  const StepSpans first = all.gather(0, MPI_COMM_WORLD), third = last.gather(2, MPI_COMM_WORLD);
  if (rank_ != 0) return;
  // Alike but for the moment at which the first of all ranks began.
  for (std::size_t i = 0; i < actions; ++i) {
    EXPECT_NEAR(first[0][i].end - first[0][i].begin, played[0][i].end - played[0][i].begin, 1e-6);
    EXPECT_NEAR(third[0][i].end - third[0][i].begin, played[2][i].end - played[2][i].begin, 1e-6);
  }
}

TEST_F(Steps, AreGatheredOnOneClock) {
  constexpr double seconds = 0.25;
  TimedSteps steps(session_->program(), 1);
  const int late = static_cast<int>(session_->program().ranks.size()) - 1;
  (void)play(steps, late, seconds);
  const StepSpans spans = steps.gather(0, MPI_COMM_WORLD);
  if (rank_ != 0) {
    EXPECT_TRUE(spans.empty());
    return;
  }
  ASSERT_EQ(spans.size(), session_->program().ranks.size());
  for (std::size_t r = 0; r < spans.size(); ++r) {
    ASSERT_EQ(spans[r].size(), session_->program().ranks[r].actions.size());
    for (const Span& s : spans[r]) EXPECT_TRUE(0 <= s.ready && s.ready <= s.begin && s.begin <= s.end);
  }
  if (late == 0) return;
  EXPECT_GE(spans[late][0].begin, 0.9 * seconds) << "later than the first rank's";
  const StepAccount found = account(session_->program(), spans);
  EXPECT_GE(found.length, 0.9 * seconds);
  for (const RankAccount& rank : found.ranks)
    EXPECT_NEAR(rank.compute + rank.exposed_total() + rank.idle, found.length, 1e-9);
}

}  // namespace
}  // namespace minitaw::engine
