// The contract of comm/transport.hpp, for every transport.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <thread>

#include "base/error.hpp"
#include "transports.hpp"

namespace minitaw::comm::test {
namespace {

MINITAW_ON_TRANSPORTS(Contract, every_kind);

/// Nothing, one element, slices that are shorter or empty, and, where a transport cuts messages into pieces,
/// just above one chunk and several.
std::vector<std::int64_t> awkward_sizes(Kind kind, Scalar scalar, int members) {
  const auto chunk = static_cast<std::int64_t>(schedule::chunk_bytes / bytes_of(scalar));
  if (kind == Kind::nccl) return {0, 1, members - 1, members + 1, 3 * members + 1, 100 * members};
  return {0,    1,     members - 1, members + 1,   3 * members + 1,
          1000, chunk, chunk + 1,   3 * chunk + 7, (2 * chunk + 3) * members - 1};
}

TEST_P(Contract, OfEveryCollective) {
  World world(GetParam());
  for (const Call kind : collectives)
    for (int c = 0; c < static_cast<int>(world.plan.communicators.size()); ++c) {
      if (world.position(c) < 0) continue;
      const std::vector<int>& all = world.members(c);
      std::set<int> roots{all.front()};
      if (kind == Call::broadcast || kind == Call::reduce) roots.insert({all[all.size() / 2], all.back()});
      for (const int root : roots)
        for (const Scalar scalar : scalars)
          for (const auto elements : awkward_sizes(world.kind, scalar, world.size(c)))
            EXPECT_EQ(wrong_after(world, Lane::operands_in, kind, c, root, scalar, elements), 0)
                << name_of(kind) << " " << world.plan.communicators[c].name << " root " << root
                << " elements " << elements;
    }
}

/// A value whose sums depend on the order of addition.
float rough(int rank, std::int64_t i) {
  return std::sin(static_cast<float>(i * 37 + rank * 11)) * std::exp2(rank % 5);
}

/// A chain adds from the last member to the root, a ring from the member behind the slice's own to that,
/// rounded at every step.
TEST_P(Contract, OfSumsIsTheOrderOfTheRing) {
  if (GetParam() == Kind::nccl) GTEST_SKIP() << "NCCL chooses its own order";
  World world(GetParam());
  const std::int64_t elements = 150'001;
  for (const Call kind : {Call::reduce, Call::reduce_scatter, Call::all_reduce})
    for (const Scalar scalar : scalars)
      for (const int communicator : {0, 1}) {  // world, then backwards
        const std::vector<int>& members = world.members(communicator);
        const int root = communicator % world.ranks;
        Values values(scalar, elements), sum(scalar, elements), next(scalar, elements);
        for (std::int64_t i = 0; i < elements; ++i) values.set(i, rough(world.rank, i));
        std::this_thread::sleep_for(std::chrono::microseconds(world.rank * 977 % 2000));
        world.transport.execute(Lane::operands, kind, values.collective(communicator, members[root]));
        std::int64_t wrong = 0;
        for (int m = 0; m < world.ranks; ++m) {
          if (kind == Call::reduce_scatter && m != world.position(communicator)) continue;
          const Range part = slice(elements, world.ranks, m);
          for (int k = 1; k <= world.ranks; ++k) {
            const int adds = kind == Call::reduce ? root + world.ranks - k : m + k;
            for (std::int64_t i = part.begin; i < part.begin + part.count; ++i) {
              next.set(i, rough(members[adds % world.ranks], i));
              sum.set(i, k == 1 ? next.at(i) : sum.at(i) + next.at(i));
            }
          }
          for (std::int64_t i = part.begin; i < part.begin + part.count; ++i)
            wrong += values.at(i) != sum.at(i);
        }
        if (kind != Call::reduce || world.rank == members[root]) {
          EXPECT_EQ(wrong, 0) << name_of(kind) << " on " << world.plan.communicators[communicator].name;
        }
      }
}

TEST_P(Contract, OfMessagesBothWaysInOneBatch) {
  World world(GetParam());
  for (const std::size_t bytes : {0, 1, 3, 4097, 2'500'003}) {
    auto right = pattern(world.rank, world.next, Payload::weights, bytes);
    auto left = pattern(world.rank, world.previous, Payload::gradient, bytes);
    std::vector<std::byte> from_left(bytes), from_right(bytes);
    // In the order of a schedule that sends first: it must not matter.
    const std::array batch{Message{true, world.next, Payload::weights, right.data(), bytes},
                           Message{true, world.previous, Payload::gradient, left.data(), bytes},
                           Message{false, world.previous, Payload::weights, from_left.data(), bytes},
                           Message{false, world.next, Payload::gradient, from_right.data(), bytes}};
    world.transport.execute(Lane::operands_in, batch);
    EXPECT_EQ(from_left, pattern(world.previous, world.rank, Payload::weights, bytes));
    EXPECT_EQ(from_right, pattern(world.next, world.rank, Payload::gradient, bytes));
  }
}

TEST_P(Contract, OfMessagesMatchesByPayloadAndInOrder) {
  World world(GetParam());
  int out[4] = {100, 200, 300, 400}, in[4] = {};
  const auto message = [](bool send, int peer, Payload payload, int& value) {
    return Message{send, peer, payload, reinterpret_cast<std::byte*>(&value), sizeof(value)};
  };
  const std::array batch{message(true, world.next, Payload::activation, out[0]),
                         message(true, world.next, Payload::weights, out[1]),
                         message(true, world.next, Payload::activation, out[2]),
                         message(true, world.next, Payload::embeddings, out[3]),
                         message(false, world.previous, Payload::embeddings, in[3]),
                         message(false, world.previous, Payload::activation, in[0]),
                         message(false, world.previous, Payload::activation, in[2]),
                         message(false, world.previous, Payload::weights, in[1])};
  world.transport.execute(Lane::operands, batch);
  for (int k = 0; k < 4; ++k) EXPECT_EQ(in[k], out[k]);
}

TEST_P(Contract, RefusesAMessageOfAnotherLength) {
  if (GetParam() == Kind::nccl) GTEST_SKIP() << "NCCL takes each side at its word: it reports no length";
  World world(GetParam());
  std::vector<std::byte> out(64), in(64);
  for (const std::size_t expected : {63, 10}) {  // too long for its place, then too short
    const std::size_t sent = expected == 63 ? 64 : 9;
    const std::array batch{Message{false, world.rank, Payload::weights, in.data(), expected},
                           Message{true, world.rank, Payload::weights, out.data(), sent}};
    EXPECT_THROW(world.transport.execute(Lane::operands, batch), Error);
  }
}

TEST_P(Contract, RefusesCallsThatNoProgramMeans) {
  World world(GetParam());
  Values values(Scalar::fp32, 5);
  const auto execute = [&](Lane lane, Call kind, int communicator, int root = -1) {
    world.transport.execute(lane, kind, values.collective(communicator, root));
  };
  EXPECT_THROW(execute(Lane::operands, Call::all_reduce, 99), LogicError);
  EXPECT_THROW(execute(Lane::operands, Call::all_reduce, -1), LogicError);
  EXPECT_THROW(execute(Lane::operands, Call::broadcast, 0, world.ranks), LogicError);
  EXPECT_THROW(execute(Lane::operands, Call::send, 0), LogicError);
  EXPECT_THROW(execute(Lane::compute, Call::all_reduce, 0), LogicError);
  EXPECT_THROW(world.transport.execute(Lane::compute, {}), LogicError);
  if (world.position(2) < 0) {
    EXPECT_THROW(execute(Lane::operands, Call::all_gather, 2), LogicError);
  }
  EXPECT_THROW(build(GetParam(), program(world.ranks + 1)), LogicError) << "a program of another size";
}

TEST(HostTransport, RefusesTooLittleStaging) {
  std::vector<std::byte> staging(2 * communication_lanes * schedule::chunk_bytes - 1);
  EXPECT_THROW((void)mpi::make_transport(MPI_COMM_WORLD, program(ranks_of_job()), staging), LogicError);
}

/// Cancels a little later, as the watchdog would.
std::jthread cancel_later(World& world) {
  return std::jthread([&world] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    world.transport.cancel();
  });
}

TEST_P(Contract, CancelEndsTheWaitForALostMessage) {
  World world(GetParam());
  Values in(Scalar::fp32, 25);
  const std::array batch{in.message(false, world.next)};
  const auto watchdog = cancel_later(world);
  EXPECT_THROW(world.transport.execute(Lane::operands, batch), Cancelled);
  EXPECT_THROW(world.transport.execute(Lane::operands_in, batch), Cancelled) << "it stays cancelled";
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_P(Contract, CancelEndsACollectiveThatTheOthersNeverJoin) {
  World world(GetParam());
  if (world.ranks > 1 && world.rank == 0) {
    Values values(Scalar::fp32, 300'000);
    const auto watchdog = cancel_later(world);
    EXPECT_THROW(world.transport.execute(Lane::operands_in, Call::reduce, values.collective(0, 0)),
                 Cancelled);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  world.transport.cancel();  // an orderly end would wait for rank 0
}

TEST_P(Contract, CancelEndsASendThatNobodyTakes) {
  World world(GetParam());
  std::vector<std::byte> data(3'000'000, static_cast<std::byte>(world.rank));
  if (world.ranks > 1 && world.rank == 0) {
    const std::array batch{Message{true, 1, Payload::weights, data.data(), data.size()}};
    const auto watchdog = cancel_later(world);
    EXPECT_THROW(world.transport.execute(Lane::operands, batch), Cancelled);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  // Taken after all, so that MPI can end in order: whatever had been handed to it.
  if (GetParam() == Kind::nccl) world.transport.cancel();
  else if (world.rank == 1) {
    data.resize(GetParam() == Kind::host ? data.size() : 8 * (1 << 16));
    const std::array batch{Message{false, 0, Payload::weights, data.data(), data.size()}};
    world.transport.execute(Lane::operands, batch);
    EXPECT_EQ(data.back(), std::byte{0});
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

}  // namespace
}  // namespace minitaw::comm::test
