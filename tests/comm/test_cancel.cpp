#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <thread>

#include "world.hpp"

namespace minitaw::comm::test {
namespace {

class Cancel : public OnEvery {};
MINITAW_ON_EVERY_TRANSPORT(Cancel);

/// Ends the waits of a transport a little later, as the watchdog would.
std::jthread cancel_later(World& world) {
  return std::jthread([&world] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    world.transport.cancel();
  });
}

TEST_P(Cancel, EndsTheWaitForALostMessage) {
  World world(GetParam());
  const int next = (world.rank + 1) % world.ranks;
  std::vector<std::byte> in(100);
  const std::array batch{Message{false, next, Payload::weights, in.data(), in.size()}};
  const auto watchdog = cancel_later(world);
  EXPECT_THROW(world.transport.exchange(Lane::operands, batch), Cancelled);
  EXPECT_THROW(world.transport.exchange(Lane::operands_in, batch), Cancelled) << "it stays cancelled";
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_P(Cancel, EndsACollectiveThatTheOthersNeverJoin) {
  World world(GetParam());
  if (world.ranks > 1 && world.rank == 0) {
    Values values(Scalar::fp32, 300'000);
    const auto watchdog = cancel_later(world);
    EXPECT_THROW(world.transport.reduce(Lane::operands_in, values.collective(0, 0)), Cancelled);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  world.transport.cancel();  // an orderly end would wait for rank 0
}

TEST_P(Cancel, EndsASendThatNobodyTakes) {
  World world(GetParam());
  std::vector<std::byte> data(3'000'000, static_cast<std::byte>(world.rank));
  if (world.ranks > 1 && world.rank == 0) {
    const std::array batch{Message{true, 1, Payload::weights, data.data(), data.size()}};
    const auto watchdog = cancel_later(world);
    EXPECT_THROW(world.transport.exchange(Lane::operands, batch), Cancelled);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  // Taken after all, so that MPI can end in order: whatever had been handed to it.
  if (GetParam() == Kind::nccl) world.transport.cancel();
  else if (world.rank == 1) {
    data.resize(GetParam() == Kind::host ? data.size() : 8 * (1 << 16));
    const std::array batch{Message{false, 0, Payload::weights, data.data(), data.size()}};
    world.transport.exchange(Lane::operands, batch);
    EXPECT_EQ(data.back(), std::byte{0});
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

}  // namespace
}  // namespace minitaw::comm::test
