// What only the NCCL transport has: its communicators, their first calls, and what it does when NCCL fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "base/error.hpp"
#include "comm/nccl/teams.hpp"
#include "model/layout.hpp"
#include "schedule/registry.hpp"
#include "world.hpp"

namespace minitaw::comm::test {
namespace {

using nccl::Calls;
using nccl::Cargo;
using nccl::Colours;
using nccl::Messages;
using nccl::Team;
using schedule::Kind;
using testing::ElementsAre;

schedule::Action action(Kind kind, int peer, int communicator = -1, bool inside = false) {
  schedule::Action a;
  a.kind = kind, a.peer = peer, a.communicator = communicator, a.payload = Payload::weights;
  a.lane = lane_of(kind, a.payload, inside);
  return a;
}

/// Groups {0, 1}, {2, 3}, {4} and the world; messages 0 -> 2 -> 4 between groups; the last group says
/// nothing.
schedule::Program small_program() {
  schedule::Program p;
  p.communicators = {{"group0", {0, 1}}, {"group1", {3, 2}}, {"group2", {4}}, {"world", {0, 1, 2, 3, 4}}};
  p.ranks.resize(5);
  for (const int r : {0, 1, 2, 3, 4}) {
    p.ranks[r].actions.push_back(action(Kind::broadcast, r - r % 2, r / 2, true));
    p.ranks[r].actions.push_back(action(Kind::all_reduce, -1, 3));
    p.ranks[r].actions.push_back(action(Kind::broadcast, 0, 3));
  }
  p.ranks[0].actions.push_back(action(Kind::send, 2));
  p.ranks[2].actions.push_back(action(Kind::recv, 0));
  p.ranks[2].actions.push_back(action(Kind::send, 4));
  p.ranks[4].actions.push_back(action(Kind::recv, 2));
  return p;
}

TEST(Teams, AreWhatTheProgramUses) {
  EXPECT_THAT(
      nccl::teams_of(small_program()),
      ElementsAre(Team{Messages{Cargo::operands, 0, 0}, {0, 2}, {}},
                  Team{Messages{Cargo::operands, 0, 1}, {2, 4}, {}},
                  Team{Calls{Lane::operands, 0}, {0, 1}, {Kind::broadcast}},
                  Team{Calls{Lane::operands, 1}, {3, 2}, {Kind::broadcast}},
                  Team{Calls{Lane::operands_in, 3}, {0, 1, 2, 3, 4}, {Kind::broadcast, Kind::all_reduce}}));
}

TEST(Teams, KnowThePeersOfARank) {
  const schedule::Program plan = small_program();
  const Colours colours(plan);
  const nccl::Peers out = nccl::peers_of(plan, colours, 2, {Cargo::operands, 0, 1});
  EXPECT_THAT(out.to, ElementsAre(4));
  EXPECT_THAT(out.from, ElementsAre());
  EXPECT_THAT(nccl::peers_of(plan, colours, 2, {Cargo::operands, 0, 0}).from, ElementsAre(0));
  EXPECT_THAT(nccl::peers_of(plan, colours, 2, {Cargo::gradients, 0, 0}).from, ElementsAre());
}

TEST(Colours, AreFew) {
  const Colours colours(small_program());
  EXPECT_EQ(colours.count(Cargo::operands), 2);
  EXPECT_EQ(colours.count(Cargo::gradients), 1);
  EXPECT_EQ(Colours(program(5)).count(Cargo::gradients), 3) << "a ring of an odd number of ranks";
}

/// In a ring of five the colours are 0 1 0 1 2.
TEST(Colours, TellTheCommunicatorByTheLowestBitThatDiffers) {
  const Colours colours(program(5));
  EXPECT_EQ(colours.messages(Payload::embeddings, 0, 1), (Messages{Cargo::operands, 0, 0}));
  EXPECT_EQ(colours.messages(Payload::weights, 1, 0), (Messages{Cargo::operands, 0, 1}));
  EXPECT_EQ(colours.messages(Payload::activation_grad, 3, 4), (Messages{Cargo::gradients, 0, 1}));
  EXPECT_EQ(colours.messages(Payload::activation, 4, 0), (Messages{Cargo::operands, 1, 1}));
  EXPECT_EQ(colours.messages(Payload::embeddings_gradient, 0, 4), (Messages{Cargo::gradients, 1, 0}));
  EXPECT_THROW((void)colours.messages(Payload::weights, 0, 2), LogicError);
}

TEST(Rounds, PackTeamsWithoutACommonRank) {
  EXPECT_THAT(nccl::rounds(nccl::teams_of(small_program())),
              ElementsAre(ElementsAre(0), ElementsAre(1, 2), ElementsAre(3), ElementsAre(4)));
  EXPECT_TRUE(nccl::rounds({}).empty());
  const auto team = [](int communicator, std::vector<int> ranks) {
    return Team{Calls{Lane::operands, communicator}, std::move(ranks), {}};
  };
  EXPECT_THAT(nccl::rounds({team(0, {0, 1}), team(1, {1, 2}), team(2, {2, 3})}),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1)));
}

