// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/predict/search.hpp"

#include <gtest/gtest.h>
#include <map>
#include <set>
#include "deck/deck.hpp"

namespace minitaw::predict {
namespace {
/// Two nodes of two ranks over adapters of 10 MB/s.
Machine machine_with(const std::vector<std::string>& changes = {}) {
  return parse_machine("nodes = 2\nranks_per_node = 2\n[device]\nmemory_rate = \"1 GB/s\"\n"
                       "[device.fp32]\nproducts = \"1 GFLOP/s\"\n[inside]\nrate = \"100 MB/s\"\n"
                       "[between]\nrate = \"10 MB/s\"\n",
      "m.toml",
      changes);
}

Case base() {
  Case c;
  c.schedule = "ddp";
  c.shape = {4, 64, 2, 2, 128, 64, 16, 1};
  c.ranks = 4;
  c.groups = topology::Groups({2, 2});
  c.micro_batches = 4;
  return c;
}

/// Of all candidates. A message takes one adapter or all of a node.
TEST(Search, TriesTheValuesOfEachOption) {
  using Values = std::map<std::string, std::set<std::string>>;
  const auto values_on = [](const std::vector<std::string>& machine) {
    Values values;
    Case twelve = base();
    twelve.micro_batches = 12;
    for (const Candidate& c : search(twelve, machine_with(machine), 10, 0)) {
      EXPECT_EQ(sequences_of_step(c.asked), 12);
      for (const auto& [option, value] : schedule::parse_spec(c.asked.schedule).options)
        values[option].insert(value);
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
      {"slices", {"16", "4"}}};
  EXPECT_EQ(values_on({}), expected);
  expected["rails"] = {"1", "3"};
  EXPECT_EQ(values_on({"ranks_per_node=4", "between.adapters=3"}), expected);
}

/// Where a micro-batch is one sequence, ranks of a group share it.
TEST(Search, TriesRanksThatShareSequences) {
  std::set<std::tuple<int, std::int64_t>> seen;  // ranks a sequence, sequences a micro-batch
  for (const Candidate& c : search(base(), machine_with(), 10, 0)) {
    seen.emplace(c.asked.shape.context.count, c.asked.shape.micro_batch);
    EXPECT_EQ(sequences_of_step(c.asked), 4);
    EXPECT_NO_THROW(schedule::check(request_of(c.asked)));
  }
  EXPECT_EQ(seen, (std::set<std::tuple<int, std::int64_t>>{{1, 1}, {1, 2}, {1, 4}, {2, 1}}));
  Case odd = base();
  odd.shape.seq = 15;
  for (const Candidate& c : search(odd, machine_with(), 10, 0)) {
    EXPECT_EQ(c.asked.shape.context.count, 1);
    EXPECT_LE(c.asked.shape.slices, 4);
  }
}

/// None is there twice, and none is faster than its bound.
TEST(Search, PredictsAllThatMayBeAmongTheBest) {
  std::set<std::string> cases;
  for (const Candidate& c : search(base(), machine_with(), 1000, 1e6)) {
    EXPECT_TRUE(cases.insert(deck::identity(c.asked)).second) << deck::identity(c.asked);
    EXPECT_TRUE(c.floor.seconds() > 0 &&
                (!c.prediction || c.floor.seconds() <= c.prediction->seconds * (1 + 1e-9)));
    EXPECT_NE(c.prediction.has_value(), !c.why.empty());
  }
}

TEST(Search, EndsInTime) {
  for (const Candidate& c : search(base(), machine_with(), 10, 0))
    EXPECT_TRUE(c.why == "were not tried in time" && !c.prediction) << c.why;
}
}  // namespace
}  // namespace minitaw::predict
