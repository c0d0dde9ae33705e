// SPDX-License-Identifier: BSD-3-Clause
// Operations of all lanes at once, by one thread in any order or by a thread for each lane: what
// moves and what is added up must be the same as with one operation after the other.
#include "this_run.hpp"
#include "transports.hpp"

namespace minitaw::comm::test {
namespace {
MINITAW_ON_TRANSPORTS(Operations, over_mpi);

constexpr int lanes = static_cast<int>(communication_lanes);

Lane lane_at(int index) {
  return static_cast<Lane>(1 + index % lanes);
}

/// A collective, or a message from every rank to the next one that leaves on a lane and arrives on
/// the next.
struct Item {
  Call call = Call::send;  ///< of a message
  int lane = 0, communicator = 0;
  std::size_t root = 0;
  Dtype dtype = Dtype::fp32;
  std::int64_t elements = 0;
};

/// Items that all ranks draw alike.
std::vector<Item> draw(std::uint32_t seed, int count) {
  std::mt19937 random(seed);
  std::vector<Item> items;
  for (int k = 0; k < count; ++k) {
    const std::size_t call = random() % (collectives.size() + 1);
    items.push_back({.call = call == collectives.size() ? Call::send : collectives[call],
        .lane = static_cast<int>(random() % lanes),
        .communicator = static_cast<int>(random() % 5),
        .root = random(),
        .dtype = dtypes[random() % 2],
        .elements = static_cast<std::int64_t>(random() % (random() % 8 == 0 ? 300'000 : 20'000))});
  }
  return items;
}

/// The buffers of this rank for a list of items, and its part in each.
class Work {
public:
  Work(World& world, const std::vector<Item>& items) : world_(world), items_(items) {
    for (std::size_t k = 0; k < items.size(); ++k) {
      const Item& item = items[k];
      Values& values = values_.emplace_back(item.dtype, item.elements);
      landing_.emplace_back(item.dtype, item.elements);
      for (std::int64_t i = 0; i < item.elements; ++i)  // sums depend on the order of addition
        values.set(i, rough(world.rank, i + static_cast<std::int64_t>(k)));
    }
  }

  [[nodiscard]] Queues queues() {
    Queues queues;
    for (std::size_t k = 0; k < items_.size(); ++k) {
      const int lane = items_[k].lane;
      const auto push = [&](int at, auto start) {
        queues[at % lanes].push_back([this, k, at, start] { return start(lane_at(at), k); });
      };
      if (items_[k].call == Call::send)
        for (const bool send : {true, false})
          push(lane + (send ? 0 : 1), [this, send](Lane on, std::size_t item) {
            return world_.transport.start(on, message(item, send));
          });
      else if (takes_part(k))
        push(lane, [this](Lane on, std::size_t item) {
          return world_.transport.start(on, items_[item].call, collective(item));
        });
    }
    return queues;
  }

  /// The same, one after the other.
  void block() {
    for (std::size_t k = 0; k < items_.size(); ++k) {
      const Lane lane = lane_at(items_[k].lane);
      if (items_[k].call == Call::send)
        world_.exchange({message(k, false), message(k, true)});
      else if (takes_part(k))
        world_.execute(lane, items_[k].call, collective(k));
    }
  }

  /// Items that have left the same here as there; of reduce_scatter, where it says what it leaves.
  void expect_same(const Work& other) const {
    for (std::size_t k = 0; k < items_.size(); ++k) {
      const Item& item = items_[k];
      bool same = values_[k] == other.values_[k] && landing_[k] == other.landing_[k];
      if (item.call == Call::reduce_scatter && takes_part(k)) {
        const Range own = share_of(
            item.elements, world_.size(item.communicator), world_.position(item.communicator));
        same = true;
        for (std::int64_t i = own.begin; i < own.begin + own.count; ++i)
          same &= values_[k].at(i) == other.values_[k].at(i);
      }
      EXPECT_TRUE(same) << "item " << k << ": " << name_of(item.call);
    }
  }

private:
  [[nodiscard]] bool takes_part(std::size_t k) const {
    return world_.position(items_[k].communicator) >= 0;
  }

  [[nodiscard]] Collective collective(std::size_t k) {
    const Item& item = items_[k];
    const std::vector<int>& members = world_.members(item.communicator);
    return values_[k].collective(item.communicator, members[item.root % members.size()]);
  }

  /// The payload belongs to the lane, so that messages between two ranks stay in order.
  [[nodiscard]] Message message(std::size_t k, bool send) {
    return (send ? values_ : landing_)[k].message(
        send, send ? world_.next : world_.previous, static_cast<Payload>(1 + items_[k].lane));
  }

  World& world_;
  const std::vector<Item>& items_;
  std::deque<Values> values_, landing_;
};

/// With delays that differ from rank to rank; another thread reads the counters meanwhile.
void by_a_thread_for_each_lane(
    const Queues& queues, std::uint32_t seed, const Transport& transport) {
  std::vector<std::jthread> threads;
  for (const auto& queue : queues)
    threads.emplace_back([&queue, random = std::mt19937(seed++)]() mutable {
      for (const Start& start : queue) {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
        for (const auto open = start(); open != nullptr && !open->done();)
          if (!open->advance())
            std::this_thread::yield();
      }
    });
  for (int k = 0; k < 20; ++k, std::this_thread::sleep_for(std::chrono::milliseconds(1)))
    (void)transport.sent();
}

TEST_P(Operations, OfAllLanesAtOnceDoWhatBlockingOnesDo) {
  for (std::uint32_t round = 0; round < (ranks_of_job() <= 3 ? 4 : 2);
      ++round) {  // more share few cores
    World world(GetParam());
    const std::uint32_t seed = minitaw::test::seed() + round;
    SCOPED_TRACE("seed " + std::to_string(seed));
    const std::vector<Item> items = draw(seed, 30);
    Work blocking(world, items), mixed = blocking;
    blocking.block();
    std::vector<std::uint64_t> bytes = world.transport.sent();
    const std::uint32_t own_seed = seed * 31 + static_cast<std::uint32_t>(world.rank) * lanes;
    if (round % 2 == 0)
      by_one_thread(mixed.queues(), own_seed);
    else
      by_a_thread_for_each_lane(mixed.queues(), own_seed, world.transport);
    for (std::uint64_t& twice : bytes)
      twice *= 2;
    EXPECT_EQ(world.transport.sent(), bytes);
    mixed.expect_same(blocking);
  }
}

TEST_P(Operations, HaveNothingToDoWhileNobodyElseMoves) {
  World world(GetParam());
  Values in(Dtype::fp32, 25), out = contribution_of(world.previous, Dtype::fp32, 25);
  const auto under_way =
      world.transport.start(Lane::inputs_group, in.message(false, world.previous));
  ASSERT_NE(under_way, nullptr);
  for (int k = 0; k < 10; ++k)
    EXPECT_FALSE(under_way->advance());
  EXPECT_FALSE(under_way->done());
  MPI_Barrier(MPI_COMM_WORLD);
  Values mine = contribution_of(world.rank, Dtype::fp32, 25);
  world.execute(Lane::inputs_recv, mine.message(true, world.next));
  while (!under_way->done())
    under_way->advance();
  EXPECT_EQ(in, out);
  EXPECT_FALSE(under_way->advance()) << "it is over";
}
}  // namespace
}  // namespace minitaw::comm::test