TEST(Rounds, NeedFewSplitsForManyGroups) {
  std::vector<Team> teams;
  for (int group = 0; group < 128; ++group)
    teams.push_back({Calls{Lane::operands, group}, {2 * group, 2 * group + 1}, {}});
  EXPECT_EQ(nccl::rounds(teams).size(), 1u);
}

/// Whatever program: each team in one round, once, and no rank twice in a round.
TEST(Rounds, HoldForEverySchedule) {
  for (const auto& entry : schedule::registry()) {
    if (entry.name == "serial") continue;
    const auto program = schedule::build({.spec = schedule::parse_spec(entry.name),
                                          .groups = topology::Groups({1, 2, 3}),
                                          .micro_batches = 12,
                                          .layers = 7});
    const auto teams = nccl::teams_of(program);
    std::multiset<int> seen;
    for (const auto& round : nccl::rounds(teams)) {
      std::set<int> ranks;
      for (const int t : round) {
        seen.insert(t);
        for (const int rank : teams[t].ranks) EXPECT_TRUE(ranks.insert(rank).second) << entry.name;
      }
    }
    EXPECT_EQ(seen.size(), teams.size()) << entry.name;
    EXPECT_EQ(std::set<int>(seen.begin(), seen.end()).size(), teams.size()) << entry.name;
  }
}

int count(const FakeNccl::Seen& seen, Asked asked, nccl::Queue queue) {
  return static_cast<int>(std::ranges::count_if(seen.launches, [&](const FakeNccl::Launch& launch) {
    return launch.operation.asked == asked && launch.operation.queue == queue;
  }));
}

TEST(NcclTransport, ConnectsInItsConstructor) {
  const int ranks = ranks_of_job();
  const schedule::Program plan = program(ranks);
  BuiltNccl built(plan);
  const FakeNccl::Seen& seen = built.fake().seen();
  const int rank = built.transport().rank(), peers = ranks > 2 ? 2 : 1;
  const auto teams = nccl::teams_of(plan);
  EXPECT_EQ(
      seen.communicators,
      1 + std::ranges::count_if(teams, [&](const Team& t) { return std::ranges::count(t.ranks, rank) > 0; }))
      << "all ranks, and those that this rank needs";
  for (const Payload payload : {Payload::weights, Payload::gradient}) {
    const Lane out = lane_of(Kind::send, payload, false), in = lane_of(Kind::recv, payload, false);
    EXPECT_EQ(count(seen, Asked::send, built.queue(out)), peers);
    EXPECT_EQ(count(seen, Asked::receive, built.queue(ranks > 1 ? in : out)), peers);
  }
  // World and backwards, and the even or odd ranks if there are two of them.
  const int shared = ranks == 1 ? 0 : 2 + ((rank % 2 == 0 ? (ranks + 1) / 2 : ranks / 2) > 1);
  for (std::size_t l = 1; l <= communication_lanes; ++l)
    EXPECT_EQ(count(seen, Asked::reduce, built.queue(static_cast<Lane>(l))), shared);
  EXPECT_EQ(seen.changes_of_queue, 0);
  EXPECT_EQ(built.transport().sent(), schedule::ByteMatrix(ranks)) << "nothing of a step has been sent";
  EXPECT_TRUE(built.transport().on_stream());
}

