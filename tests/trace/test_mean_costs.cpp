#include "trace/mean_costs.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "schedule/registry.hpp"

namespace minitaw::trace {
namespace {

using schedule::Action;
using schedule::Kind;
using schedule::Lane;
using schedule::Payload;

Event event(int rank, Lane lane, Kind kind, Payload payload, int shard, int link, double begin, double end,
            int peer = -1) {
  Event e;
  e.rank = rank;
  e.lane = lane;
  e.peer = peer;
  e.kind = kind;
  e.payload = payload;
  e.shard = shard;
  e.link = link;
  e.begin = begin;
  e.end = end;
  return e;
}

Action action(Lane lane, Kind kind, Payload payload, int shard, int peer = -1) {
  Action a;
  a.peer = peer;
  a.lane = lane;
  a.kind = kind;
  a.payload = payload;
  a.shard = shard;
  return a;
}

TEST(MeanCosts, AreMeansOverActionsThatAreAlike) {
  Timeline t;
  t.measured = true;
  t.groups = topology::Groups({2, 1});
  t.events = {event(0, Lane::compute, Kind::forward, Payload::none, 0, -1, 0, 2),
              event(1, Lane::compute, Kind::forward, Payload::none, 0, -1, 1, 5),
              event(1, Lane::compute, Kind::forward, Payload::none, 1, -1, 5, 6),
              // Begun on both sides at 3, over at 7; and at 8 and 10.
              event(0, Lane::operands_out, Kind::send, Payload::weights, 0, 4, 1, 5, 2),
              event(2, Lane::operands_in, Kind::recv, Payload::weights, 0, 4, 3, 7, 0),
              event(2, Lane::operands_out, Kind::send, Payload::weights, 0, 5, 8, 9, 0),
              event(0, Lane::operands_in, Kind::recv, Payload::weights, 0, 5, 2, 10, 2),
              // Buffered: over before the other side begins.
              event(0, Lane::operands_out, Kind::send, Payload::weights, 0, 6, 0, 1, 1),
              event(1, Lane::operands_in, Kind::recv, Payload::weights, 0, 6, 5, 5.5, 0)};
  const schedule::Costs costs = mean_costs(t);
  EXPECT_DOUBLE_EQ(costs(2, action(Lane::compute, Kind::forward, Payload::none, 0)), 3);
  EXPECT_DOUBLE_EQ(costs(0, action(Lane::compute, Kind::forward, Payload::none, 1)), 1);
  EXPECT_DOUBLE_EQ(costs(0, action(Lane::operands_out, Kind::send, Payload::weights, 0, 2)), 3);
  EXPECT_DOUBLE_EQ(costs(0, action(Lane::operands_out, Kind::send, Payload::weights, 0, 1)), 0.5);
  EXPECT_THROW((void)costs(0, action(Lane::compute, Kind::backward, Payload::none, 0)), InputError);
  EXPECT_THROW((void)costs(0, action(Lane::gradients_out, Kind::send, Payload::gradient, 0, 2)), InputError);
}

TEST(MeanCosts, OfRanksThatDoNotComputeAlikeAreTheirOwn) {
  Timeline t;
  t.groups = topology::Groups({2});
  t.events = {event(0, Lane::compute, Kind::forward, Payload::none, 0, -1, 0, 2),
              event(0, Lane::compute, Kind::forward, Payload::none, 0, -1, 2, 5),
              event(1, Lane::compute, Kind::forward, Payload::none, 0, -1, 1, 5),
              event(0, Lane::gradients, Kind::reduce, Payload::gradient, 0, 1, 3, 5),
              event(1, Lane::gradients, Kind::reduce, Payload::gradient, 0, 1, 2, 5)};
  const schedule::Costs costs = mean_costs(t, true);
  EXPECT_DOUBLE_EQ(costs(0, action(Lane::compute, Kind::forward, Payload::none, 0)), 2.5);
  EXPECT_DOUBLE_EQ(costs(1, action(Lane::compute, Kind::forward, Payload::none, 0)), 4);
  EXPECT_DOUBLE_EQ(costs(1, action(Lane::gradients, Kind::reduce, Payload::gradient, 0)), 2);
}

// A step that went exactly as planned gives the same plan again, where no batch hides how long its messages
// took.
TEST(MeanCosts, OfASimulatedStepAreItsOwn) {
  for (const char* spec : {"tawpipe", "fsdp", "ddp"}) {
    const schedule::Program program =
        schedule::build({schedule::parse_spec(spec), topology::Groups({5}), 10, 7});
    const auto spans = schedule::simulate(program, [](int, const Action& a) {
      return 1.0 + static_cast<int>(a.kind) + 0.25 * a.shard + 0.125 * static_cast<int>(a.payload);
    });
    const auto again = schedule::simulate(program, mean_costs(make_timeline(program, spans, "", true)));
    for (std::size_t r = 0; r < spans.size(); ++r)
      for (std::size_t i = 0; i < spans[r].size(); ++i)
        ASSERT_NEAR(again[r][i].end, spans[r][i].end, 1e-9) << spec << ", rank " << r << ", action " << i;
  }
}

}  // namespace
}  // namespace minitaw::trace
