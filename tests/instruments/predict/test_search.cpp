// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <set>
#include "deck/deck.hpp"
#include "instruments/predict/search.hpp"
#include "machines.hpp"

namespace minitaw::predict {
namespace {
/// On two nodes of two ranks.
Case base(int sequences) {
  Case c;
  c.schedule = "ddp";
  c.shape = shape_of(4);
  c.ranks = 4;
  c.groups = topology::Groups({2, 2});
  c.micro_batches = sequences;
  return c;
}

using Values = std::map<std::string, std::set<std::string>>;

/// Of all candidates for twelve sequences a step.
Values values_on(const Machine& m, int seq = 16) {
  Case of_twelve = base(12);
  of_twelve.shape.seq = seq;
  Values values;
  for (const auto& [c, floor, prediction, why] : search(of_twelve, m, 10, 0)) {
    EXPECT_EQ(sequences_of_step(c), 12);
    EXPECT_EQ(why, "were not tried in time");
    const schedule::Spec spec = schedule::parse_spec(c.schedule);
    for (const auto& [option, value] : spec.options)
      values[option].insert(value);
    values["name"].insert(spec.name);
    values["replicas"].insert(fmt::to_string(c.replicas));
    values["groups"].insert(c.groups.text());
    values["recompute"].insert(name_of(c.shape.recompute));
    values["sequences of a micro-batch, ranks of one"].insert(
        fmt::format("{}, {}", c.shape.micro_batch, c.shape.context.count));
  }
  return values;
}

/// A message takes one adapter or all of a node. Ranks of a group share a sequence where that is a
/// micro-batch.
TEST(Search, TriesTheValuesOfEachSetting) {
  Values expected = {{"chunks", {"2", "4"}},
      {"fetch", {"step"}},
      {"hierarchical", {"on"}},
      {"prefetch", {"1", "2"}},
      {"reduce", {"group", "none"}},
      {"reshard", {"group", "none"}},
      {"shards", {"block"}},
      {"slices", {"16", "4"}},
      {"name", {"1f1b", "ddp", "fsdp", "tawpipe", "weipipe", "zb1", "zb2", "zbv"}},
      {"replicas", {"1", "2", "4"}},
      {"groups", {"1+1+1+1", "2+2"}},
      {"recompute", {"block", "keep-attention", "none"}},
      {"sequences of a micro-batch, ranks of one", {"1, 1", "1, 2", "2, 1", "4, 1"}}};
  EXPECT_EQ(values_on(machine(2, 2)), expected);
  expected["rails"] = {"1", "3"};
  EXPECT_EQ(values_on(machine(2, 4, {"between.adapters=3"})), expected);
  expected.erase("rails");
  expected["slices"] = {"4"};
  expected["sequences of a micro-batch, ranks of one"].erase("1, 2");
  EXPECT_EQ(values_on(machine(2, 2), 15), expected) << "a length that is odd, less than 16";
}

/// Of two sequences, against the predictions of all candidates, one by one: where links or ranks
/// limit, and where some do not fit. None is faster than its floor.
TEST(Search, FindsTheBestOfAllCases) {
  constexpr std::size_t best = 6;
  for (const auto& [rate, memory] : {std::pair{"30 kB/s", "4 MB"}, {"1 GB/s", "2.2 MB"}}) {
    const Machine m = machine(2,
        2,
        {"device.fp32.products=1 GFLOP/s",
            fmt::format("between.rate={}", rate),
            fmt::format("device.memory={}", memory)});
    std::set<std::pair<double, std::string>> steps;  // of what fits, groups aside
    std::ptrdiff_t too_large = 0;
    for (Candidate& c : search(base(2), m, best, 0)) {
      const Plan plan = plan_of(c.asked);
      const Prediction p = predict(plan, m);
      EXPECT_LE(floor_of(plan, m).seconds(), p.seconds * (1 + 1e-9));
      c.asked.groups = base(2).groups;
      if (m.has_room(p.memory))
        steps.emplace(p.seconds, deck::identity(c.asked));
      else
        ++too_large;
    }
    const std::vector<Candidate> found = search(base(2), m, best, 1e6);
    auto next = steps.begin();
    for (std::size_t i = 0; i < best; ++i, ++next)
      EXPECT_EQ(found.at(i).prediction.value().seconds, next->first) << rate << i;
    const auto left_out = [&](const std::string& why) {
      return std::ranges::count(found, why, &Candidate::why);
    };
    EXPECT_EQ(left_out("do not fit"), too_large);
    EXPECT_GT(left_out("cannot be faster"), 50);
    EXPECT_GT(left_out("differ in groups alone"), 20);
  }
}
}  // namespace
}  // namespace minitaw::predict
