// What only the transport over MPI has: slots, their number, and pieces that go round them; how it waits.
#include <gtest/gtest.h>

#include <array>

#include "base/error.hpp"
#include "comm/mpi/wait.hpp"
#include "transports.hpp"

namespace minitaw::comm::test {
namespace {

/// Slots smaller than any message, in a number that no message divides.
constexpr std::size_t small_piece = 1028;

World world_of_small(std::size_t slots) {
  return {Kind::staged, build<Staged<LazyCopier>>(program(ranks_of_job()), slots, small_piece)};
}

/// From one message with 16 slots to 12 with one each.
TEST(StagedExchange, SharesSlotsAmongManyMessages) {
  World world = world_of_small(16);
  for (const int kinds : {1, 2, 3, 4, 5, 6})
    for (const std::size_t bytes : {1, 1028, 1029, 20'000, 100'001}) {
      const auto sent = [&](int from, int to, int k) {
        return pattern(from, to, static_cast<Payload>(k + 1), bytes + k);
      };
      std::vector<Message> batch;
      std::vector<std::vector<std::byte>> out, in;
      for (int k = 0; k < kinds; ++k) {
        out.push_back(sent(world.rank, world.next, k));
        in.emplace_back(bytes + k, std::byte{0x77});
        batch.push_back({true, world.next, static_cast<Payload>(k + 1), out[k].data(), out[k].size()});
        batch.push_back({false, world.previous, static_cast<Payload>(k + 1), in[k].data(), in[k].size()});
      }
      world.transport.execute(Lane::operands_in, batch);
      for (int k = 0; k < kinds; ++k) {
        EXPECT_EQ(in[k], sent(world.previous, world.rank, k)) << kinds << " kinds, number " << k;
        EXPECT_EQ(out[k], sent(world.rank, world.next, k));
      }
    }
}

/// Rank 0 starts two messages together. Rank 1 takes the first only when rank 2 has had the second.
TEST(StagedExchange, LetsNoMessageWaitForAnother) {
  if (ranks_of_job() < 3) GTEST_SKIP() << "needs three ranks";
  World world = world_of_small(16);
  Values a = contribution_of(1, Scalar::fp32, 12'500), b = contribution_of(2, Scalar::fp32, 12'500);
  const Values first = a, second = b;
  const auto exchange = [&](auto... messages) {
    world.transport.execute(Lane::operands, std::array{messages...});
  };
  if (world.rank == 0) exchange(a.message(true, 1), b.message(true, 2));
  if (world.rank == 1) {
    exchange(a.message(false, 2));
    EXPECT_EQ(a, second);
    exchange(b.message(false, 0));
    EXPECT_EQ(b, first);
  }
  if (world.rank == 2) {
    exchange(a.message(false, 0));
    exchange(a.message(true, 1));
  }
}

TEST(StagedExchange, RefusesMoreMessagesThanSlots) {
  World world = world_of_small(16);
  Values data(Scalar::fp32, 3);
  std::vector<Message> batch;
  for (int peer = 0; peer < 17; ++peer) batch.push_back(data.message(true, peer));
  EXPECT_THROW(world.transport.execute(Lane::operands, batch), LogicError);
  LazyCopier copier;
  std::vector<std::byte> pinned(16 * small_piece - 1);
  EXPECT_THROW((void)mpi::through_slots(pinned, small_piece, copier), LogicError);
}

/// Collectives whose messages go round the slots many times.
TEST(StagedCollectives, GoRoundTheirSlots) {
  World world = world_of_small(18);
  for (const Call kind : collectives)
    for (const std::int64_t elements : {257, 9'001, 30'011})
      EXPECT_EQ(wrong_after(world, Lane::operands, kind, 0, static_cast<int>(elements) % world.ranks,
                            Scalar::fp32, elements),
                0)
          << name_of(kind) << " of " << elements;
}

using mpi::WaitPolicy;

TEST(WaitPolicy, SpinsOnlyWhereCoresArePlentiful) {
  EXPECT_GT(mpi::wait_policy(12, 12).spins, 100 * mpi::wait_policy(11, 12).spins);
  for (const int cores : {2, 12})
    EXPECT_LE(mpi::wait_policy(cores, 12).longest_sleep, std::chrono::milliseconds(1))
        << "cancel() promises a millisecond";
}

TEST(WaitUntil, AsksUntilItIsDoneOrCancelled) {
  std::atomic<bool> cancelled{false};
  int asked = 0;
  mpi::wait_until({.spins = 2, .yields = 2}, cancelled, [&] { return ++asked == 9; });
  EXPECT_EQ(asked, 9);
  const std::jthread watchdog([&] { cancelled = true; });
  EXPECT_THROW(mpi::wait_until({}, cancelled, [] { return false; }), Cancelled);
  EXPECT_NO_THROW(mpi::wait_until({}, cancelled, [] { return true; })) << "what is done is done";
}

TEST(WaitUntil, AsksForAWhileBeforeItSleeps) {
  const std::atomic<bool> cancelled{false};
  int asked = 0;
  mpi::wait_until({.eager = std::chrono::hours(1), .shortest_sleep = std::chrono::hours(1)}, cancelled,
                  [&] { return ++asked == 1000; });
  EXPECT_EQ(asked, 1000);
}

TEST(Backoff, EndsItsSleepWhenComputeWaits) {
  // Sleeps that doubled would last for days.
  const WaitPolicy growing{.shortest_sleep = std::chrono::microseconds(1),
                           .longest_sleep = std::chrono::hours(1)};
  mpi::LowLatency low_latency;
  mpi::Backoff backoff(growing, &low_latency);
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
  for (mpi::Backoff pause(long_sleeps, &low_latency); !low_latency.on(); pause.once()) {
    asleep = true;
    asleep.notify_one();
  }
}

TEST(Backoff, SparesSharedCoresWhileTheRankComputes) {
  const WaitPolicy policy{
      .spins = 0, .yields = 0, .longest_sleep = std::chrono::milliseconds(5), .spare_compute = true};
  mpi::LowLatency low_latency;
  low_latency.set(false);
  const auto begin = std::chrono::steady_clock::now();
  mpi::Backoff backoff(policy, &low_latency);
  for (int k = 0; k < 3; ++k) backoff.once();
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 3 * policy.longest_sleep);
}

}  // namespace
}  // namespace minitaw::comm::test
