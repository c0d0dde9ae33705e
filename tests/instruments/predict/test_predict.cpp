// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include "base/error.hpp"
#include "deck/deck.hpp"
#include "machines.hpp"

namespace minitaw::predict {
namespace {
using schedule::Action, schedule::Kind, schedule::Payload, topology::Groups;

double visit(const Action& a) {
  if (a.kind == Kind::backward)
    return 3;
  return a.kind == Kind::backward_input ? 2 : schedule::is_visit(a.kind) ? 1 : 0;
}

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
      return schedule::is_communication(a.kind) ? schedule::moved_bytes(a, planned->layout) / 1e9
                                                : 3e-6 * visit(a);
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

TEST(Predict, RanksShareProcessors) {
  const Plan plan = plan_of(case_of("ddp", Groups({4})));
  const auto computing = [&](int nodes, const std::string& change) {
    const auto costs = [](int, const Action& a) { return visit(a); };
    return simulate({plan, machine(nodes, 4 / nodes, {change})}, costs).account.ranks[3].compute;
  };
  for (const auto& [nodes, processors, times] : {std::tuple(1, 4, 1), {1, 1, 4}, {2, 1, 2}})
    EXPECT_NEAR(computing(nodes, fmt::format("device.processors={}", processors)),
        times * computing(nodes, "nodes=" + fmt::to_string(nodes)),
        1e-4)
        << times;
}

/// T = 16, H = A = 64, F = 128, V = 64: FLOPs over 1, 0.5 (attention), 0.25 GFLOP/s (backward),
/// memory, and 1 ms each.
TEST(Predict, TimesActionsByHand) {
  constexpr double before_last = 2 * 16 * 64 * (192 + 64 + 256), last = 2 * 16 * 128 * 64,
                   scores = 2 * 16 * 16 * 64, forward_rest = 16 * (5 * 64 + 3 * 128 + 2 * 128) * 4,
                   backward_rest = 16 * (8 * 64 + 6 * 128 + 2 * 128) * 4;
  constexpr double matrices = before_last + last, forward = matrices + 2 * scores + forward_rest,
                   backward = 2 * matrices + 8 * scores + backward_rest;
  const Machine m = machine(1,
      2,
      {"device.fp32.products=1 GFLOP/s",
          "device.fp32.attention=0.5 GFLOP/s",
          "device.fp32.attention_backward=0.25 GFLOP/s",
          "device.memory_rate=1 GB/s",
          "device.overhead=1 ms",
          "device.fp32.peak=2 GFLOP/s"});
  for (const auto& [recompute, b, again] : {std::tuple(model::Recompute::none, 1, 0.0),
           {model::Recompute::keep_attention, 3, before_last + forward_rest},
           {model::Recompute::block, 1, before_last + 2 * scores + forward_rest}}) {
    Case c = case_of("ddp", Groups({2}));
    c.shape.recompute = recompute;
    c.shape.micro_batch = b;
    const Plan plan = plan_of(c);
    const Prediction p = predict(plan, m);
    const std::map<Kind, double> flops = {{Kind::forward, b * forward},
        {Kind::backward, b * (backward + again)},
        {Kind::loss, b * (6 * 16 * 64 * 64 + 16 * (2 * 64 + 6 * 64) * 4)},
        {Kind::embed, b * 2 * 16 * 64 * 4},
        {Kind::update, 64 * 129 * 32}};  // the embeddings come last
    for (int r = 0; r < 2; ++r) {
      std::map<Kind, double> seconds;
      for (std::size_t i = 0; i < p.spans[r].size(); ++i)
        seconds[plan->program->ranks[r].actions[i].kind] = p.spans[r][i].end - p.spans[r][i].begin;
      for (const auto& [kind, expected] : flops)
        EXPECT_NEAR(seconds[kind], 1e-3 + 1e-9 * expected, 1e-8) << static_cast<int>(kind);
      EXPECT_EQ(seconds[Kind::join], 0);
    }
    const double useful = 6 * (4 * matrices / 32 + 64 * 64) + 6 * 4 * 16 * 64;
    EXPECT_NEAR(p.mfu, useful * 4 * b * 16 / p.seconds / (2 * 2e9), 1e-9);
  }
}

/// Two ranks on nodes of their own share three sequences: heads and tails have half of the tokens
/// each, and half of that passes the link. Keys and values have 2 * 2 * 2 numbers a token in bf16,
/// their gradients may be fp32. Slices differ in length; without them keys pass twice.
TEST(Predict, TimesKeysAndTheirGradientsByHand) {
  for (const auto& [schedule, fp32, lengths] :
      std::vector<std::tuple<std::string, bool, std::map<Payload, std::vector<int>>>>{
          {"1f1b", false, {{Payload::keys, {120, 120}}, {Payload::key_gradient, {120}}}},
          {"1f1b", true, {{Payload::keys, {120, 120}}, {Payload::key_gradient, {120}}}},
          {"1f1b:slices=3",
              true,
              {{Payload::keys, {60, 32, 28}}, {Payload::key_gradient, {28, 32, 60}}}}}) {
    Case c = case_of(schedule, Groups({2}));
    c.shape = {1, 16, 8, 2, 8, 11, 120, 3, model::Dtype::bf16};
    set_schedule(c, schedule);
    c.micro_batches = 1;
    c.shape.context = {0, 2};
    c.shape.fp32_key_gradients = fp32;
    const Plan plan = plan_of(c);
    const Prediction p = simulate(
        {plan, machine(2, 1, {"between.rate=1 MB/s"})}, [](int, const Action&) { return 0; });
    std::map<Payload, std::vector<int>> found;
    for (std::size_t i = 0; i < p.spans[0].size(); ++i) {
      const Action& a = plan->program->ranks[0].actions[i];
      if (a.part == 1 || (a.payload != Payload::keys && a.payload != Payload::key_gradient))
        continue;
      const int width = fp32 && a.payload == Payload::key_gradient ? 4 : 2;
      const double bytes = 1e6 * (p.spans[0][i].end - p.spans[0][i].begin);
      found[a.payload].push_back(static_cast<int>(std::lround(4 * bytes / (3 * 8 * width))));
    }
    EXPECT_EQ(found, lengths) << schedule << fp32;
  }
}

/// As if all were simulated: eight of a node each, and three on nodes of their own.
TEST(Predict, OneReplicaStandsForAll) {
  for (const auto& [schedule, groups, replicas, nodes, moving, taper] :
      {std::tuple{"tawpipe", Groups::equal(32, 16), 8, 16, "1 TB/s", 0.25},
          {"tawpipe", Groups::equal(32, 16), 8, 16, "50 MB/s", 1.0},
          {"fsdp", Groups({12}), 3, 3, "50 MB/s", 0.25},
          {"fsdp", Groups({12}), 3, 3, "1 TB/s", 1.0}}) {
    SCOPED_TRACE(fmt::format("{} {}", schedule, moving));
    Case c = case_of(schedule, groups);
    c.replicas = replicas;
    const Machine m = machine(nodes,
        c.ranks / nodes,
        {"device.fp32.peak=2 TFLOP/s",
            "device.processors=1",
            fmt::format("device.moving={}", moving),
            fmt::format("between.taper={}", taper)});
    const Prediction one = predict(plan_of(c), m),
                     all = predict(SimulatedStep{plan_of(c), m, true});
    EXPECT_EQ(all.spans.size(), replicas * one.spans.size());
    EXPECT_NEAR(one.seconds / all.seconds, 1, 1e-6);
    EXPECT_NEAR(one.traffic.busiest, all.traffic.busiest, 1);
    EXPECT_NEAR(one.traffic.between, all.traffic.between, 1);
    EXPECT_NEAR(one.tokens_per_s * one.seconds, 2 * c.ranks * 16, 1e-6) << "of all replicas";
    EXPECT_NEAR(one.mfu / all.mfu, 1, 1e-6);
    EXPECT_EQ(one.memory, all.memory);
    EXPECT_LE(floor_of(plan_of(c), m).seconds(), one.seconds);
  }
}

/// Three replicas of four ranks.
TEST(Predict, ReplicasAreAlikeOnNodesOfTheirOwn) {
  Case c = case_of("fsdp", Groups({12}));
  c.replicas = 3;
  for (const auto& [nodes, alike] :
      {std::pair{3, true}, {6, true}, {12, true}, {2, false}, {1, false}, {4, false}})
    EXPECT_EQ(replicas_are_alike(c, machine(nodes, 12 / nodes)), alike) << nodes;
}

/// The slowest and the fastest of the links of docs/predict.md; the rates were fitted on another.
TEST(Predict, ComesCloseToMeasuredSteps) {
  const std::string inputs = MINITAW_SOURCE_DIR "/inputs/";
  for (const auto& [rate, schedule, seconds] : {std::tuple{"48.8", "tawpipe", 23.44},
           {"48.8", "fsdp:hierarchical=on", 27.38},
           {"48.8", "weipipe", 59.88},
           {"976", "fsdp", 3.31}}) {
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
