#include "comm/mpi/wait.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace minitaw::comm::mpi {
namespace {

TEST(Patience, SpinsOnlyWhereCoresArePlentiful) {
  EXPECT_GT(patience(12, 12).spins, 100 * patience(11, 12).spins);
  EXPECT_LE(patience(2, 12).longest_sleep, std::chrono::milliseconds(1)) << "cancel() promises a millisecond";
  EXPECT_LE(patience(12, 12).longest_sleep, std::chrono::milliseconds(1));
}

TEST(Waiter, AsksUntilItIsDone) {
  const std::atomic<bool> cancelled{false};
  int asked = 0;
  Waiter({.spins = 2, .yields = 2}, cancelled).until([&] { return ++asked == 9; });
  EXPECT_EQ(asked, 9);
}

TEST(Waiter, FinishesWhatIsDoneEvenWhenCancelled) {
  const std::atomic<bool> cancelled{true};
  EXPECT_NO_THROW(Waiter({}, cancelled).until([] { return true; }));
  EXPECT_THROW(Waiter({}, cancelled).until([] { return false; }), Cancelled);
}

TEST(Waiter, IsEndedFromAnotherThread) {
  std::atomic<bool> cancelled{false};
  std::jthread watchdog([&] { cancelled = true; });
  EXPECT_THROW(Waiter({}, cancelled).until([] { return false; }), Cancelled);
}

}  // namespace
}  // namespace minitaw::comm::mpi
