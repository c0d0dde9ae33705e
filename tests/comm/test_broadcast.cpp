#include <gtest/gtest.h>

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

}  // namespace
}  // namespace minitaw::comm::test
