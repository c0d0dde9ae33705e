#include "comm/mpi/wait.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace minitaw::comm::mpi {
namespace {

TEST(WaitPolicy, SpinsOnlyWhereCoresArePlentiful) {
  EXPECT_GT(wait_policy(12, 12).spins, 100 * wait_policy(11, 12).spins);
  EXPECT_LE(wait_policy(2, 12).longest_sleep, std::chrono::milliseconds(1))
      << "cancel() promises a millisecond";
  EXPECT_LE(wait_policy(12, 12).longest_sleep, std::chrono::milliseconds(1));
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
  const WaitPolicy asleep{
      .shortest_sleep = std::chrono::hours(1), .longest_sleep = std::chrono::hours(1), .low_latency = true};
  // Sleeps that doubled would last for days.
  const WaitPolicy short_sleeps{.shortest_sleep = std::chrono::microseconds(1),
                                .longest_sleep = std::chrono::hours(1),
                                .low_latency = true};
  LowLatency low_latency;
  int asked = 0;
  Waiter(short_sleeps, cancelled, &low_latency).until([&] { return ++asked == 40; });
  low_latency.set(false);
  EXPECT_FALSE(low_latency.on());
  std::atomic<bool> asking{false};
  std::jthread compute([&] {
    asking.wait(false);
    low_latency.set(true);  // it may sleep by now, for an hour
  });
  Waiter(asleep, cancelled, &low_latency).until([&] {
    asking = true;
    asking.notify_one();
    return low_latency.on();
  });
}

TEST(Waiter, AsksForAWhileBeforeItSleeps) {
  const std::atomic<bool> cancelled{false};
  const WaitPolicy eager{.eager = std::chrono::hours(1), .shortest_sleep = std::chrono::hours(1)};
  int asked = 0;
  Waiter(eager, cancelled).until([&] { return ++asked == 1000; });
  EXPECT_EQ(asked, 1000);
}

TEST(Waiter, SparesSharedCoresEvenThen) {
  const std::atomic<bool> cancelled{false};
  LowLatency low_latency;
  const WaitPolicy policy{.shortest_sleep = std::chrono::milliseconds(5),
                          .longest_sleep = std::chrono::milliseconds(5)};
  const auto begin = std::chrono::steady_clock::now();
  int asked = 0;
  Waiter(policy, cancelled, &low_latency).until([&] { return ++asked == 4; });
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 3 * policy.shortest_sleep);
}

}  // namespace
}  // namespace minitaw::comm::mpi
