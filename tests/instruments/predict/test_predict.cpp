// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include "base/error.hpp"
#include "deck/deck.hpp"
#include "machines.hpp"

namespace minitaw::predict {
namespace {
using schedule::Action, schedule::Kind, topology::Groups;

Case case_of(const std::string& schedule, const Groups& groups) {
  Case c;
  c.schedule = schedule;
  c.ranks = groups.ranks();
  c.groups = groups;
  c.shape = shape_of(4);
  c.micro_batches = 2 * c.ranks;
  return c;
}

/// Where no two transfers share a link, SimGrid and the plan's own clock agree on every action.
TEST(Predict, AgreesWithThePlanWhereNothingIsShared) {
  for (const char* spec : {"1f1b", "zb1", "zb2"}) {
    const Plan planned = plan_of(case_of(spec, Groups({3})));
    const schedule::Costs costs = [&](int, const Action& a) {
      if (schedule::is_communication(a.kind))
        return schedule::moved_bytes(a, planned->layout) / 1e9;
      return schedule::is_visit(a.kind) ? 1e-6 * (3 + static_cast<int>(a.kind)) : 0;
    };
    const auto plan = schedule::simulate(*planned->program, costs);
    const Prediction p = simulate({planned, machine(1, 3, {"inside.kind=pairs"})}, costs);
    const double last = schedule::idle(*planned->program, plan).seconds;
    EXPECT_NEAR(p.seconds / last, 1, 1e-4) << spec;
    for (std::size_t r = 0; r < plan.size(); ++r)
      for (std::size_t i = 0; i < plan[r].size(); ++i)
        EXPECT_NEAR(p.spans[r][i].ready, plan[r][i].ready, 1e-4 * last) << spec;
  }
}

/// T = 3 * 16, H = A = 64, F = 128, V = 64: FLOPs over 1, 0.5 (attention), 0.25 GFLOP/s (backward),
/// memory, and 1 ms each.
TEST(Predict, TimesActionsByHand) {
  constexpr double before_last = 2 * 48 * 64 * (192 + 64 + 256), last = 2 * 48 * 128 * 64,
                   scores = 2 * 48 * 16 * 64, forward_rest = 48 * (5 * 64 + 3 * 128 + 2 * 128) * 4,
                   backward_rest = 48 * (8 * 64 + 6 * 128 + 2 * 128) * 4;
  constexpr double matrices = before_last + last;
  const std::map<Kind, double> flops = {{Kind::forward, matrices + 2 * scores + forward_rest},
      {Kind::backward, 2 * matrices + 8 * scores + backward_rest + before_last + forward_rest},
      {Kind::loss, 6 * 48 * 64 * 64 + 48 * (2 * 64 + 6 * 64) * 4},
      {Kind::embed, 2 * 48 * 64 * 4},
      {Kind::update, 64 * 129 * 32},  // the embeddings come last
      {Kind::join, -1e6}};            // not even the overhead
  Case c = case_of("ddp", Groups({2}));
  c.shape.recompute = model::Recompute::keep_attention;
  c.shape.micro_batch = 3;
  const Plan plan = plan_of(c);
  const Prediction p = predict(plan,
      machine(1,
          2,
          {"device.fp32.products=1 GFLOP/s",
              "device.fp32.attention=0.5 GFLOP/s",
              "device.fp32.attention_backward=0.25 GFLOP/s",
              "device.memory_rate=1 GB/s",
              "device.overhead=1 ms"}));
  std::map<Kind, double> seconds;
  for (std::size_t i = 0; i < p.spans[1].size(); ++i)
    seconds[plan->program->ranks[1].actions[i].kind] = p.spans[1][i].end - p.spans[1][i].begin;
  for (const auto& [kind, expected] : flops)
    EXPECT_NEAR(seconds[kind], 1e-3 + 1e-9 * expected, 1e-8) << static_cast<int>(kind);
}

/// As if all were simulated: eight of a node each, and three on nodes of their own.
TEST(Predict, OneReplicaStandsForAll) {
  for (const auto& [schedule, groups, replicas, nodes, moving, taper] :
      {std::tuple{"tawpipe", Groups::equal(32, 16), 8, 16, "1 TB/s", 0.25},
          {"fsdp", Groups({12}), 3, 3, "50 MB/s", 1.0}}) {
    Case c = case_of(schedule, groups);
    c.replicas = replicas;
    const Machine m = machine(nodes,
        c.ranks / nodes,
        {"device.processors=1",
            fmt::format("device.moving={}", moving),
            fmt::format("between.taper={}", taper)});
    const Plan plan = plan_of(c);
    const Prediction one = predict(plan, m), all = predict(SimulatedStep{plan, m, true});
    EXPECT_EQ(all.spans.size(), replicas * one.spans.size());
    EXPECT_NEAR(one.seconds / all.seconds, 1, 1e-6) << schedule;
    EXPECT_NEAR(one.traffic.busiest, all.traffic.busiest, 1);
    EXPECT_NEAR(one.traffic.between, all.traffic.between, 1);
    EXPECT_NEAR(one.tokens_per_s * one.seconds, 2 * c.ranks * 16, 1e-6) << "of all replicas";
    EXPECT_LE(floor_of(plan, m).seconds(), one.seconds);
  }
}

/// Three replicas of four ranks.
TEST(Predict, ReplicasAreAlikeOnNodesOfTheirOwn) {
  Case c = case_of("fsdp", Groups({12}));
  c.replicas = 3;
  for (const auto& [nodes, alike] : {std::pair{3, true}, {6, true}, {2, false}, {4, false}})
    EXPECT_EQ(replicas_are_alike(c, machine(nodes, 12 / nodes)), alike) << nodes;
}

/// The slowest and the fastest of the links of docs/predict.md; the rates were fitted on another.
TEST(Predict, ComesCloseToMeasuredSteps) {
  const std::string inputs = MINITAW_SOURCE_DIR "/inputs/";
  for (const auto& [rate, schedule, seconds] :
      {std::tuple{"48.8", "tawpipe", 23.44}, {"48.8", "weipipe", 59.88}, {"976", "fsdp", 3.31}}) {
    const Machine m = read_machine(
        inputs + "machines/cluster-2x2.toml", {fmt::format("between.rate={} Mbit/s", rate)});
    const deck::Deck deck = deck::read_deck(inputs + "wires/nodes.toml",
        {fmt::format("schedule={}", schedule)},
        {.ranks = 4, .node_sizes = {2, 2}, .planning = true});
    EXPECT_NEAR(predict(plan_of(deck.cases.at(0)), m).seconds / seconds, 1, 0.05)
        << schedule << " " << rate;
  }
}

TEST(Predict, RefusesWhatDoesNotFit) {
  EXPECT_THROW((void)predict(plan_of(case_of("fsdp", Groups({2, 2}))), machine(1, 2)), InputError);
  Case bf16 = case_of("fsdp", Groups({2}));
  bf16.shape.dtype = model::Dtype::bf16;
  EXPECT_THROW((void)predict(plan_of(bf16), machine(1, 2)), InputError);
}
}  // namespace
}  // namespace minitaw::predict
