// all_gather, reduce_scatter and all_reduce: the rings and their slices.
#include <gtest/gtest.h>

#include <functional>

#include "world.hpp"

namespace minitaw::comm::test {
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
void fill(Values& values, const Slice& part, int from) {
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
    const Slice own = slice(c.elements, world.size(c.communicator), world.position(c.communicator));
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
