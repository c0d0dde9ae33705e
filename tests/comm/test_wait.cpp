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

TEST(Waiter, HurriesWhileItIsWaitedFor) {
  const std::atomic<bool> cancelled{false};
  const Patience asleep{
      .shortest_sleep = std::chrono::hours(1), .longest_sleep = std::chrono::hours(1), .hurries = true};
  // Sleeps that doubled would last for days.
  const Patience short_sleeps{.shortest_sleep = std::chrono::microseconds(1),
                              .longest_sleep = std::chrono::hours(1),
                              .hurries = true};
  Hurry hurry;
  int asked = 0;
  Waiter(short_sleeps, cancelled, &hurry).until([&] { return ++asked == 40; });
  hurry.set(false);
  EXPECT_FALSE(hurry.on());
  std::atomic<bool> asking{false};
  std::jthread compute([&] {
    asking.wait(false);
    hurry.set(true);  // it may sleep by now, for an hour
  });
  Waiter(asleep, cancelled, &hurry).until([&] {
    asking = true;
    asking.notify_one();
    return hurry.on();
  });
}

TEST(Waiter, AsksForAWhileBeforeItSleeps) {
  const std::atomic<bool> cancelled{false};
  const Patience eager{.eager = std::chrono::hours(1), .shortest_sleep = std::chrono::hours(1)};
  int asked = 0;
  Waiter(eager, cancelled).until([&] { return ++asked == 1000; });
  EXPECT_EQ(asked, 1000);
}

TEST(Waiter, SparesSharedCoresEvenThen) {
  const std::atomic<bool> cancelled{false};
  Hurry hurry;
  const Patience patience{.shortest_sleep = std::chrono::milliseconds(5),
                          .longest_sleep = std::chrono::milliseconds(5)};
  const auto begin = std::chrono::steady_clock::now();
  int asked = 0;
  Waiter(patience, cancelled, &hurry).until([&] { return ++asked == 4; });
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 3 * patience.shortest_sleep);
}

}  // namespace
}  // namespace minitaw::comm::mpi
