// SPDX-License-Identifier: BSD-3-Clause
// Operations of all lanes at once, by one thread in any order or by a thread for each lane: what
// moves and what is added up must be the same as with one operation after the other.
#include "this_run.hpp"
#include "transports.hpp"

namespace minitaw::comm::test {
namespace {
MINITAW_ON_TRANSPORTS(Operations, over_mpi);

/// A collective, or a message from every rank to the next one (Call::send) that leaves on a lane
/// and arrives on the next.
struct Item {
  Joint joint;
  int lane;
  Values values, landing{joint.dtype, joint.elements};
};

/// What a rank contributes to an item.
Values part_of(int rank, const Joint& joint) {
  return contribution_of(rank, joint.dtype, joint.elements, true, joint.shift);
}

/// Items that all ranks draw alike.
std::deque<Item> draw(std::uint32_t seed, const World& world) {
  std::mt19937 random(seed);
  std::deque<Item> items;
  for (int k = 0; k < 30; ++k) {
    const std::size_t call = random() % (collectives.size() + 1);
    const int communicator = static_cast<int>(random() % (world.ranks == 1 ? 3 : 5));
    const std::vector<int>& members = world.members(communicator);
    const Joint joint{.call = call == collectives.size() ? Call::send : collectives[call],
        .communicator = communicator,
        .root = members[random() % members.size()],
        .dtype = dtypes[random() % 2],
        .elements = static_cast<std::int64_t>(random() % (random() % 8 == 0 ? 300'000 : 20'000)),
        .shift = k};
    items.push_back(
        {joint, static_cast<int>(random() % communication_lanes), part_of(world.rank, joint)});
  }
  return items;
}

Queues queues_of(World& world, std::deque<Item>& items) {
  Queues queues;
  for (Item& item : items) {
    const auto push = [&](std::size_t index, auto... call) {
      const std::size_t lane = 1 + index % communication_lanes;
      queues[lane].push_back(
          [=, &world] { return world.transport.start(static_cast<Lane>(lane), call...); });
    };
    const auto& [joint, lane, values, landing] = item;
    if (joint.call == Call::send) {
      // The payload belongs to the lane, so that messages between two ranks stay in order.
      const auto payload = static_cast<Payload>(1 + lane);
      push(lane, item.values.message(true, world.next, payload));
      push(lane + 1, item.landing.message(false, world.previous, payload));
    } else if (world.position(joint.communicator) >= 0)
      push(lane, joint.call, item.values.collective(joint.communicator, joint.root));
  }
  return queues;
}

/// With delays that differ from rank to rank; another thread reads the counters meanwhile.
void by_a_thread_for_each_lane(
    const Queues& queues, std::uint32_t seed, const Transport& transport) {
  std::vector<std::jthread> threads;
  for (const auto& queue : queues)
    threads.emplace_back([&queue, random = std::mt19937(seed++)]() mutable {
      for (const Start& start : queue) {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
        const Transport::Started open = start();
        finish({&open});
      }
    });
  for (int k = 0; k < 20; ++k, std::this_thread::sleep_for(std::chrono::milliseconds(1)))
    (void)transport.sent();
}

TEST_P(Operations, OfAllLanesAtOnceDoWhatTheyDoAlone) {
  for (std::uint32_t round = 0; round < (ranks_of_job() <= 3 ? 2 : 1);
      ++round) {  // more share few cores
    World world(GetParam());
    const std::uint32_t seed = minitaw::test::seed() + round;
    SCOPED_TRACE("seed " + std::to_string(seed));
    const std::uint32_t own_seed =
        seed * 31 + static_cast<std::uint32_t>(world.rank) * schedule::lanes;
    std::vector<std::uint64_t> bytes;
    for (const bool threads : {false, true}) {
      std::deque<Item> items = draw(seed, world);
      const Queues queues = queues_of(world, items);
      if (threads)
        by_a_thread_for_each_lane(queues, own_seed, world.transport);
      else
        by_one_thread(queues, own_seed);
      for (const Item& item : items)
        if (item.joint.call == Call::send) {
          EXPECT_EQ(item.landing, part_of(world.previous, item.joint));
        } else if (world.position(item.joint.communicator) >= 0) {
          EXPECT_EQ(wrong_in(item.values, item.joint, world), 0) << name_of(item.joint.call);
        }
      if (!threads)
        bytes = world.transport.sent();
    }
    for (std::uint64_t& twice : bytes)
      twice *= 2;
    EXPECT_EQ(world.transport.sent(), bytes);
  }
}

TEST_P(Operations, HaveNothingToDoWhileNobodyElseMoves) {
  World world(GetParam());
  Values in(Dtype::fp32, 25), out = contribution_of(world.rank, Dtype::fp32, 25);
  const auto under_way =
      world.transport.start(Lane::inputs_group, in.message(false, world.previous));
  ASSERT_NE(under_way, nullptr);
  for (int k = 0; k < 10; ++k)
    EXPECT_FALSE(under_way->advance());
  MPI_Barrier(MPI_COMM_WORLD);
  world.execute(Lane::inputs_recv, out.message(true, world.next));
  finish({&under_way});
  EXPECT_EQ(in, contribution_of(world.previous, Dtype::fp32, 25));
  EXPECT_FALSE(under_way->advance()) << "it is over";
}
}  // namespace
}  // namespace minitaw::comm::test
