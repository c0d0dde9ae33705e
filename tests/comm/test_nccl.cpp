// SPDX-License-Identifier: BSD-3-Clause
// What only the NCCL transport has: its communicators, their first calls, and what it does when
// NCCL fails.
#include <gmock/gmock.h>
#include "base/error.hpp"
#include "transports.hpp"

namespace minitaw::comm::test {
namespace {
using nccl::CommunicatorPlan, testing::ElementsAre;

/// Groups {0, 1}, {2, 3}, {4}, which says nothing, and the world; messages 0 -> 2 -> 4 between
/// groups.
schedule::Program small_program() {
  schedule::Program p;
  p.communicators = {
      {"group0", {0, 1}}, {"group1", {3, 2}}, {"group2", {4}}, {"world", {0, 1, 2, 3, 4}}};
  p.ranks.resize(5);
  const auto add = [&](int rank, Call kind, int peer, int communicator = -1) {
    p.ranks[rank].actions.push_back({.kind = kind,
        .lane = lane_of(kind, Payload::weights, communicator >= 0 && communicator < 3),
        .payload = Payload::weights,
        .peer = peer,
        .communicator = communicator});
  };
  for (const int r : {0, 1, 2, 3, 4}) {
    add(r, Call::broadcast, r - r % 2, r / 2);
    add(r, Call::all_reduce, -1, 3);
    add(r, Call::broadcast, 0, 3);
  }
  for (const int r : {0, 2})
    add(r, Call::send, r + 2), add(r + 2, Call::recv, r);
  return p;
}

TEST(Communicators, AreWhatTheProgramUses) {
  const auto plans = nccl::plan_communicators(small_program());
  constexpr auto sent = Lane::inputs_send, group = Lane::inputs_group, world = Lane::inputs_recv;
  EXPECT_THAT(plans,
      ElementsAre(CommunicatorPlan{.lane = sent, .ranks = {0, 2}, .links = {{0, 2}}},
          CommunicatorPlan{.lane = sent, .ranks = {2, 4}, .links = {{2, 4}}},
          CommunicatorPlan{group, 0, {0, 1}, {Call::broadcast}},
          CommunicatorPlan{group, 1, {3, 2}, {Call::broadcast}},
          CommunicatorPlan{world, 3, {0, 1, 2, 3, 4}, {Call::broadcast, Call::all_reduce}}));
  EXPECT_THAT(nccl::rounds(plans),
      ElementsAre(ElementsAre(0), ElementsAre(1, 2), ElementsAre(3), ElementsAre(4)));
}

TEST(Rounds, NeedFewSplitsForManyGroups) {
  std::vector<CommunicatorPlan> plans;
  for (int group = 0; group < 128; ++group)
    plans.push_back({Lane::inputs_group, group, {2 * group, 2 * group + 1}});
  EXPECT_EQ(nccl::rounds(plans).size(), 1U);
}

/// A rank that is alone needs no communicator.
class NcclTransport : public testing::Test {
protected:
  void SetUp() override {
    if (ranks == 1)
      GTEST_SKIP() << "needs two ranks";
    made.emplace(Kind::nccl, plan);
  }

  /// Calls of a kind so far on the queue of a lane.
  [[nodiscard]] auto count(Call kind, Lane lane) {
    return std::ranges::count_if(made->fake.launches, [&](const FakeNccl::Launch& launch) {
      return launch.call.kind == kind && launch.queue == made->queue(lane);
    });
  }

