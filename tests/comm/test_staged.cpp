// SPDX-License-Identifier: BSD-3-Clause
// What only the transport over MPI has: slots, their number, and pieces that go round them; how it waits.
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "comm/wait.hpp"
#include "transports.hpp"

namespace minitaw::comm::test {
namespace {
/// Slots smaller than any message, in a number that no message divides.
constexpr std::size_t small_piece = 1028;

World world_of_small(std::size_t slots) {
  return {Kind::staged, build<Staged>(program(ranks_of_job()), slots, small_piece)};
}

/// Messages and collectives that go round the slots many times.
TEST(Staged, GoesRoundItsSlots) {
  World world = world_of_small(18);
  for (const std::size_t bytes : {1, 1028, 1029, 20'000, 100'001}) {
    auto out = pattern(world.rank, world.next, Payload::weights, bytes);
    std::vector<std::byte> in(bytes, std::byte{0x77});
    world.exchange({{true, world.next, Payload::weights, out.data(), bytes},
        {false, world.previous, Payload::weights, in.data(), bytes}});
    EXPECT_EQ(in, pattern(world.previous, world.rank, Payload::weights, bytes));
    EXPECT_EQ(out, pattern(world.rank, world.next, Payload::weights, bytes));
  }
  for (const Call kind : collectives)
    for (const std::int64_t elements : {257, 9'001, 30'011})
      EXPECT_EQ(wrong_after(world, Lane::inputs_group, kind, 0, static_cast<int>(elements) % world.ranks,
                    Dtype::fp32, elements),
          0)
          << name_of(kind) << " of " << elements;
}

TEST(Staged, RefusesTooFewSlots) {
  LazyCopier copier;
  std::vector<std::byte> pinned(16 * small_piece - 1);
  EXPECT_THROW((void)mpi::through_slots(pinned, small_piece, copier), LogicError);
}

TEST(WaitPolicy, SpinsOnlyWhereCoresArePlentiful) {
  EXPECT_GT(wait_policy(12, 12).spins, 100 * wait_policy(11, 12).spins);
  for (const int cores : {2, 12})
    EXPECT_LE(wait_policy(cores, 12).longest_sleep, std::chrono::milliseconds(1))
        << "cancel() promises a millisecond";
}

TEST(Backoff, YieldsForAWhileBeforeItSleeps) {
  Backoff backoff({.eager = std::chrono::hours(1), .shortest_sleep = std::chrono::hours(1)});
  for (int k = 0; k < 1000; ++k) backoff.once();
}

TEST(Backoff, EndsItsSleepWhenComputeWaits) {
  // Sleeps that doubled would last for days.
  const WaitPolicy growing{
      .shortest_sleep = std::chrono::microseconds(1), .longest_sleep = std::chrono::hours(1)};
  LowLatency low_latency;
  Backoff backoff(growing, &low_latency);
  for (int k = 0; k < 40; ++k) backoff.once();
  low_latency.set(false);
  EXPECT_FALSE(low_latency.on());
  std::atomic<bool> asleep{false};
  const std::jthread compute([&] {
    asleep.wait(false);
    low_latency.set(true);
  });
  const WaitPolicy long_sleeps{.spins = 0,
      .yields = 0,
      .shortest_sleep = std::chrono::hours(1),
      .longest_sleep = std::chrono::hours(1)};
  for (Backoff pause(long_sleeps, &low_latency); !low_latency.on(); pause.once()) {
    asleep = true;
    asleep.notify_one();
  }
}

TEST(Backoff, SparesSharedCoresWhileTheRankComputes) {
  const WaitPolicy policy{
      .spins = 0, .yields = 0, .longest_sleep = std::chrono::milliseconds(5), .spare_compute = true};
  LowLatency low_latency;
  low_latency.set(false);
  const auto begin = std::chrono::steady_clock::now();
  Backoff backoff(policy, &low_latency);
  for (int k = 0; k < 3; ++k) backoff.once();
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 3 * policy.longest_sleep);
}
}  // namespace
}  // namespace minitaw::comm::test
