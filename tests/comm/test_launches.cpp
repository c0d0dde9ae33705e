// SPDX-License-Identifier: BSD-3-Clause
// Every program on NCCL's communicators: who shares one, which messages meet, and whether all comes
// to an end.
#include <gtest/gtest.h>
#include "comm/nccl/transport.hpp"
#include "schedule/shapes.hpp"
#include "schedule/simulate.hpp"
#include "schedule/whole_job.hpp"

namespace minitaw::comm::test {
namespace {
using schedule::Kind, schedule::Lane, schedule::shapes::name_of;

/// The program as NCCL executes it at worst. It tells messages apart by their communicator alone,
/// so those of inputs, and those of gradients, have one payload here, and what they really are is
/// part of their shard. One thread launches all in the order of the program, and no launch begins
/// before those in front of it are over: if that comes to an end, it does so whatever streams and
/// hosts, which may wait for each other in a collective, let begin earlier.
schedule::Program one_at_a_time(schedule::Program program) {
  using schedule::Payload;
  for (schedule::RankProgram& rank : program.ranks) {
    schedule::LaneCounts issued{};
    for (schedule::Action& a : rank.actions) {
      a.waits = issued;
      ++issued[index_of(a.lane)];
      if (!is_point_to_point(a.kind))
        continue;
      a.shard = 16 * a.shard + static_cast<int>(a.payload);
      a.payload = lane_of(Kind::send, a.payload, false) == Lane::inputs_send ? Payload::weights
                                                                             : Payload::gradient;
    }
  }
  return program;
}

/// No rank sends and receives on the same communicator, and each has the ranks that use it. Each is
/// split off in one round, once, and no rank twice in a round. A rank calls it on one lane, in
/// whose order the calls are.
void expect_communicators(const schedule::Program& program) {
  std::map<Lane, std::set<std::pair<int, int>>> links, planned;
  std::map<std::tuple<Lane, int, Kind>, Lane> callers;
  for (const int r : indices(program.ranks))
    for (const schedule::Action& a : program.ranks[r].actions) {
      if (!is_point_to_point(a.kind))
        continue;
      const Lane sender = lane_of(Kind::send, a.payload, false);
      links[sender].insert(a.kind == Kind::send ? std::pair(r, a.peer) : std::pair(a.peer, r));
      ASSERT_EQ(callers.try_emplace({sender, r, a.kind}, a.lane).first->second, a.lane);
    }
  const auto plans = nccl::plan_communicators(program);
  for (const nccl::CommunicatorPlan& plan : plans) {
    if (plan.communicator >= 0)
      continue;
    std::set<int> senders, receivers, users;
    for (const auto& [from, to] : plan.links) {
      senders.insert(from);
      receivers.insert(to);
      users.insert({from, to});
      ASSERT_TRUE(planned[plan.lane].insert({from, to}).second) << "twice";
    }
    ASSERT_EQ(users.size(), senders.size() + receivers.size()) << "a rank does both";
    ASSERT_EQ(plan.ranks, std::vector<int>(users.begin(), users.end()));
  }
  ASSERT_EQ(planned, links);
  std::set<int> seen;
  for (const auto& round : nccl::rounds(plans)) {
    std::set<int> ranks;
    for (const int p : round) {
      ASSERT_TRUE(seen.insert(p).second);
      for (const int rank : plans[p].ranks)
        ASSERT_TRUE(ranks.insert(rank).second);
    }
  }
  ASSERT_EQ(seen.size(), plans.size());
}

class EveryProgram : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Ranks, EveryProgram, testing::Values(5, 6));

/// All schedules with all options on all groupings, alone and with ranks that share sequences.
TEST_P(EveryProgram, MeetsWhatItMeansLaunchesInOneOrderAndComesToItsEnd) {
  std::set<std::string> names;
  const auto visit = [&](const schedule::Request& request) {
    if (HasFatalFailure())
      return;
    SCOPED_TRACE(name_of(request));
    const schedule::Program program = schedule::build(request);
    expect_communicators(program);
    ASSERT_NO_THROW((void)schedule::simulate(
        one_at_a_time(whole_job(program)), [](int, const schedule::Action&) { return 1.0; }));
    for (const schedule::Communicator& communicator : program.communicators)
      names.insert(communicator.name);
  };
  const auto specs = schedule::shapes::joined(
      {schedule::shapes::other_specs(), schedule::shapes::tawpipe_specs()});
  schedule::shapes::for_each_request(GetParam(), specs, 2, visit);
  EXPECT_TRUE(names.contains("world"));
  EXPECT_EQ(names.contains("context0.tails"), GetParam() != 5);
}
}  // namespace
}  // namespace minitaw::comm::test
