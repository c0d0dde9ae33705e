#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <random>
#include <thread>

#include "world.hpp"

namespace minitaw::comm::test {
namespace {

class Reduce : public OnEvery {};
MINITAW_ON_EVERY_TRANSPORT(Reduce);

TEST_P(Reduce, AddsAtTheRootAndLeavesTheOthersAlone) {
  World world(GetParam());
  for (const int c : world.mine())
    for (const int root : world.roots(c))
      for (const Scalar scalar : scalars)
        for (const auto elements : awkward_sizes(world, scalar, world.size(c))) {
          Values values = contribution_of(world.rank, scalar, elements);
          world.transport.reduce(Lane::operands_in, values.collective(c, root));
          Values expected = contribution_of(world.rank, scalar, elements);
          if (world.rank == root)
            for (std::int64_t i = 0; i < elements; ++i) expected.set(i, sum_of(world.members(c), i));
          EXPECT_EQ(values, expected)
              << world.plan.communicators[c].name << " root " << root << " elements " << elements;
        }
}

/// Values whose sum depends on the order of addition.
float rough(int rank, std::int64_t i) {
  return std::sin(static_cast<float>(i * 37 + rank * 11)) * std::exp2(rank % 5);
}

/// The chain's sum: the last member first, the root last, rounded at every step.
Values chain_sum(const std::vector<int>& members, std::size_t root, Scalar scalar, std::int64_t elements) {
  Values sum(scalar, elements), next(scalar, elements);
  for (std::size_t k = members.size(); k-- > 0;) {
    const int rank = members[(root + k) % members.size()];
    for (std::int64_t i = 0; i < elements; ++i) next.set(i, rough(rank, i));
    for (std::int64_t i = 0; i < elements; ++i)
      sum.set(i, k + 1 == members.size() ? next.at(i) : sum.at(i) + next.at(i));
  }
  return sum;
}

TEST_P(Reduce, RepeatsBitForBitInRingOrder) {
  if (GetParam() == Kind::nccl) GTEST_SKIP() << "NCCL chooses its own order";
  World world(GetParam());
  std::mt19937 random(world.rank + 1);
  for (const Scalar scalar : scalars)
    for (int round = 0; round < 4; ++round) {
      const std::int64_t elements = 150'001;
      const int communicator = round % 2;  // world, then backwards
      const std::size_t root = round % world.ranks;
      const int root_rank = world.members(communicator)[root];
      Values values(scalar, elements);
      for (std::int64_t i = 0; i < elements; ++i) values.set(i, rough(world.rank, i));
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
      world.transport.reduce(Lane::operands, values.collective(communicator, root_rank));
      if (world.rank == root_rank) {
        EXPECT_EQ(values, chain_sum(world.members(communicator), root, scalar, elements));
      }
    }
}

TEST_P(Reduce, CountsEachLinkOfTheChainOnce) {
  World world(GetParam());
  const int root = world.ranks - 1;
  Values values(Scalar::fp32, 300'001);
  world.transport.reduce(Lane::operands_in, values.collective(0, root));
  schedule::ByteMatrix expected(world.ranks);
  if (world.rank != root)
    expected.add(world.rank, (world.rank + world.ranks - 1) % world.ranks, Traffic::gradients, 1'200'004);
  EXPECT_EQ(world.transport.sent(), expected);
}

}  // namespace
}  // namespace minitaw::comm::test
