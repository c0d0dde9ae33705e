// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <set>
#include "deck/deck.hpp"
#include "instruments/predict/search.hpp"
#include "machines.hpp"

namespace minitaw::predict {
namespace {
/// On two nodes of two ranks.
Case base(int micro_batches = 4) {
  Case c;
  c.schedule = "ddp";
  c.shape = shape_of(4);
  c.ranks = 4;
  c.groups = topology::Groups({2, 2});
  c.micro_batches = micro_batches;
  return c;
}

/// Of all candidates. A message takes one adapter or all of a node.
TEST(Search, TriesTheValuesOfEachSetting) {
  using Values = std::map<std::string, std::set<std::string>>;
  const auto values_on = [](const Machine& m) {
    Values values;
    for (const Candidate& c : search(base(12), m, 10, 0)) {
      EXPECT_EQ(sequences_of_step(c.asked), 12);
      EXPECT_EQ(c.why, "were not tried in time");
      const schedule::Spec spec = schedule::parse_spec(c.asked.schedule);
      for (const auto& [option, value] : spec.options)
        values[option].insert(value);
      values["name"].insert(spec.name);
      values["replicas"].insert(fmt::to_string(c.asked.replicas));
      values["groups"].insert(c.asked.groups.text());
      values["recompute"].insert(name_of(c.asked.shape.recompute));
    }
    return values;
  };
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
      {"recompute", {"block", "keep-attention", "none"}}};
  EXPECT_EQ(values_on(machine(2, 2)), expected);
  expected["rails"] = {"1", "3"};
  EXPECT_EQ(values_on(machine(2, 4, {"between.adapters=3"})), expected);
}

/// Where a micro-batch is one sequence, ranks of a group share it.
TEST(Search, TriesRanksThatShareSequences) {
  std::set<std::tuple<int, std::int64_t>> seen;  // ranks a sequence, sequences a micro-batch
  for (const Candidate& c : search(base(), machine(2, 2), 10, 0)) {
    seen.emplace(c.asked.shape.context.count, c.asked.shape.micro_batch);
    EXPECT_EQ(sequences_of_step(c.asked), 4);
  }
  EXPECT_EQ(seen, (std::set<std::tuple<int, std::int64_t>>{{1, 1}, {1, 2}, {1, 4}, {2, 1}}));
  Case odd = base();
  odd.shape.seq = 15;
  for (const Candidate& c : search(odd, machine(2, 2), 10, 0)) {
    EXPECT_EQ(c.asked.shape.context.count, 1);
    EXPECT_LE(c.asked.shape.slices, 4);
  }
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
      c.asked.groups = base().groups;
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
