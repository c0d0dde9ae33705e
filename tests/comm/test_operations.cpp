// Operations of all lanes at once, advanced by one thread in any order: what moves and what is added up must
// be the same as with one operation after the other.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <deque>
#include <functional>
#include <random>
#include <thread>

#include "base/error.hpp"
#include "seed.hpp"
#include "world.hpp"

namespace minitaw::comm::test {
namespace {

using Call = schedule::Kind;

class Operations : public OnEvery {};
INSTANTIATE_TEST_SUITE_P(On, Operations, testing::Values(Kind::host, Kind::staged, Kind::staged_threads),
                         name_of_param);

constexpr int lanes = schedule::lanes - 1;  // of communication
Lane lane_at(int index) { return static_cast<Lane>(1 + index % lanes); }

/// A collective, or a message from every rank to the next one that leaves on a lane and arrives on the lane
/// behind it.
struct Item {
  Call call = Call::send;  ///< of a message
  int lane = 0, communicator = 0;
  std::size_t root = 0;
  Scalar scalar = Scalar::fp32;
  std::int64_t elements = 0;
};

/// Items that all ranks draw alike.
std::vector<Item> draw(std::uint32_t seed, int count) {
  constexpr std::array calls{Call::broadcast,      Call::reduce,     Call::all_gather,
                             Call::reduce_scatter, Call::all_reduce, Call::send};
  std::mt19937 random(seed);
  std::vector<Item> items;
  for (int k = 0; k < count; ++k)
    items.push_back(
        {.call = calls[random() % calls.size()],
         .lane = static_cast<int>(random() % lanes),
         .communicator = static_cast<int>(random() % 5),
         .root = random(),
         .scalar = scalars[random() % 2],
         .elements = static_cast<std::int64_t>(random() % (random() % 8 == 0 ? 900'000 : 20'000))});
  return items;
}

/// A value whose sums depend on the order of addition.
float rough(int rank, std::size_t item, std::int64_t i) {
  return std::sin(static_cast<float>(i * 37 + rank * 11) + static_cast<float>(item)) * std::exp2(rank % 5);
}

/// The buffers of this rank for a list of items, and its part in each.
class Work {
public:
  Work(World& world, const std::vector<Item>& items) : world_(world), items_(items) {
    for (std::size_t k = 0; k < items.size(); ++k) {
      const Item& item = items[k];
      Values& values = values_.emplace_back(item.scalar, item.elements);
      landing_.emplace_back(item.scalar, item.elements);
      for (std::int64_t i = 0; i < item.elements; ++i) values.set(i, rough(world.rank, k, i));
    }
  }

  using Start = std::function<Transport::Started()>;
  /// What this rank starts on each lane, in order.
  [[nodiscard]] std::array<std::deque<Start>, lanes> queues() {
    std::array<std::deque<Start>, lanes> queues;
    for (std::size_t k = 0; k < items_.size(); ++k) {
      const auto lane = static_cast<std::size_t>(items_[k].lane);
      if (items_[k].call != Call::send) {
        if (!takes_part(k)) continue;
        queues[lane].push_back([this, k] {
          return world_.transport.start(lane_at(items_[k].lane), items_[k].call, collective(k));
        });
        continue;
      }
      for (const bool send : {true, false})
        queues[(lane + (send ? 0 : 1)) % lanes].push_back([this, k, send] {
          const std::array batch{message(k, send)};
          return world_.transport.start(lane_at(items_[k].lane + (send ? 0 : 1)), batch);
        });
    }
    return queues;
  }

  /// The same, one after the other.
  void block() {
    for (std::size_t k = 0; k < items_.size(); ++k) {
      const Lane lane = lane_at(items_[k].lane);
      Transport& transport = world_.transport;
      if (items_[k].call == Call::send) {
        transport.exchange(lane, std::array{message(k, false), message(k, true)});
      } else if (takes_part(k)) {
        const Collective call = collective(k);
        if (items_[k].call == Call::broadcast) transport.broadcast(lane, call);
        if (items_[k].call == Call::reduce) transport.reduce(lane, call);
        if (items_[k].call == Call::all_gather) transport.all_gather(lane, call);
        if (items_[k].call == Call::reduce_scatter) transport.reduce_scatter(lane, call);
        if (items_[k].call == Call::all_reduce) transport.all_reduce(lane, call);
      }
    }
  }

  /// Whether item k has left the same here as there; of reduce_scatter, where it says what it leaves.
  [[nodiscard]] bool same(const Work& other, std::size_t k) const {
    if (items_[k].call != Call::reduce_scatter || !takes_part(k))
      return values_[k] == other.values_[k] && landing_[k] == other.landing_[k];
    const Range own = slice(items_[k].elements, world_.size(items_[k].communicator),
                            world_.position(items_[k].communicator));
    for (std::int64_t i = own.begin; i < own.begin + own.count; ++i)
      if (values_[k].at(i) != other.values_[k].at(i)) return false;
    return true;
  }

private:
  [[nodiscard]] bool takes_part(std::size_t k) const { return world_.position(items_[k].communicator) >= 0; }

  [[nodiscard]] Collective collective(std::size_t k) {
    const Item& item = items_[k];
    const std::vector<int>& members = world_.members(item.communicator);
    return values_[k].collective(item.communicator, members[item.root % members.size()]);
  }

  /// The payload belongs to the lane, so that messages between two ranks stay in order.
  [[nodiscard]] Message message(std::size_t k, bool send) {
    const int next = (world_.rank + 1) % world_.ranks;
    const int previous = (world_.rank + world_.ranks - 1) % world_.ranks;
    Values& values = send ? values_[k] : landing_[k];
    return {send, send ? next : previous, static_cast<Payload>(1 + items_[k].lane), values.data(),
            values.bytes()};
  }

