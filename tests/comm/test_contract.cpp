// SPDX-License-Identifier: BSD-3-Clause
// The contract of comm/transport.hpp, for every transport; below, what only the transport over MPI
// has.
#include "base/error.hpp"
#include "transports.hpp"

namespace minitaw::comm::test {
namespace {
MINITAW_ON_TRANSPORTS(Contract, every_kind);
/// What NCCL promises otherwise: it has no tags, and believes each side's length.
MINITAW_ON_TRANSPORTS(ContractOfMpi, over_mpi);

/// Nothing, one element, short or empty slices, and, where messages are cut, a chunk, just above
/// it, and several.
std::vector<std::int64_t> awkward_sizes(Dtype dtype, std::size_t members, bool in_pieces) {
  const auto m = static_cast<std::int64_t>(members);
  const auto chunk = static_cast<std::int64_t>(schedule::piece_bytes / bytes_of(dtype));
  std::vector<std::int64_t> sizes{0, 1, m - 1, m + 1, 3 * m + 1, 1000 * m};
  if (in_pieces)
    sizes.insert(sizes.end(), {chunk, chunk + 1, 3 * chunk + 7, (2 * chunk + 3) * m - 1});
  return sizes;
}

TEST_P(Contract, OfEveryCollective) {
  World world(GetParam());
  for (const Call kind : collectives)
    for (const int c : indices(world.plan.communicators)) {
      if (world.position(c) < 0)
        continue;
      const std::vector<int>& all = world.members(c);
      const int middle = all[all.size() / 2];
      for (const int root :
          is_rooted(kind) ? std::set{middle, all.front(), all.back()} : std::set{middle})
        for (const Dtype dtype : dtypes)
          for (const bool in_pieces = world.kind != Kind::nccl && root == middle;
              const auto elements : awkward_sizes(dtype, all.size(), in_pieces))
            EXPECT_EQ(wrong_after(world, Lane::inputs_recv, {kind, c, root, dtype, elements}), 0)
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
  schedule::Program plan = program(each, GetParam());
  plan.replicas = replicas;
  plan.communicators = {plan.communicators[0], {"replicas", {}}};
  for (schedule::RankProgram& rank : plan.ranks)
    std::erase_if(rank.actions, [](const schedule::Action& a) { return a.communicator > 1; });
  World world(GetParam(), plan);
  const int own = world.rank % each, first = world.rank - own;
  for (int& member : world.plan.communicators[0].ranks)
    member += first;
  for (int replica = 0; replica < replicas; ++replica)
    world.plan.communicators[1].ranks.push_back(replica * each + own);
  for (const int c : {0, 1})
    EXPECT_EQ(wrong_after(world,
                  c == 0 ? Lane::inputs_group : Lane::inputs_recv,
                  {Call::all_reduce, c, 0, Dtype::fp32, 5}),
        0)
        << world.plan.communicators[c].name;
  if (each == 1)
    return;
  Values out = contribution_of(world.rank, Dtype::fp32, 3), in(Dtype::fp32, 3);
  const int next = first + (own + 1) % each, previous = first + (own + each - 1) % each;
  world.exchange({out.message(true, next), in.message(false, previous)});
  EXPECT_EQ(in, contribution_of(previous, Dtype::fp32, 3));
}

/// Bytes that differ from message to message and from piece to piece.
std::vector<std::byte> noise(unsigned seed, std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  std::ranges::generate(
      data, [random = std::mt19937(seed)]() mutable { return static_cast<std::byte>(random()); });
  return data;
}

TEST_P(Contract, OfMessagesBothWays) {
  World world(GetParam());
  if (world.ranks == 1)
    GTEST_SKIP() << "needs two ranks";
  for (const std::size_t bytes : {0, 1, 3, 4097, 2'500'003}) {
    const auto to_right = [&](int from) { return noise(from, bytes); };
    const auto to_left = [&](int from) { return noise(world.ranks + from, bytes); };
    auto right = to_right(world.rank), left = to_left(world.rank);
    std::vector<std::byte> from_left(bytes), from_right(bytes);
    world.exchange({{true, world.next, Payload::weights, right.data(), bytes},
        {true, world.previous, Payload::gradient, left.data(), bytes},
        {false, world.previous, Payload::weights, from_left.data(), bytes},
        {false, world.next, Payload::gradient, from_right.data(), bytes}});
    EXPECT_EQ(from_left, to_right(world.previous));
    EXPECT_EQ(from_right, to_left(world.next));
  }
}

TEST_P(ContractOfMpi, OfMessagesMatchesByPayloadAndInOrder) {
  World world(GetParam());
  if (world.ranks == 1)
    GTEST_SKIP() << "MPI keeps no message that a rank sends to itself";
  constexpr std::array payloads{
      Payload::activation, Payload::weights, Payload::activation, Payload::embeddings};
  // Small enough to leave before they are asked for.
  std::vector<Values> out, in(4, Values(Dtype::fp32, 1));
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
  for (const auto& [sent, expected] : {std::pair{64, 63}, {9, 10}})
    EXPECT_THROW(
        world.exchange(
            {{false, world.rank, Payload::weights, in.data(), static_cast<std::size_t>(expected)},
                {true, world.rank, Payload::weights, out.data(), static_cast<std::size_t>(sent)}}),
        Error);
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
  EXPECT_THROW(World(GetParam(), program(world.ranks + 1)), LogicError)
      << "a program of another size";
}

// What only the transport over MPI has: slots, and how it waits.
TEST(TransportOverMpi, RefusesTooLittleStagingAndTooFewSlots) {
  std::vector<std::byte> staging(2 * communication_lanes * schedule::piece_bytes - 1);
  const schedule::Program plan = program(ranks_of_job());
  EXPECT_THROW((void)mpi::make_transport(MPI_COMM_WORLD, plan, staging), LogicError);
  LazyCopier copier;
  mpi::LaneMemories lanes;
  lanes[1] = {.slots = std::span(staging).first(16 * schedule::piece_bytes - 1), .copier = &copier};
  EXPECT_THROW((void)mpi::make_transport(MPI_COMM_WORLD, plan, lanes, ""), LogicError);
}

TEST(WaitPolicy, SpinsOnlyWhereCoresArePlentiful) {
  EXPECT_GT(wait_policy(12, 12).spins, 100 * wait_policy(11, 12).spins);
}

constexpr std::chrono::hours hour{1};

/// Sleeps that doubled would last for days.
TEST(Backoff, YieldsForAWhileThenSleepsForAPartOfTheTimeWaited) {
  Backoff eager({.eager = hour, .shortest_sleep = hour}),
      sleeps({.shortest_sleep = std::chrono::microseconds(1), .longest_sleep = hour});
  for (int k = 0; k < 40; ++k) {
    eager.once();
    sleeps.once();
  }
}

TEST(Backoff, EndsItsSleepWhenComputeWaits) {
  LowLatency low_latency;
  low_latency.set(false);
  const std::jthread compute([&] { low_latency.set(true); });
  Backoff pause(
      {.spins = 0, .yields = 0, .shortest_sleep = hour, .longest_sleep = hour}, &low_latency);
  while (!low_latency.on())
    pause.once();
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
