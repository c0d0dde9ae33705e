// Every program on NCCL's communicators: who shares one, which messages meet, and whether all comes to an
// end.
#include <gtest/gtest.h>

#include <bit>
#include <set>

#include "launches.hpp"
#include "possible.hpp"
#include "schedule/shapes.hpp"

namespace minitaw::comm::test {
namespace {

using nccl::Cargo;
using nccl::Messages;
using schedule::Kind;
using schedule::shapes::name_of;

/// Calls visit(request, program) for all schedules with all options on all groupings.
template <class Visit>
void for_each_program(int ranks, const Visit& visit) {
  std::vector<std::string> specs = schedule::shapes::other_specs();
  for (const std::string& spec : schedule::shapes::tawpipe_specs()) specs.push_back(spec);
  const std::vector<int> layers = schedule::shapes::layer_counts(ranks);
  std::size_t turn = 0;
  for (const topology::Groups& groups : schedule::shapes::groupings(ranks))
    for (const std::string& spec : specs)
      for (const int n : {1, 2})
        for (const int replicas : {1, 2}) {
          const schedule::Request request{schedule::parse_spec(spec), groups, n * ranks,
                                          layers[turn % layers.size()], replicas};
          if (ranks % replicas != 0 || !possible(request)) continue;
          ++turn;
          visit(request, build(request));
        }
}

class EveryProgram : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, EveryProgram, testing::Range(2, 8));

/// The communicators for messages that a rank sends on and receives on.
struct Used {
  std::set<Messages> to, from;
};

Used used(const schedule::Program& program, const nccl::Colours& colours, int rank) {
  Used used;
  for (const schedule::Action& a : program.ranks[rank].actions) {
    if (a.kind == Kind::send) used.to.insert(colours.messages(a.payload, rank, a.peer));
    if (a.kind == Kind::recv) used.from.insert(colours.messages(a.payload, a.peer, rank));
  }
  return used;
}

TEST_P(EveryProgram, SendsAndReceivesOnCommunicatorsOfTheirOwn) {
  for_each_program(GetParam(), [](const schedule::Request& request, const schedule::Program& program) {
    const nccl::Colours colours(program);
    std::map<Messages, std::set<int>> users;
    for (int r = 0; r < static_cast<int>(program.ranks.size()); ++r) {
      const auto [to, from] = used(program, colours, r);
      for (const Messages& use : to) {
        ASSERT_FALSE(from.contains(use)) << name_of(request) << ": rank " << r;
        users[use].insert(r);
      }
      for (const Messages& use : from) users[use].insert(r);
    }
    std::array<int, nccl::cargoes> count{};
    for (const nccl::Team& team : nccl::teams_of(program))
      if (const auto* const use = std::get_if<Messages>(&team.use)) {
        ASSERT_EQ(team.ranks, std::vector<int>(users[*use].begin(), users[*use].end())) << name_of(request);
        users.erase(*use);
        ++count[static_cast<std::size_t>(use->cargo)];
      }
    ASSERT_TRUE(users.empty()) << name_of(request);
    for (const Cargo cargo : {Cargo::operands, Cargo::gradients}) {
      const int bits = std::bit_width(static_cast<unsigned>(colours.count(cargo) - 1));
      ASSERT_LE(count[static_cast<std::size_t>(cargo)], 2 * bits) << name_of(request);
    }
  });
}

TEST_P(EveryProgram, MeetsWhatItMeansOnEveryCommunicator) {
  for_each_program(GetParam(), [](const schedule::Request& request, const schedule::Program& program) {
    const Launches launches(program);
    ASSERT_EQ(launches.mismatch(), "") << name_of(request);
    ASSERT_LE(launches.lanes_of_a_communicator(), 1) << name_of(request);
  });
}

TEST_P(EveryProgram, ComesToItsEnd) {
  for_each_program(GetParam(), [](const schedule::Request& request, const schedule::Program& program) {
    Launches launches(program);
    ASSERT_EQ(launches.execute(Device::streams, false), "") << name_of(request);
    ASSERT_EQ(launches.execute(Device::streams, true), "") << name_of(request);
    ASSERT_EQ(launches.execute(Device::one_queue, true), "") << name_of(request);
    ASSERT_EQ(launches.execute(Device::one_at_a_time, false), "") << name_of(request);
  });
}

/// That the execute would notice.
TEST(Launches, ThatWaitForEachOtherStandStill) {
  schedule::Program p;
  p.communicators = {{"world", {0, 1}}};
  p.ranks.resize(2);
  for (const int r : {0, 1})
    for (const Kind kind : {Kind::send, Kind::recv}) {
      schedule::Action a;
      a.kind = kind, a.payload = schedule::Payload::weights, a.peer = 1 - r,
      a.shard = kind == Kind::send ? r : 1 - r;
      a.lane = lane_of(a.kind, a.payload, false);
      p.ranks[r].actions.push_back(a);
    }
  Launches launches(p);
  EXPECT_EQ(launches.mismatch(), "");
  EXPECT_EQ(launches.execute(Device::streams, true), "");
  EXPECT_EQ(launches.execute(Device::one_queue, true), "");
  EXPECT_NE(launches.execute(Device::one_at_a_time, true), "") << "both send first";
  p.ranks[1].actions[0].shard = 7;
  EXPECT_NE(Launches(p).mismatch(), "");
}

}  // namespace
}  // namespace minitaw::comm::test
