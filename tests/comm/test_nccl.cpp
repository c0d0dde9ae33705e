// SPDX-License-Identifier: BSD-3-Clause
// What only the NCCL transport has: its communicators, their first calls, and what it does when
// NCCL fails.
#include <gmock/gmock.h>
#include "base/error.hpp"
#include "transports.hpp"

namespace minitaw::comm::test {
namespace {
using nccl::CommunicatorPlan, testing::ElementsAre;

/// Groups {0, 1}, {2, 3}, {4}, which says nothing, and the world; messages 0 -> 2 -> 4 -> 1 -> 3.
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
  for (const auto& [from, to] : {std::pair{0, 2}, {2, 4}, {4, 1}, {1, 3}}) {
    add(from, Call::send, to);
    add(to, Call::recv, from);
  }
  return p;
}

TEST(Communicators, AreWhatTheProgramUsesFewAndSplitInFewRounds) {
  const auto plans = nccl::plan_communicators(small_program());
  constexpr auto sent = Lane::inputs_send, group = Lane::inputs_group, world = Lane::inputs_recv;
  EXPECT_THAT(plans,
      ElementsAre(CommunicatorPlan{.lane = sent, .ranks = {0, 1, 2, 3}, .links = {{0, 2}, {1, 3}}},
          CommunicatorPlan{.lane = sent, .ranks = {2, 4}, .links = {{2, 4}}},
          CommunicatorPlan{.lane = sent, .ranks = {1, 4}, .links = {{4, 1}}},
          CommunicatorPlan{group, 0, {0, 1}, {Call::broadcast}},
          CommunicatorPlan{group, 1, {3, 2}, {Call::broadcast}},
          CommunicatorPlan{world, 3, {0, 1, 2, 3, 4}, {Call::broadcast, Call::all_reduce}}));
  EXPECT_THAT(nccl::rounds(plans),
      ElementsAre(ElementsAre(0), ElementsAre(1, 3), ElementsAre(2, 4), ElementsAre(5)));
}

class NcclTransport : public testing::Test {
protected:
  void SetUp() override {
    if (world.ranks == 1)
      GTEST_SKIP() << "a rank that is alone needs no communicator";
  }

  /// Calls of a kind so far on the queue of a lane.
  [[nodiscard]] auto count(Call kind, Lane lane) const {
    return std::ranges::count_if(fake.launches, [&](const FakeNccl::Launch& launch) {
      return launch.call.kind == kind && launch.queue == &world.queues[index_of(lane)];
    });
  }

  World world{Kind::nccl};
  FakeNccl& fake = world.fake;
};

TEST_F(NcclTransport, ConnectsWhenItIsMade) {
  const auto plans = nccl::plan_communicators(world.plan);
  EXPECT_EQ(fake.communicators, 1 + std::ranges::count_if(plans, [&](const auto& p) {
    return std::ranges::count(p.ranks, world.rank) > 0;
  })) << "all ranks, and those that this rank needs";
  for (const Payload payload : {Payload::weights, Payload::gradient})
    for (const Call call : {Call::send, Call::recv})
      EXPECT_EQ(count(call, lane_of(call, payload, false)), std::min(world.ranks - 1, 2));
  // World and backwards, and the even or odd ranks if there are two of them.
  const int shared = 2 + (world.members(2 + world.rank % 2).size() > 1 ? 1 : 0);
  for (const Lane lane : {Lane::inputs_group, Lane::inputs_recv})
    EXPECT_EQ(count(Call::reduce, lane), shared);
  EXPECT_THAT(world.transport.sent(), testing::Each(0U)) << "nothing of a step has been sent";
  EXPECT_TRUE(world.transport.on_stream());
}

TEST_F(NcclTransport, ExecutesAMessageOnTheQueueOfItsLane) {
  const auto sends = count(Call::send, Lane::inputs_send),
             receives = count(Call::recv, Lane::inputs_recv);
  Values out(Dtype::fp32, 250), in(Dtype::fp32, 250);
  world.exchange({out.message(true, world.next), in.message(false, world.previous)});
  EXPECT_EQ(count(Call::send, Lane::inputs_send), sends + 1);
  EXPECT_EQ(count(Call::recv, Lane::inputs_recv), receives + 1);
}

TEST_F(NcclTransport, GathersUnequalSlicesByBroadcasts) {
  for (const int broadcasts : {0, world.ranks}) {
    Values values(Dtype::bf16, 10 * world.ranks - (broadcasts > 0 ? 1 : 0));
    world.execute(Lane::inputs_group, Call::all_gather, values.collective(0));
    EXPECT_EQ(count(Call::all_gather, Lane::inputs_group), 1);
    EXPECT_EQ(count(Call::broadcast, Lane::inputs_group), broadcasts);
  }
}

TEST_F(NcclTransport, EndsInOrder) {
  world.owned.reset();
  EXPECT_EQ(std::pair(fake.closed, fake.aborted), std::pair(fake.communicators, 0));
}

TEST_F(NcclTransport, AbortsWhatItHasWhenItCannotBeMade) {
  FakeNccl without_memory, without_network;
  EXPECT_THROW(
      (void)nccl::make_transport(MPI_COMM_WORLD, world.plan, without_memory, {}), LogicError);
  without_network.failure = "no route to host";
  EXPECT_THROW((void)nccl::make_transport(MPI_COMM_WORLD, world.plan, without_network, {}), Error);
  EXPECT_EQ(without_network.aborted, 1) << "the communicator of all ranks";
}

TEST_F(NcclTransport, ReportsAFailureInTheWordsOfNccl) {
  EXPECT_NO_THROW(world.transport.poll());
  fake.failure = "the cable is unplugged";
  EXPECT_THAT([&] { world.transport.poll(); },
      testing::ThrowsMessage<Error>(testing::HasSubstr(fake.failure)));
  world.owned.reset();
  EXPECT_EQ(fake.aborted, fake.communicators);
}

TEST_F(NcclTransport, IsWatchedWhileItWorks) {
  fake.complete_later = false;
  const std::jthread watchdog([&](const std::stop_token& end) {
    for (; !end.stop_requested(); std::this_thread::sleep_for(std::chrono::microseconds(20)))
      world.transport.poll();
  });
  for (int k = 0; k < 20; ++k)
    EXPECT_EQ(
        wrong_after(world, Lane::inputs_group, {.call = Call::all_reduce, .elements = 1000 + k}),
        0);
}
}  // namespace
}  // namespace minitaw::comm::test