  World& world_;
  const std::vector<Item>& items_;
  std::deque<Values> values_, landing_;
};

/// One thread executes the queues: a lane by chance, on which it starts or advances an operation.
void execute_in_any_order(std::array<std::deque<Work::Start>, lanes> queues, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::array<Transport::Started, lanes> open;
  const auto busy = [&] {
    return std::ranges::any_of(open, [](const auto& o) { return o != nullptr; }) ||
           std::ranges::any_of(queues, [](const auto& q) { return !q.empty(); });
  };
  while (busy()) {
    const std::size_t lane = random() % lanes;
    if (open[lane] != nullptr) {
      if (!open[lane]->advance()) std::this_thread::yield();
      if (open[lane]->done()) open[lane] = nullptr;
    } else if (!queues[lane].empty()) {
      open[lane] = queues[lane].front()();
      queues[lane].pop_front();
    }
  }
}

TEST_P(Operations, OfAllLanesAdvancedInAnyOrderDoWhatBlockingOnesDo) {
  World world(GetParam());
  for (std::uint32_t round = 0; round < 4; ++round) {
    const std::uint32_t seed = minitaw::test::seed() + round;
    SCOPED_TRACE("seed " + std::to_string(seed));
    const std::vector<Item> items = draw(seed, 30);
    Work blocking(world, items), mixed(world, items);
    blocking.block();
    const schedule::ByteMatrix bytes = world.transport.sent();
    world.transport.reset_counters();
    execute_in_any_order(mixed.queues(), seed * 31 + static_cast<std::uint32_t>(world.rank));
    EXPECT_EQ(world.transport.sent(), bytes);
    world.transport.reset_counters();
    for (std::size_t k = 0; k < items.size(); ++k)
      EXPECT_TRUE(mixed.same(blocking, k)) << "item " << k << ": " << name_of(items[k].call);
  }
}

/// Two collectives of one communicator, started in another order on every other rank.
TEST_P(Operations, OfOneCommunicatorGoOnTwoLanesAtOnce) {
  World world(GetParam());
  const std::int64_t elements = 700'001;
  const int root = world.ranks / 2;
  Values moved = contribution_of(world.rank, Scalar::fp32, elements), added = moved;
  std::array<Work::Start, 2> starts{
      [&] { return world.transport.start(Lane::operands, Call::broadcast, moved.collective(0, root)); },
      [&] { return world.transport.start(Lane::operands_in, Call::reduce, added.collective(0, root)); }};
  if (world.rank % 2 == 1) std::swap(starts[0], starts[1]);
  std::array<Transport::Started, 2> open{starts[0](), starts[1]()};
  while (open[0] != nullptr || open[1] != nullptr)
    for (auto& operation : open) {
      if (operation == nullptr) continue;
      if (!operation->advance()) std::this_thread::yield();
      if (operation->done()) operation = nullptr;
    }
  EXPECT_EQ(moved, contribution_of(root, Scalar::fp32, elements));
  for (std::int64_t i = 0; i < elements; i += 1009)
    EXPECT_EQ(added.at(i), world.rank == root ? sum_of(world.members(0), i) : contribution(world.rank, i));
}

TEST_P(Operations, HaveNothingToDoWhileNobodyElseMoves) {
  World world(GetParam());
  const int next = (world.rank + 1) % world.ranks, previous = (world.rank + world.ranks - 1) % world.ranks;
  std::vector<std::byte> in(100), out(100, std::byte{7});
  const std::array receive{Message{false, previous, Payload::weights, in.data(), in.size()}};
  const Transport::Started under_way = world.transport.start(Lane::operands, receive);
  ASSERT_NE(under_way, nullptr);
  for (int k = 0; k < 10; ++k) EXPECT_FALSE(under_way->advance());
  EXPECT_FALSE(under_way->done());
  MPI_Barrier(MPI_COMM_WORLD);
  world.transport.exchange(Lane::operands_in,
                           std::array{Message{true, next, Payload::weights, out.data(), 100}});
  while (!under_way->done()) under_way->advance();
  EXPECT_EQ(in, out);
  EXPECT_FALSE(under_way->advance()) << "it is over";
}

TEST_P(Operations, EndWhenCancelled) {
  World world(GetParam());
  std::vector<std::byte> in(100);
  const std::array lost{
      Message{false, (world.rank + 1) % world.ranks, Payload::weights, in.data(), in.size()}};
  Values values(Scalar::fp32, 300'000);
  const Transport::Started message = world.transport.start(Lane::operands, lost);
  Transport::Started collective;
  if (world.ranks > 1 && world.rank == 0)
    collective = world.transport.start(Lane::operands_in, Call::reduce, values.collective(0, 0));
  ASSERT_NE(message, nullptr);
  EXPECT_FALSE(message->advance());
  world.transport.cancel();
  EXPECT_THROW(message->advance(), Cancelled);
  if (collective != nullptr) {
    EXPECT_THROW(collective->advance(), Cancelled);
  }
  EXPECT_THROW((void)world.transport.start(Lane::operands, lost), Cancelled) << "it stays cancelled";
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_P(Operations, AreOfAKindThatTheTransportKnows) {
  World world(GetParam());
  Values values(Scalar::fp32, 5);
  if (world.ranks == 1) GTEST_SKIP() << "a ring of one member does nothing";
  EXPECT_THROW((void)world.transport.start(Lane::operands, Call::send, values.collective(0)), LogicError);
}

}  // namespace
}  // namespace minitaw::comm::test