TEST(NcclTransport, WantsMemoryForItsFirstMessages) {
  const schedule::Program plan = program(ranks_of_job());
  FakeNccl fake;
  Lanes lanes{};
  EXPECT_THROW(nccl::Transport(MPI_COMM_WORLD, plan, fake, {.queues = queues_of(lanes), .scratch = {}}),
               LogicError);
}

TEST(NcclTransport, PlaysABatchAsOneGroupOnItsLanesQueue) {
  const int ranks = ranks_of_job();
  BuiltNccl built(program(ranks));
  Transport& transport = built.transport();
  const FakeNccl::Seen before = built.fake().seen();
  const int next = (transport.rank() + 1) % ranks, previous = (transport.rank() + ranks - 1) % ranks;
  std::vector<std::byte> out(1000), in(1000);
  const std::array batch{Message{true, next, Payload::weights, out.data(), 1000},
                         Message{false, previous, Payload::weights, in.data(), 1000},
                         Message{true, next, Payload::weights, out.data(), 0},
                         Message{false, previous, Payload::weights, in.data(), 0}};
  transport.exchange(Lane::operands_in, batch);
  const FakeNccl::Seen& seen = built.fake().seen();
  EXPECT_EQ(seen.groups, before.groups + 1);
  ASSERT_EQ(seen.launches.size(), before.launches.size() + 2) << "messages of no bytes are left out";
  EXPECT_EQ(seen.launches.back().operation.queue, built.queue(Lane::operands_in));
}

TEST(NcclTransport, GathersUnequalSlicesByBroadcasts) {
  const int ranks = ranks_of_job();
  if (ranks == 1) GTEST_SKIP() << "needs two ranks";
  BuiltNccl built(program(ranks));
  Transport& transport = built.transport();
  const auto calls = [&](Asked asked) {
    return count(built.fake().seen(), asked, built.queue(Lane::operands));
  };
  Values even(Scalar::bf16, 10 * ranks), uneven(Scalar::bf16, 10 * ranks - 1);
  transport.all_gather(Lane::operands, even.collective(0));
  EXPECT_EQ(calls(Asked::all_gather), 1);
  EXPECT_EQ(calls(Asked::broadcast), 0);
  transport.all_gather(Lane::operands, uneven.collective(0));
  EXPECT_EQ(calls(Asked::all_gather), 1);
  EXPECT_EQ(calls(Asked::broadcast), ranks);
}

TEST(NcclTransport, EndsInOrder) {
  const schedule::Program plan = program(ranks_of_job());
  std::vector<std::byte> scratch(std::size_t{1} << 16);
  Lanes lanes{};
  FakeNccl fake;
  {
    const nccl::Transport transport(MPI_COMM_WORLD, plan, fake,
                                    {.queues = queues_of(lanes), .scratch = scratch});
  }
  EXPECT_EQ(fake.seen().closed, fake.seen().communicators);
  EXPECT_EQ(fake.seen().aborted, 0);
}

TEST(NcclTransport, AbortsWhatItHasWhenItCannotBeMade) {
  const schedule::Program plan = program(ranks_of_job());
  FakeNccl fake;
  fake.fail("no route to host");
  EXPECT_THROW(nccl::Transport(MPI_COMM_WORLD, plan, fake, {}), Error);
  EXPECT_EQ(fake.seen().aborted, 1) << "the communicator of all ranks";
}

TEST(NcclTransport, TellsAFailureInTheWordsOfNccl) {
  BuiltNccl built(program(ranks_of_job()));
  Transport& transport = built.transport();
  EXPECT_NO_THROW(transport.poll());
  built.fake().fail("the cable is unplugged");
  try {
    transport.poll();
    FAIL() << "no failure was told";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("the cable is unplugged"), std::string::npos);
  }
  transport.cancel();
  EXPECT_EQ(built.fake().seen().aborted, built.fake().seen().communicators);
  EXPECT_NO_THROW(transport.poll()) << "nothing is left to ask";
  EXPECT_NO_THROW(transport.cancel());
}

