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
using schedule::Kind, schedule::shapes::name_of;

/// The actions of a rank in the order of the engine's one thread; shorter than the program if it
/// gets stuck.
std::vector<int> issue_order(const schedule::RankProgram& rank) {
  std::array<std::vector<int>, schedule::lanes> queues;
  for (int l = 0; l < schedule::lanes; ++l)
    queues[l] = actions_of(rank, static_cast<schedule::Lane>(l));
  std::vector<int> order;
  std::array<std::size_t, schedule::lanes> gone{};
  const auto may_go = [&](int l) {
    if (gone[l] == queues[l].size())
      return false;
    const auto& waits = rank.actions[queues[l][gone[l]]].waits;
    for (int k = 0; k < schedule::lanes; ++k)  // its own lane is in order
      if (k != l && static_cast<std::size_t>(waits[k]) > gone[k])
        return false;
    return true;
  };
  for (;;) {
    int chosen = -1;
    for (int l = 0; l < schedule::lanes; ++l)
      if (may_go(l) && (chosen < 0 || queues[l][gone[l]] < queues[chosen][gone[chosen]]))
        chosen = l;
    if (chosen < 0)
      return order;
    order.push_back(queues[chosen][gone[chosen]++]);
  }
}

/// The program as NCCL executes it at worst. It tells messages apart by their communicator alone,
/// so those of inputs, and those of gradients, have one payload here, and what they really are is
/// part of their shard. No launch begins before those issued earlier on its rank are over: if that
/// comes to an end, it does so whatever streams and hosts, which may wait for each other in a
/// collective, let begin earlier.
schedule::Program one_at_a_time(schedule::Program program) {
  using schedule::Payload;
  for (schedule::RankProgram& rank : program.ranks) {
    std::array<std::int32_t, schedule::lanes> issued{};
    for (const int i : issue_order(rank)) {
      schedule::Action& a = rank.actions[i];
      a.waits = issued;
      ++issued[index_of(a.lane)];
      if (!is_point_to_point(a.kind))
        continue;
      const bool input =
          lane_of(schedule::Kind::send, a.payload, false) == schedule::Lane::inputs_send;
      a.shard = 16 * a.shard + static_cast<int>(a.payload);
      a.payload = input ? Payload::weights : Payload::gradient;
    }
  }
  return program;
}

/// No rank sends and receives on the same communicator, each has the ranks that use it, and they
/// are few. Each is split off in one round, once, and no rank twice in a round.
void expect_communicators(const schedule::Program& program) {
  using Links = std::set<std::pair<int, int>>;
  std::map<schedule::Lane, Links> links, planned;
  std::map<schedule::Lane, std::map<int, std::set<int>>> neighbours;
  std::map<schedule::Lane, unsigned> count;
  for (int r = 0; r < static_cast<int>(program.ranks.size()); ++r)
    for (const schedule::Action& a : program.ranks[r].actions) {
      if (!is_point_to_point(a.kind))
        continue;
      const schedule::Lane sender = lane_of(Kind::send, a.payload, false);
      links[sender].insert(a.kind == Kind::send ? std::pair(r, a.peer) : std::pair(a.peer, r));
      neighbours[sender][r].insert(a.peer);
    }
  const auto plans = nccl::plan_communicators(program);
  for (const nccl::CommunicatorPlan& plan : plans) {
    if (plan.communicator >= 0)
      continue;
    ++count[plan.lane];
    std::set<int> senders, receivers, users;
    for (const auto& [from, to] : plan.links) {
      senders.insert(from), receivers.insert(to), users.insert({from, to});
      ASSERT_TRUE(planned[plan.lane].insert({from, to}).second) << "twice";
    }
    ASSERT_EQ(users.size(), senders.size() + receivers.size()) << "a rank does both";
    ASSERT_EQ(plan.ranks, std::vector<int>(users.begin(), users.end()));
  }
  ASSERT_EQ(planned, links);
  for (const auto& [lane, peers] : neighbours) {
    std::size_t most = 0;  // a greedy colouring has one colour more than neighbours
    for (const auto& [rank, others] : peers)
      most = std::max(most, others.size());
    ASSERT_LE(count[lane], 2U * std::bit_width(most));
  }
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

/// And on each of its communicators by one lane, in whose order the calls are.
void expect_an_end(const schedule::Program& program) {
  for (const schedule::RankProgram& rank : program.ranks) {
    ASSERT_EQ(issue_order(rank).size(), rank.actions.size());
    std::map<std::pair<schedule::Lane, Kind>, schedule::Lane> lanes;  // by direction
    for (const schedule::Action& a : rank.actions) {
      if (!is_point_to_point(a.kind))
        continue;
      const std::pair direction{lane_of(Kind::send, a.payload, false), a.kind};
      ASSERT_EQ(lanes.try_emplace(direction, a.lane).first->second, a.lane);
    }
  }
  ASSERT_NO_THROW((void)schedule::simulate(
      one_at_a_time(whole_job(program)), [](int, const schedule::Action&) { return 1.0; }));
}

/// A launch on a communicator that several ranks have, as each of them knows it.
using Launch = std::tuple<std::string, Kind, schedule::Payload, int, int, int, int>;

/// By pair of ranks, what the first launches that the second launches as well: collectives of both,
/// and their messages. Only the program's own order decides, no clock and no simulation.
std::map<std::pair<int, int>, std::vector<Launch>> launches_of_pairs(
    const schedule::Program& program) {
  std::map<std::pair<int, int>, std::vector<Launch>> launches;
  for (int r = 0; r < static_cast<int>(program.ranks.size()); ++r)
    for (const int i : issue_order(program.ranks[r])) {
      const schedule::Action& a = program.ranks[r].actions[i];
      const auto add = [&](int other, const std::string& communicator, Kind kind) {
        launches[{r, other}].emplace_back(
            communicator, kind, a.payload, a.shard, a.micro_batch, a.block, a.part);
      };
      if (is_point_to_point(a.kind))
        add(a.peer, std::to_string(a.kind == Kind::send ? r : a.peer), Kind::send);
      if (!is_collective(a.kind))
        continue;
      const auto& [name, ranks] = program.communicators[a.communicator];
      for (const int other : ranks)
        if (other != r)
          add(other, name, a.kind);
    }
  return launches;
}

void expect_one_order(const schedule::Program& program) {
  const auto launches = launches_of_pairs(program);
  for (const auto& [pair, of_first] : launches) {
    const auto found = launches.find({pair.second, pair.first});
    ASSERT_TRUE(found != launches.end() && found->second == of_first)
        << "ranks " << pair.first << " and " << pair.second;
  }
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
    expect_an_end(program);
    expect_one_order(whole_job(program));
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
