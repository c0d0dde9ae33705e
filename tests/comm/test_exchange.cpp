#include <gtest/gtest.h>

#include <array>

#include "base/error.hpp"
#include "comm/mpi/exchange.hpp"
#include "world.hpp"

namespace minitaw::comm::test {
namespace {

class Exchange : public OnEvery {};
MINITAW_ON_EVERY_TRANSPORT(Exchange);

TEST_P(Exchange, GoesBothWaysInOneBatch) {
  World world(GetParam());
  const int next = (world.rank + 1) % world.ranks, previous = (world.rank + world.ranks - 1) % world.ranks;
  for (const std::size_t bytes : {0, 1, 3, 4097, 1'000'003}) {
    auto right = pattern(world.rank, next, Payload::weights, bytes);
    auto left = pattern(world.rank, previous, Payload::gradient, bytes);
    std::vector<std::byte> from_left(bytes), from_right(bytes);
    // In the order of a schedule that sends first: it must not matter.
    const std::array batch{Message{true, next, Payload::weights, right.data(), bytes},
                           Message{true, previous, Payload::gradient, left.data(), bytes},
                           Message{false, previous, Payload::weights, from_left.data(), bytes},
                           Message{false, next, Payload::gradient, from_right.data(), bytes}};
    world.transport.exchange(Lane::operands_in, batch);
    EXPECT_EQ(from_left, pattern(previous, world.rank, Payload::weights, bytes));
    EXPECT_EQ(from_right, pattern(next, world.rank, Payload::gradient, bytes));
  }
}

TEST_P(Exchange, MatchesByPayloadAndInOrder) {
  World world(GetParam());
  const int next = (world.rank + 1) % world.ranks, previous = (world.rank + world.ranks - 1) % world.ranks;
  int out[4] = {100, 200, 300, 400}, in[4] = {};
  const auto message = [](bool send, int peer, Payload payload, int& value) {
    return Message{send, peer, payload, reinterpret_cast<std::byte*>(&value), sizeof(value)};
  };
  const std::array batch{message(true, next, Payload::activation, out[0]),
                         message(true, next, Payload::weights, out[1]),
                         message(true, next, Payload::activation, out[2]),
                         message(true, next, Payload::ends, out[3]),
                         message(false, previous, Payload::ends, in[3]),
                         message(false, previous, Payload::activation, in[0]),
                         message(false, previous, Payload::activation, in[2]),
                         message(false, previous, Payload::weights, in[1])};
  world.transport.exchange(Lane::operands, batch);
  for (int k = 0; k < 4; ++k) EXPECT_EQ(in[k], out[k]);
}

TEST_P(Exchange, CountsByPeerAndKind) {
  World world(GetParam());
  const int next = (world.rank + 1) % world.ranks, previous = (world.rank + world.ranks - 1) % world.ranks;
  std::vector<std::byte> out(12'345), in(12'345);
  const std::array batch{Message{false, previous, Payload::activation, in.data(), 12'345},
                         Message{true, next, Payload::activation, out.data(), 12'345},
                         Message{false, previous, Payload::weights, in.data(), 67},
                         Message{true, next, Payload::weights, out.data(), 67}};
  world.transport.exchange(Lane::operands, std::span(batch).first(2));
  world.transport.exchange(Lane::operands_in, std::span(batch).last(2));
  schedule::ByteMatrix expected(world.ranks);
  expected.add(world.rank, next, Traffic::activations, 12'345);
  expected.add(world.rank, next, Traffic::weights, 67);
  EXPECT_EQ(world.transport.sent(), expected);
}

TEST(HostExchange, SplitsLongMessages) {
  const std::atomic<bool> cancelled{false};
  mpi::Channel channel(MPI_COMM_WORLD, {}, cancelled);
  World world(Kind::host);
  const int next = (world.rank + 1) % world.ranks, previous = (world.rank + world.ranks - 1) % world.ranks;
  for (const std::size_t bytes : {99, 100, 101, 1000, 1001}) {
    auto out = pattern(world.rank, next, Payload::weights, bytes);
    std::vector<std::byte> in(bytes);
    const std::array batch{Message{true, next, Payload::weights, out.data(), bytes},
                           Message{false, previous, Payload::weights, in.data(), bytes}};
    for (const auto under_way = mpi::make_exchange(channel, batch, 100); !under_way->done();)
      under_way->advance();
    EXPECT_EQ(in, pattern(previous, world.rank, Payload::weights, bytes));
  }
}

TEST_P(Exchange, RefusesAMessageOfAnotherLength) {
  if (GetParam() == Kind::nccl) GTEST_SKIP() << "NCCL takes each side at its word: it reports no length";
  World world(GetParam());
  std::vector<std::byte> out(64), in(64);
  for (const std::size_t expected : {63, 10}) {  // too long for its place, then too short
    const std::size_t sent = expected == 63 ? 64 : 9;
    const std::array batch{Message{false, world.rank, Payload::weights, in.data(), expected},
                           Message{true, world.rank, Payload::weights, out.data(), sent}};
    EXPECT_THROW(world.transport.exchange(Lane::operands, batch), Error);
  }
}

TEST_P(Exchange, RefusesCallsThatNoProgramMeans) {
  World world(GetParam());
  Values values(Scalar::fp32, 5);
  EXPECT_THROW(world.transport.all_reduce(Lane::operands, values.collective(99)), LogicError);
  EXPECT_THROW(world.transport.all_reduce(Lane::operands, values.collective(-1)), LogicError);
  EXPECT_THROW(world.transport.broadcast(Lane::operands, values.collective(0, world.ranks)), LogicError);
  EXPECT_THROW(world.transport.exchange(Lane::compute, {}), LogicError);
  if (world.position(2) < 0) {
    EXPECT_THROW(world.transport.all_gather(Lane::operands, values.collective(2)), LogicError);
  }
}

TEST_P(Exchange, RefusesAProgramOfAnotherSize) {
  const schedule::Program larger = program(ranks_of_job() + 1);
  EXPECT_THROW(build(GetParam(), larger), LogicError);
}

TEST(Transport, RefusesTooLittleStaging) {
  const schedule::Program plan = program(ranks_of_job());
  std::vector<std::byte> staging(2 * communication_lanes * schedule::chunk_bytes - 1);
  EXPECT_THROW(mpi::Transport(MPI_COMM_WORLD, plan, staging), LogicError);
}

}  // namespace
}  // namespace minitaw::comm::test