TEST(NcclTransport, IsWatchedWhileItWorks) {
  const int ranks = ranks_of_job();
  BuiltNccl built(program(ranks));
  Transport& transport = built.transport();
  std::atomic<bool> done{false};
  std::jthread watchdog([&] {
    while (!done) transport.poll();
  });
  for (int k = 0; k < 20; ++k) {
    Values values = contribution_of(transport.rank(), Scalar::fp32, 1000 + k);
    transport.all_reduce(k % 2 == 0 ? Lane::operands : Lane::operands_in, values.collective(0));
    EXPECT_EQ(values.at(7), sum_of(communicators(ranks)[0].ranks, 7));
  }
  done = true;
}

// The stand-in has to notice what NCCL would not forgive.

struct Bare {
  FakeNccl fake;
  int ranks = ranks_of_job(), rank = 0;
  std::unique_ptr<nccl::Communicator> communicator;
  std::vector<std::byte> memory = std::vector<std::byte>(4096);
  Bare() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    communicator = fake.init(ranks, nccl::UniqueId{}, rank);
  }
  void reduce(std::size_t count, int root) {
    communicator->reduce(memory.data(), memory.data(), count, nccl::Type::fp32, root, nullptr);
  }
  template <class Issue>
  void run(Issue&& issue) {
    fake.group_start();
    issue();
    fake.group_end();
    while (!communicator->ready()) std::this_thread::yield();
  }
};

TEST(FakeNccl, SeesCallsThatDiffer) {
  Bare bare;
  bare.run([&] { bare.reduce(10, 0); });
  if (bare.ranks == 1) return;
  const std::size_t count = bare.rank == 0 ? 10 : 11;
  EXPECT_THROW(bare.run([&] { bare.reduce(count, 0); }), Error) << "counts";
}

TEST(FakeNccl, SeesAnotherOrder) {
  Bare bare;
  if (bare.ranks == 1) GTEST_SKIP() << "needs two ranks";
  const auto both = [&] {
    bare.reduce(10, bare.rank == 0 ? 0 : 1);
    bare.reduce(10, bare.rank == 0 ? 1 : 0);
  };
  EXPECT_THROW(bare.run(both), Error);
}

TEST(FakeNccl, SeesMessagesOfAnotherLength) {
  Bare bare;
  const int next = (bare.rank + 1) % bare.ranks, previous = (bare.rank + bare.ranks - 1) % bare.ranks;
  const auto both = [&](std::size_t out, std::size_t in) {
    bare.communicator->send(bare.memory.data(), out, next, nullptr);
    bare.communicator->receive(bare.memory.data() + 2048, in, previous, nullptr);
  };
  bare.run([&] { both(10, 10); });
  EXPECT_THROW(bare.run([&] { both(10, 12); }), Error);
}

TEST(FakeNccl, SeesMisuse) {
  Bare bare;
  EXPECT_THROW(bare.fake.group_end(), Error) << "a group that never began";
  EXPECT_THROW(bare.reduce(10, 0), Error) << "outside of a group";
  EXPECT_THROW(bare.communicator->abort(), Error) << "alone";
  EXPECT_THROW(bare.run([&] {
    bare.communicator->all_reduce(bare.memory.data(), bare.memory.data() + 4, 10, nccl::Type::fp32, nullptr);
  }),
               Error)
      << "overlapping";
}

TEST(FakeNccl, SeesACommunicatorUsedTooEarly) {
  Bare bare;
  bare.fake.group_start();
  bare.reduce(10, 0);
  bare.fake.group_end();
  bare.fake.group_start();
  EXPECT_THROW(bare.reduce(10, 0), Error);
  bare.fake.group_end();
  while (!bare.communicator->ready()) std::this_thread::yield();
}

}  // namespace
}  // namespace minitaw::comm::test
