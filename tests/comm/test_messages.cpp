#include <array>
#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <random>
#include <thread>

#include "base/error.hpp"
#include "comm/mpi/operations.hpp"
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
                         message(true, next, Payload::embeddings, out[3]),
                         message(false, previous, Payload::embeddings, in[3]),
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

// Both communication lanes at once, each in its own thread, with delays that differ from rank to rank.

namespace {

class Lanes : public OnEvery {};
INSTANTIATE_TEST_SUITE_P(On, Lanes, testing::Values(Kind::host, Kind::staged, Kind::staged_threads),
                         name_of_param);

/// Executes a sequence of operations that all ranks draw alike; returns how many values came out wrong.
class Executor {
public:
  Executor(World& world, Lane lane)
      : world_(world), lane_(lane), plan_(static_cast<unsigned>(lane)), delay_(world.rank * 7 + 1) {}

  int execute(int operations) {
    for (int k = 0; k < operations; ++k) {
      std::this_thread::sleep_for(std::chrono::microseconds(delay_() % 300));
      const int communicator = static_cast<int>(plan_() % 5);
      const auto elements = static_cast<std::int64_t>(plan_() % 90'000);
      const std::size_t kind = plan_() % 6, root = plan_();
      if (kind == 5) message(elements);
      else if (world_.position(communicator) >= 0) collective(kind, communicator, root, elements);
    }
    return wrong_;
  }

private:
  void message(std::int64_t elements) {
    const int next = (world_.rank + 1) % world_.ranks,
              previous = (world_.rank + world_.ranks - 1) % world_.ranks;
    Values out = contribution_of(world_.rank, Scalar::fp32, elements), in(Scalar::fp32, elements);
    const auto bytes = static_cast<std::size_t>(4 * elements);
    // of its own: messages of a payload between two ranks are on one lane
    const auto payload = lane_ == Lane::operands ? Payload::activation : Payload::activation_grad;
    const std::array batch{Message{true, next, payload, out.data(), bytes},
                           Message{false, previous, payload, in.data(), bytes}};
    world_.transport.exchange(lane_, batch);
    wrong_ += in != contribution_of(previous, Scalar::fp32, elements);
  }

  void collective(std::size_t kind, int communicator, std::size_t root, std::int64_t elements) {
    const auto& members = world_.members(communicator);
    const int root_rank = members[root % members.size()];
    Values values = contribution_of(world_.rank, Scalar::fp32, elements);
    Collective call = values.collective(communicator, root_rank);
    const Range own = slice(elements, world_.size(communicator), world_.position(communicator));
    auto& transport = world_.transport;
    if (kind == 0) transport.broadcast(lane_, call);
    if (kind == 1) transport.reduce(lane_, call);
    if (kind == 2) transport.all_gather(lane_, call);
    if (kind == 3) transport.reduce_scatter(lane_, call);
    if (kind == 4) transport.all_reduce(lane_, call);
    for (std::int64_t i = own.begin; i < own.begin + own.count; ++i) {
      const bool sum = kind >= 3 || (kind == 1 && world_.rank == root_rank);
      const int from = kind == 0 ? root_rank : world_.rank;
      wrong_ += values.at(i) != (sum ? sum_of(members, i) : contribution(from, i));
    }
  }

  World& world_;
  Lane lane_;
  std::mt19937 plan_, delay_;
  int wrong_ = 0;
};

TEST_P(Lanes, DoNotDisturbEachOther) {
  World world(GetParam());
  Executor intra(world, Lane::operands), inter(world, Lane::operands_in);
  int wrong_intra = -1, wrong_inter = -1;
  {
    std::jthread first([&] { wrong_intra = intra.execute(40); });
    std::jthread second([&] { wrong_inter = inter.execute(40); });
    for (int k = 0; k < 20; ++k) {  // a watching thread may read the counters meanwhile
      (void)world.transport.sent();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  EXPECT_EQ(wrong_intra, 0);
  EXPECT_EQ(wrong_inter, 0);
}

class Cancel : public OnEvery {};
MINITAW_ON_EVERY_TRANSPORT(Cancel);

/// Embeddings the waits of a transport a little later, as the watchdog would.
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
