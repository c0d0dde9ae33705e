#include <chrono>
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <random>
#include <thread>

#include "world.hpp"

namespace minitaw::comm::test {

namespace {

class Broadcast : public OnEvery {};
MINITAW_ON_EVERY_TRANSPORT(Broadcast);

TEST_P(Broadcast, GivesEveryMemberTheRootsValues) {
  World world(GetParam());
  for (const int c : world.mine())
    for (const int root : world.roots(c))
      for (const Scalar scalar : scalars)
        for (const auto elements : awkward_sizes(world, scalar, world.size(c))) {
          Values values = contribution_of(world.rank, scalar, elements);
          world.transport.broadcast(Lane::operands, values.collective(c, root));
          EXPECT_EQ(values, contribution_of(root, scalar, elements))
              << world.plan.communicators[c].name << " root " << root << " elements " << elements;
        }
}

TEST_P(Broadcast, CountsEachLinkOfTheChainOnce) {
  World world(GetParam());
  const int root = world.ranks / 2;
  Values values(Scalar::bf16, 400'001);
  world.transport.broadcast(Lane::operands_in, values.collective(0, root));
  const int next = (world.rank + 1) % world.ranks;
  schedule::ByteMatrix expected(world.ranks);
  if (next != root) expected.add(world.rank, next, Traffic::gradients, 800'002);
  EXPECT_EQ(world.transport.sent(), expected);
  world.transport.reset_counters();
  EXPECT_EQ(world.transport.sent(), schedule::ByteMatrix(world.ranks));
}

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

// all_gather, reduce_scatter and all_reduce: the rings and their slices.

namespace {

class AllGather : public OnEvery {};
MINITAW_ON_EVERY_TRANSPORT(AllGather);
class ReduceScatter : public OnEvery {};
MINITAW_ON_EVERY_TRANSPORT(ReduceScatter);
class AllReduce : public OnEvery {};
MINITAW_ON_EVERY_TRANSPORT(AllReduce);
class Rings : public OnEvery {};
MINITAW_ON_EVERY_TRANSPORT(Rings);

struct Case {
  int communicator;
  Scalar scalar;
  std::int64_t elements;
};

void for_each_case(const World& world, const std::function<void(const Case&)>& check) {
  for (const int c : world.mine())
    for (const Scalar scalar : scalars)
      for (const auto elements : awkward_sizes(world, scalar, world.size(c))) {
        SCOPED_TRACE(world.plan.communicators[c].name + " " + std::to_string(elements));
        check({c, scalar, elements});
      }
}

/// What rank `from` contributes to the slice of member `index`.
void fill(Values& values, const Range& part, int from) {
  for (std::int64_t i = part.begin; i < part.begin + part.count; ++i) values.set(i, contribution(from, i));
}

TEST_P(AllGather, BringsEverySliceFromItsMember) {
  World world(GetParam());
  for_each_case(world, [&](const Case& c) {
    const int members = world.size(c.communicator);
    Values values(c.scalar, c.elements), expected(c.scalar, c.elements);
    fill(values, slice(c.elements, members, world.position(c.communicator)), world.rank);
    for (int i = 0; i < members; ++i)
      fill(expected, slice(c.elements, members, i), world.members(c.communicator)[i]);
    world.transport.all_gather(Lane::operands, values.collective(c.communicator));
    EXPECT_EQ(values, expected);
  });
}

TEST_P(ReduceScatter, LeavesEachMemberItsSliceOfTheSum) {
  World world(GetParam());
  for_each_case(world, [&](const Case& c) {
    Values values = contribution_of(world.rank, c.scalar, c.elements);
    world.transport.reduce_scatter(Lane::operands_in, values.collective(c.communicator));
    const Range own = slice(c.elements, world.size(c.communicator), world.position(c.communicator));
    std::int64_t wrong = 0;
    for (std::int64_t i = own.begin; i < own.begin + own.count; ++i)
      wrong += values.at(i) != sum_of(world.members(c.communicator), i);
    EXPECT_EQ(wrong, 0);
  });
}

TEST_P(AllReduce, AddsEverywhere) {
  World world(GetParam());
  for_each_case(world, [&](const Case& c) {
    Values values = contribution_of(world.rank, c.scalar, c.elements), expected(c.scalar, c.elements);
    for (std::int64_t i = 0; i < c.elements; ++i) expected.set(i, sum_of(world.members(c.communicator), i));
    world.transport.all_reduce(Lane::operands, values.collective(c.communicator));
    EXPECT_EQ(values, expected);
  });
}

/// Bytes of a ring, link by link: all slices but one.
std::uint64_t all_but(std::int64_t elements, int members, int skipped) {
  return 4 * static_cast<std::uint64_t>(elements - slice(elements, members, skipped).count);
}

TEST_P(Rings, CountTrueSlices) {
  World world(GetParam());
  const int n = world.ranks, next = (world.rank + 1) % n;
  for (const std::int64_t elements : {std::int64_t{1}, std::int64_t{n} + 1, std::int64_t{200'003}}) {
    Values values(Scalar::fp32, elements);
    const auto expect = [&](std::uint64_t bytes) {
      schedule::ByteMatrix expected(n);
      if (n > 1) expected.add(world.rank, next, Traffic::gradients, bytes);
      EXPECT_EQ(world.transport.sent(), expected) << elements;
      world.transport.reset_counters();
    };
    world.transport.all_gather(Lane::operands, values.collective(0));
    expect(all_but(elements, n, next));
    world.transport.reduce_scatter(Lane::operands, values.collective(0));
    expect(all_but(elements, n, world.rank));
    world.transport.all_reduce(Lane::operands_in, values.collective(0));
    expect(all_but(elements, n, next) + all_but(elements, n, world.rank));
  }
}

}  // namespace

}  // namespace minitaw::comm::test
