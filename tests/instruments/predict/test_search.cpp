// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include "base/error.hpp"
#include "deck/deck.hpp"
#include "instruments/predict/rating.hpp"
#include "machines.hpp"

namespace minitaw::predict {
namespace {
using model::Recompute, topology::Groups;
using Values = std::vector<std::string>;

/// On two nodes of two ranks.
Case base(int sequences) {
  Case c;
  c.schedule = "ddp";
  c.shape = shape_of(4);
  c.ranks = 4;
  c.groups = Groups({2, 2});
  c.micro_batches = sequences;
  return c;
}

/// Every schedule with every combination of what is to be tried.
Values all_schedules() {
  const Values kept = {"",
      ":reshard=group",
      ":reshard=none",
      ":fetch=step:reshard=none",
      ":fetch=step:reduce=none:reshard=none",
      ":fetch=step:reduce=group:reshard=group"};
  const Values twice = {"", ":prefetch=2"}, chunks = {"", ":chunks=2", ":chunks=4"},
               slices = {"", ":slices=4", ":slices=16"};
  const std::map<std::string, std::vector<Values>> options = {{"ddp", {}},
      {"fsdp", {{"", ":hierarchical=on"}, twice, kept}},
      {"1f1b", {chunks, slices}},
      {"zb1", {slices}},
      {"zb2", {}},
      {"zbv", {}},
      {"weipipe", {twice}},
      {"tawpipe", {twice, {"", ":shards=block"}, kept}}};
  Values all;
  for (const auto& [name, choices] : options) {
    Values specs = {name};
    for (const Values& values : choices) {
      Values longer;
      for (const std::string& spec : specs)
        for (const std::string& value : values)
          longer.push_back(spec + value);
      specs = longer;
    }
    all.insert(all.end(), specs.begin(), specs.end());
  }
  return all;
}

/// All cases of so many sequences.
std::vector<Case> all_cases(int sequences) {
  std::vector<Case> all;
  for (const std::string& spec : all_schedules())
    for (const int replicas : {1, 2, 4})
      for (const Groups& groups : {Groups({2, 2}), Groups({1, 1, 1, 1})})
        for (const auto& [micro_batch, context] : {std::pair{1, 1}, {2, 1}, {4, 1}, {1, 2}})
          for (const Recompute recompute :
              {Recompute::none, Recompute::keep_attention, Recompute::block}) {
            Case c = base(sequences);
            c.replicas = replicas;
            c.groups = groups;
            c.shape.micro_batch = micro_batch;
            c.micro_batches = sequences / micro_batch;
            c.shape.context = {0, context};
            c.shape.recompute = recompute;
            try {
              set_schedule(c, spec);
              model::check(c.shape);
            } catch (const InputError&) {
              continue;
            }
            if (schedule::is_buildable(request_of(c)))
              all.push_back(c);
          }
  return all;
}

/// Against all cases, predicted one by one: where links or ranks limit, and where some do not fit.
/// None is faster than its floor.
TEST(Search, FindsTheBestOfEachFamily) {
  for (const auto& [rate, memory] : {std::pair{"30 kB/s", "4 MB"}, {"1 GB/s", "2.2 MB"}}) {
    const Machine m = machine(2,
        2,
        {"device.fp32.products=1 GFLOP/s",
            fmt::format("between.rate={}", rate),
            fmt::format("device.memory={}", memory)});
    std::map<std::string, double> best;  // of families that fit
    for (const Case& c : all_cases(4)) {
      const Plan plan = plan_of(c);
      const Prediction p = predict(plan, m);
      EXPECT_LE(floor_of(plan, m).seconds(), p.seconds * (1 + 1e-9));
      if (!m.has_room(p.memory))
        continue;
      double& seconds =
          best.try_emplace(schedule::parse_spec(c.schedule).name, never).first->second;
      seconds = std::min(seconds, p.seconds);
    }
    const std::vector<Found> found = search(base(4), m);
    ASSERT_EQ(found.size(), 8);
    double last = 0;
    for (const Found& one : found) {
      EXPECT_TRUE(one.in_time);
      EXPECT_EQ(one.prediction.has_value(), best.contains(one.family)) << one.family << one.why;
      if (!one.prediction) {
        EXPECT_EQ(one.why, "does not fit");
        continue;
      }
      EXPECT_GE(one.prediction->seconds, last);
      last = one.prediction->seconds;
      EXPECT_EQ(sequences_of_step(one.asked), 4);
      EXPECT_GE(last, best.at(one.family) * (1 - 1e-9)) << one.family;
      EXPECT_LE(last, best.at(one.family) * 1.01) << deck::identity(one.asked);
    }
    EXPECT_EQ(found.front().prediction->seconds, std::ranges::min(best | std::views::values));

    // Only what is faster than a step, without ranks that share sequences.
    const double half = 0.5 * found.front().prediction->seconds;
    for (const Found& one : search(base(4), m, {.shares_sequences = false, .faster_than = half}))
      EXPECT_TRUE(!one.prediction || one.asked.shape.context.count == 1);
  }
}

TEST(Search, SaysWhatItDidNotTry) {
  for (const Found& found : search(base(4), machine(2, 2), {.deadline = Clock::now()})) {
    EXPECT_EQ(found.why, "not tried");
    EXPECT_FALSE(found.in_time || found.prediction);
  }
}

TEST(Rating, TheNetworkCaseIsOfTheShortestLengthAndTunesNothing) {
  Case longer = base(4);
  longer.shape.seq = 32;
  Case tuned = base(2);
  tuned.shape.micro_batch = 2;
  const Case c = network_case({longer, tuned}, 2);
  EXPECT_EQ(c.schedule, "fsdp:hierarchical=on");
  EXPECT_EQ(std::pair(c.shape.seq, c.replicas), std::pair(std::int64_t{16}, 2));
  EXPECT_EQ(c.shape.recompute, Recompute::block);
  EXPECT_EQ(std::pair(c.micro_batches, c.shape.micro_batch), std::pair(4, std::int64_t{1}));
}
}  // namespace
}  // namespace minitaw::predict