  int ranks = ranks_of_job();
  schedule::Program plan = program(ranks, Kind::nccl);
  std::optional<Made> made;
};

TEST_F(NcclTransport, ConnectsWhenItIsMade) {
  const int rank = made->transport->rank(), peers = std::min(ranks - 1, 2);
  const auto plans = nccl::plan_communicators(plan);
  const auto is_member = [&](const auto& p) { return std::ranges::count(p.ranks, rank) > 0; };
  EXPECT_EQ(made->fake.communicators, 1 + std::ranges::count_if(plans, is_member))
      << "all ranks, and those that this rank needs";
  for (const Payload payload : {Payload::weights, Payload::gradient})
    for (const Call call : {Call::send, Call::recv})
      EXPECT_EQ(count(call, lane_of(call, payload, false)), peers);
  // World and backwards, and the even or odd ranks if there are two of them.
  const int shared = 2 + ((rank % 2 == 0 ? (ranks + 1) / 2 : ranks / 2) > 1);
  for (const Lane lane : {Lane::inputs_group, Lane::inputs_recv})
    EXPECT_EQ(count(Call::reduce, lane), shared);
  EXPECT_THAT(made->transport->sent(), testing::Each(0U)) << "nothing of a step has been sent";
  EXPECT_TRUE(made->transport->on_stream());
}

TEST_F(NcclTransport, ExecutesAMessageAsOneGroupOnItsLanesQueue) {
  World world(Kind::nccl);
  const FakeNccl& fake = world.made->fake;
  const int groups = fake.groups;
  const std::size_t launches = fake.launches.size();
  Values out(Dtype::fp32, 250), in(Dtype::fp32, 250), nothing(Dtype::fp32, 0);
  world.exchange({out.message(true, world.next),
      in.message(false, world.previous),
      nothing.message(true, world.next),
      nothing.message(false, world.previous)});
  EXPECT_EQ(fake.groups, groups + 2);
  ASSERT_EQ(fake.launches.size(), launches + 2) << "messages of no bytes are left out";
  for (const FakeNccl::Launch& launch : std::span(fake.launches).subspan(launches))
    EXPECT_EQ(launch.queue,
        world.made->queue(launch.call.kind == Call::send ? Lane::inputs_send : Lane::inputs_recv));
}

TEST_F(NcclTransport, GathersUnequalSlicesByBroadcasts) {
  for (const auto& [elements, broadcasts] : {std::pair{10 * ranks, 0}, {10 * ranks - 1, ranks}}) {
    Values values(Dtype::bf16, elements);
    (void)made->transport->start(Lane::inputs_group, Call::all_gather, values.collective(0));
    EXPECT_EQ(count(Call::all_gather, Lane::inputs_group), 1);
    EXPECT_EQ(count(Call::broadcast, Lane::inputs_group), broadcasts);
  }
}

TEST_F(NcclTransport, EndsInOrder) {
  made->transport = nullptr;
  EXPECT_EQ(
      std::pair(made->fake.closed, made->fake.aborted), std::pair(made->fake.communicators, 0));
}

TEST_F(NcclTransport, AbortsWhatItHasWhenItCannotBeMade) {
  FakeNccl without_memory, without_network;
  EXPECT_THROW((void)nccl::make_transport(MPI_COMM_WORLD, plan, without_memory, {}), LogicError);
  without_network.failure = "no route to host";
  EXPECT_THROW((void)nccl::make_transport(MPI_COMM_WORLD, plan, without_network, {}), Error);
  EXPECT_EQ(without_network.aborted, 1) << "the communicator of all ranks";
}

TEST_F(NcclTransport, ReportsAFailureInTheWordsOfNccl) {
  EXPECT_NO_THROW(made->transport->poll());
  made->fake.failure = "the cable is unplugged";
  EXPECT_THAT([&] { made->transport->poll(); },
      testing::ThrowsMessage<Error>(testing::HasSubstr("the cable is unplugged")));
  made->transport = nullptr;
  EXPECT_EQ(made->fake.aborted, made->fake.communicators);
}

TEST_F(NcclTransport, IsWatchedWhileItWorks) {
  World world(Kind::nccl);
  world.made->fake.complete_later = false;
  const std::jthread watchdog([&](const std::stop_token& end) {
    for (; !end.stop_requested(); std::this_thread::sleep_for(std::chrono::microseconds(20)))
      world.transport.poll();
  });
  for (int k = 0; k < 20; ++k)
    EXPECT_EQ(wrong_after(world,
                  k % 2 == 0 ? Lane::inputs_group : Lane::inputs_recv,
                  {.call = Call::all_reduce, .elements = 1000 + k}),
        0);
}
}  // namespace
}  // namespace minitaw::comm::test
