// SPDX-License-Identifier: BSD-3-Clause
// The contract of comm/transport.hpp, for every transport; below, what only the transport over MPI
// has.
#include "base/error.hpp"
#include "transports.hpp"

namespace minitaw::comm::test {
namespace {
MINITAW_ON_TRANSPORTS(Contract, every_kind);
/// What NCCL promises otherwise: its sums have an order of its own, it has no tags, and believes
/// each side's length.
MINITAW_ON_TRANSPORTS(ContractOfMpi, over_mpi);

/// Nothing, one element, short or empty slices, and, where messages are cut, a chunk, just above
/// it, and several.
std::vector<std::int64_t> awkward_sizes(Dtype dtype, int members, bool in_pieces) {
  std::vector<std::int64_t> sizes{0, 1, members - 1, members + 1, 3 * members + 1, 1000 * members};
  const auto chunk = static_cast<std::int64_t>(schedule::piece_bytes / bytes_of(dtype));
  if (in_pieces)
    sizes.insert(sizes.end(), {chunk, chunk + 1, 3 * chunk + 7, (2 * chunk + 3) * members - 1});
  return sizes;
}

TEST_P(Contract, OfEveryCollective) {
  World world(GetParam());
  for (const Call kind : collectives)
    for (int c = 0; c < static_cast<int>(world.plan.communicators.size()); ++c) {
      if (world.position(c) < 0)
        continue;
      const std::vector<int>& all = world.members(c);
      const int middle = all[all.size() / 2];
      std::set<int> roots{middle};
      if (is_rooted(kind))
        roots.insert({all.front(), all.back()});
      for (const int root : roots)
        for (const Dtype dtype : dtypes)
          for (const bool in_pieces = world.kind != Kind::nccl && root == middle && c != 1;
              const auto elements : awkward_sizes(dtype, world.size(c), in_pieces))
            EXPECT_EQ(wrong_after(world, Lane::inputs_recv, kind, c, root, dtype, elements), 0)
                << name_of(kind) << " " << world.plan.communicators[c].name << " root " << root
                << " elements " << elements;
    }
}

/// Two replicas, or as many as there are ranks if these are odd: collectives in each and over all
/// of them, and a message in each.
TEST_P(Contract, OfReplicas) {
  const int ranks = ranks_of_job(), replicas = ranks % 2 == 0 ? 2 : ranks, each = ranks / replicas;
  if (ranks == 1)
    GTEST_SKIP() << "needs two ranks";
  constexpr std::array lanes = {Lane::inputs_group, Lane::inputs_recv};
  schedule::Program plan;
  plan.replicas = replicas;
  plan.groups = topology::Groups({each});
  plan.communicators = {{"world", plan.groups.members(0)}, {"replicas", {}}};
  for (int r = 0; r < each; ++r) {
    auto& actions = plan.ranks.emplace_back().actions;
    for (int c = 0; c < 2; ++c)
      actions.push_back({.kind = Call::all_reduce,
          .lane = lanes[c],
          .payload = Payload::gradient,
          .communicator = c});
    for (const Call call : {Call::send, Call::recv})
      if (each > 1)
        actions.push_back({.kind = call,
            .lane = lane_of(call, Payload::weights, false),
            .payload = Payload::weights,
            .peer = (r + (call == Call::send ? 1 : each - 1)) % each});
  }
  World world(GetParam(), plan);
  const int own = world.rank % each, first = world.rank - own;
  std::array<std::vector<int>, 2> members;
  for (int r = 0; r < each; ++r)
    members[0].push_back(first + r);
  for (int replica = 0; replica < replicas; ++replica)
    members[1].push_back(replica * each + own);
  for (int c = 0; c < 2; ++c) {
    Values values = contribution_of(world.rank, Dtype::fp32, 5);
    world.execute(lanes[c], Call::all_reduce, values.collective(c));
    for (int i = 0; i < 5; ++i)
      EXPECT_EQ(values.at(i), sum_of(members[c], i)) << plan.communicators[c].name << " " << i;
  }
  if (each == 1)
    return;
  const int next = first + (own + 1) % each, previous = first + (own + each - 1) % each;
  Values out = contribution_of(world.rank, Dtype::fp32, 3), in(Dtype::fp32, 3);
  world.exchange({out.message(true, next), in.message(false, previous)});
  EXPECT_EQ(in, contribution_of(previous, Dtype::fp32, 3));
}

/// A chain adds from the last member to the root, a ring from the member after the slice's own;
/// all sums are rounded.
TEST_P(ContractOfMpi, OfSumsIsTheOrderOfTheRing) {
  World world(GetParam());
  const std::int64_t elements = 132'001;
  for (const Dtype dtype : dtypes) {
    std::vector<Values> all(world.ranks, Values(dtype, elements));  // by rank
    for (int r = 0; r < world.ranks; ++r)
      for (std::int64_t i = 0; i < elements; ++i)
        all[r].set(i, rough(r, i));
    for (const Call kind : {Call::reduce, Call::reduce_scatter, Call::all_reduce})
      for (const int communicator : {0, 1}) {  // world, then backwards
        const std::vector<int>& members = world.members(communicator);
        const int root = communicator % world.ranks;
        Values values = all[world.rank], sum(dtype, elements);
        std::this_thread::sleep_for(std::chrono::microseconds(world.rank * 977 % 2000));
        world.execute(Lane::inputs_group, kind, values.collective(communicator, members[root]));
        if (kind == Call::reduce && world.rank != members[root])
          continue;
        std::int64_t wrong = 0;
        for (int m = 0; m < world.ranks; ++m) {
          if (kind == Call::reduce_scatter && m != world.position(communicator))
            continue;
          const Range part = share_of(elements, world.ranks, m);
          for (std::int64_t i = part.begin; i < part.begin + part.count; ++i) {
            for (int k = 1; k <= world.ranks; ++k) {
              const int adds = kind == Call::reduce ? root + world.ranks - k : m + k;
              const float next = all[members[adds % world.ranks]].at(i);
              sum.set(i, k == 1 ? next : sum.at(i) + next);
            }
            wrong += values.at(i) != sum.at(i);
          }
        }
        EXPECT_EQ(wrong, 0) << name_of(kind) << " on "
                            << world.plan.communicators[communicator].name;
      }
  }
}

TEST_P(Contract, OfMessagesBothWays) {
  World world(GetParam());
  if (!world.has_messages())
    GTEST_SKIP() << "needs two ranks";
  for (const std::size_t bytes : {0, 1, 3, 4097, 2'500'003}) {
    auto right = pattern(world.rank, world.next, Payload::weights, bytes);
    auto left = pattern(world.rank, world.previous, Payload::gradient, bytes);
    std::vector<std::byte> from_left(bytes), from_right(bytes);
    world.exchange({{true, world.next, Payload::weights, right.data(), bytes},
        {true, world.previous, Payload::gradient, left.data(), bytes},
        {false, world.previous, Payload::weights, from_left.data(), bytes},
        {false, world.next, Payload::gradient, from_right.data(), bytes}});
    EXPECT_EQ(from_left, pattern(world.previous, world.rank, Payload::weights, bytes));
    EXPECT_EQ(from_right, pattern(world.next, world.rank, Payload::gradient, bytes));
  }
}

TEST_P(ContractOfMpi, OfMessagesMatchesByPayloadAndInOrder) {
  World world(GetParam());
  if (world.ranks == 1)
    GTEST_SKIP() << "MPI keeps no message that a rank sends to itself";
  constexpr std::array payloads{
      Payload::activation, Payload::weights, Payload::activation, Payload::embeddings};
  std::vector<Values> out,
      in(4, Values(Dtype::fp32, 1));  // small enough to leave before they are asked for
  std::vector<Message> messages;
  for (const int k : {0, 1, 2, 3})
    out.push_back(contribution_of(k, Dtype::fp32, 1));
  for (const int k : {0, 1, 2, 3})
    messages.push_back(out[k].message(true, world.next, payloads[k]));
  for (const int k : {0, 2, 1, 3})
    messages.push_back(in[k].message(false, world.previous, payloads[k]));
  world.exchange(messages);
  EXPECT_EQ(in, out);
}

TEST_P(ContractOfMpi, RefusesAMessageOfAnotherLength) {
  World world(GetParam());
  std::vector<std::byte> out(64), in(64);
  for (const std::size_t expected : {63, 10}) {  // too long for its place, then too short
    const std::size_t sent = expected == 63 ? 64 : 9;
    EXPECT_THROW(world.exchange({{false, world.rank, Payload::weights, in.data(), expected},
                     {true, world.rank, Payload::weights, out.data(), sent}}),
        Error);
  }
}

TEST_P(Contract, RefusesCallsThatNoProgramMeans) {
  World world(GetParam());
  Values values(Dtype::fp32, 5);
  using Row = std::tuple<Lane, Call, int, int>;  // communicator, root
  std::vector<Row> bad = {{Lane::inputs_group, Call::all_reduce, 99, -1},
      {Lane::inputs_group, Call::all_reduce, -1, -1},
      {Lane::inputs_group, Call::broadcast, 0, world.ranks},
      {Lane::inputs_group, Call::send, 0, -1},
      {Lane::compute, Call::all_reduce, 0, -1}};
  if (world.position(2) < 0)
    bad.emplace_back(Lane::inputs_group, Call::all_gather, 2, -1);
  for (const auto& [lane, call, communicator, root] : bad)
    EXPECT_THROW(world.execute(lane, call, values.collective(communicator, root)), LogicError)
        << name_of(call);
  EXPECT_THROW(world.execute(Lane::compute, values.message(true, world.next)), LogicError);
  EXPECT_THROW((void)Made(GetParam(), program(world.ranks + 1)), LogicError)
      << "a program of another size";
}

// What only the transport over MPI has: slots, and how it waits.
TEST(TransportOverMpi, RefusesTooLittleStagingAndTooFewSlots) {
  std::vector<std::byte> staging(2 * communication_lanes * schedule::piece_bytes - 1);
  const schedule::Program plan = program(ranks_of_job());
  EXPECT_THROW((void)mpi::make_transport(MPI_COMM_WORLD, plan, staging), LogicError);
  LazyCopier copier;
  std::vector<std::byte> pinned(16 * staged_piece - 1);
  mpi::LaneMemories lanes;
  lanes[1] = {.piece_bytes = staged_piece, .slots = pinned, .copier = &copier};
  EXPECT_THROW((void)mpi::make_transport(MPI_COMM_WORLD, plan, lanes, ""), LogicError);
}

TEST(WaitPolicy, SpinsOnlyWhereCoresArePlentiful) {
  EXPECT_GT(wait_policy(12, 12).spins, 100 * wait_policy(11, 12).spins);
  for (const int cores : {2, 12})
    EXPECT_LE(wait_policy(cores, 12).longest_sleep, std::chrono::milliseconds(1))
        << "a wait ends within a millisecond";
}

constexpr std::chrono::hours hour{1};

TEST(Backoff, YieldsForAWhileBeforeItSleeps) {
  Backoff backoff({.eager = hour, .shortest_sleep = hour});
  for (int k = 0; k < 1000; ++k)
    backoff.once();
}

TEST(Backoff, EndsItsSleepWhenComputeWaits) {
  // Sleeps that doubled would last for days.
  const WaitPolicy growing{.shortest_sleep = std::chrono::microseconds(1), .longest_sleep = hour};
  LowLatency low_latency;
  Backoff backoff(growing, &low_latency);
  for (int k = 0; k < 40; ++k)
    backoff.once();
  low_latency.set(false);
  EXPECT_FALSE(low_latency.on());
  std::atomic<bool> asleep{false};
  const std::jthread compute([&] {
    asleep.wait(false);
    low_latency.set(true);
  });
  const WaitPolicy long_sleeps{
      .spins = 0, .yields = 0, .shortest_sleep = hour, .longest_sleep = hour};
  for (Backoff pause(long_sleeps, &low_latency); !low_latency.on(); pause.once()) {
    asleep = true;
    asleep.notify_one();
  }
}

TEST(Backoff, SparesSharedCoresWhileTheRankComputes) {
  const WaitPolicy policy{.spins = 0,
      .yields = 0,
      .longest_sleep = std::chrono::milliseconds(5),
      .spare_compute = true};
  LowLatency low_latency;
  low_latency.set(false);
  const auto begin = std::chrono::steady_clock::now();
  Backoff backoff(policy, &low_latency);
  for (int k = 0; k < 3; ++k)
    backoff.once();
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 3 * policy.longest_sleep);
}
}  // namespace
}  // namespace minitaw::comm::test
