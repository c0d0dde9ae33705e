// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <gtest/gtest.h>
#include <set>
#include "simulated_machine.hpp"
#include "this_run.hpp"

namespace minitaw::screen {
namespace {
std::vector<std::string> node_names(const topology::Groups& nodes) {
  std::vector<std::string> names;
  for (int n = 0; n < nodes.count(); ++n) names.push_back("node " + std::to_string(n));
  return names;
}

std::vector<Suspect> suspects(const std::vector<Culprit>& culprits) {
  std::vector<Suspect> who;
  for (const Culprit& c : culprits) who.push_back(c.who);
  std::ranges::sort(who);
  return who;
}

class Random {
public:
  explicit Random(unsigned seed) : bits_(seed) {}
  int below(int n) { return static_cast<int>(bits_() % static_cast<unsigned>(n)); }
  /// A ratio around 1: 1.5 % of noise, and now and then a moment in which something else ran.
  double noise() {
    const double usual = std::exp(0.015 * normal_(bits_));
    return below(400) == 0 ? 0.6 * usual : usual;
  }
  Machine machine(int least_nodes) {
    std::vector<int> sizes(least_nodes + below(7));
    for (int& size : sizes) size = 2 + below(4);
    return {topology::Groups(sizes), 1 + below(2)};
  }
private:
  std::mt19937 bits_;
  std::normal_distribution<double> normal_;
};

/// Three rounds on the machine with this fault.
std::vector<Culprit> screened(const Machine& machine, const std::vector<Fault>& faults, Random& random) {
  return judge(machine, SimulatedMachine(machine, faults, [&](const Quantity&) { return random.noise(); }).measure(3));
}

TEST(Judge, NothingStandsOutOnAHealthyMachine) {
  Random random(test::seed());
  int alarms = 0;
  for (int i = 0; i < 300; ++i) alarms += screened(random.machine(1), {}, random).empty() ? 0 : 1;
  EXPECT_LE(alarms, 3);
}

/// Draws a fault of one kind on random machines, which nothing but this fault explains.
void finds(Suspect::Kind kind, double factor, double delay) {
  Random random(test::seed());
  int missed = 0;
  for (int i = 0; i < 100; ++i) {
    const Machine m = random.machine(3);
    const int node = random.below(m.nodes.count()),
              other = (node + 1 + random.below(m.nodes.count() - 1)) % m.nodes.count();
    const int adapter = random.below(m.adapters), driver = m.driver(node, adapter);
    Fault fault{{kind, driver}, factor, delay};
    if (kind == Suspect::rank) fault.who.a = m.nodes.rank(node, random.below(m.nodes.size(node)));
    if (kind == Suspect::node) fault.who.a = node;
    if (kind == Suspect::link) {
      fault.who.a = std::min(driver, m.driver(other, adapter));
      fault.who.b = std::max(driver, m.driver(other, adapter));
    }
    const std::vector<Culprit> found = screened(m, {fault}, random);
    missed += suspects(found) == std::vector{fault.who} ? 0 : 1;
    EXPECT_TRUE(found.empty() || kind != Suspect::link || found.front().both_ways);
  }
  EXPECT_LE(missed, 2) << "of 100 faults of kind " << kind;
}

TEST(Judge, ASlowRankIsNamedAndNobodyElse) { finds(Suspect::rank, 0.7, 0); }
TEST(Judge, ANodeWhoseRanksAreAllSlowIsNamed) { finds(Suspect::node, 0.7, 0); }
TEST(Judge, ASlowAdapterIsNamedAndNotItsLinks) { finds(Suspect::adapter, 0.4, 0); }
TEST(Judge, AnAdapterWithMoreLatencyIsNamed) { finds(Suspect::adapter, 1, 5e-3); }
TEST(Judge, ASlowLinkBetweenNodesIsNamedAndNotItsEnds) { finds(Suspect::link, 0.4, 0); }

TEST(Judge, TwoFaultsAreBothNamed) {
  Random random(test::seed());
  const Machine m{topology::Groups({2, 2, 2, 2, 2, 2}), 1};
  const std::vector<Fault> faults = {{{Suspect::rank, 3}, 0.5}, {{Suspect::adapter, 8}, 0.5}};
  EXPECT_EQ(suspects(screened(m, faults, random)), (std::vector<Suspect>{{Suspect::rank, 3}, {Suspect::adapter, 8}}));
}

/// Values by hand: four ranks on one node, two rounds.
Measured products(const std::vector<std::vector<double>>& rounds) { return {{"matrix product", "FLOP/s"}, rounds}; }

TEST(Judge, ASlowMomentIsNoCulprit) {
  const Machine m{topology::Groups({4}), 1};
  EXPECT_TRUE(judge(m, {products({{10, 10, 6, 10}, {10, 6, 10, 10}, {10, 10, 10, 10}})}).empty());
  const auto found = judge(m, {products({{10, 10, 6, 10}, {10, 10, 10, 10}, {10, 10, 7, 10}})});
  ASSERT_EQ(suspects(found), (std::vector<Suspect>{{Suspect::rank, 2}}));
  const Evidence& evidence = found[0].evidence.at(0);
  EXPECT_EQ(std::tuple(evidence.rounds, evidence.value, evidence.usual), std::tuple(2, 6.5, 10));
  EXPECT_EQ(text_of({"matrix product", "FLOP/s", 6.5e9, 10e9, 2}),
      "matrix product: 6.5 GFLOP/s where 10 GFLOP/s is usual (35 % less) in 2 rounds");
  EXPECT_EQ(
      text_of({"latency", "s", 5e-3, 1e-5, 3}), "latency: 5000.0 us where 10.0 us is usual (500.0 times) in 3 rounds");
}

TEST(Judge, PeersThatDifferByChanceRaiseTheThreshold) {
  const Machine m{topology::Groups({8}), 1};
  const std::vector<double> wide = {10, 9.4, 10.6, 8.9, 11, 10.3, 9.7, 8.5}, narrow = {10, 10, 10, 10, 10, 10, 10, 8.5};
  EXPECT_TRUE(judge(m, {products({wide, wide})}).empty());
  EXPECT_EQ(judge(m, {products({narrow, narrow})}).size(), 1U);
  EXPECT_TRUE(judge(m, {products({narrow, narrow})}, {.least = 0.2}).empty());
}

/// 200 ranks of which each round ten others are slow by chance: one is so twice with some likelihood, not three times.
TEST(Judge, AmongManyRanksChanceNamesNobody) {
  const Machine m{topology::Groups::equal(200, 1), 1};
  std::vector<std::vector<double>> rounds(3, std::vector<double>(200, 10));
  for (int round = 0; round < 3; ++round)
    for (int i = 0; i < 10; ++i) rounds[round][(30 * round + i) % 200] = 7;
  rounds[1][0] = rounds[1][1] = 7;  // slow for the second time
  EXPECT_TRUE(judge(m, {products(rounds)}).empty());
  for (std::vector<double>& round : rounds) round[150] = 7;
  EXPECT_EQ(suspects(judge(m, {products(rounds)})), (std::vector<Suspect>{{Suspect::rank, 150}}));
}

TEST(Judge, OfTwoNodesOfARankTheSlowerRankIsNamedAndTheSlowDirectionAsALink) {
  const Machine m{topology::Groups({1, 1}), 1};
  EXPECT_EQ(suspects(judge(m, {products({{10, 8}, {10, 8}})})), (std::vector<Suspect>{{Suspect::rank, 1}}));
  const double none = std::nan("");
  const std::vector<double> round = {none, 9, 3, none};  // [to][from]: rank 0 receives 9, rank 1 receives 3
  const auto found = judge(m, {{{"rate", "B/s", Partner::node}, {round, round}}});
  ASSERT_EQ(suspects(found), (std::vector<Suspect>{{Suspect::link, 0, 1}}));
  EXPECT_FALSE(found[0].both_ways);
  EXPECT_EQ(name_of(found[0].who, m, node_names(m.nodes)), "link from rank 0 (node 0) to rank 1 (node 1)");
  EXPECT_EQ(nodes_of(found[0], m), (std::vector{0, 1}));
}

/// Messages between four nodes of one rank, [to][from], of which those of nodes 1 and 2 differ.
std::vector<double> between(double usual, double to_2, double to_1) {
  std::vector<double> values(16, usual);
  for (int r = 0; r < 4; ++r) values[5 * r] = std::nan("");
  values[2 * 4 + 1] = to_2;
  values[1 * 4 + 2] = to_1;
  return values;
}

TEST(Judge, ASlowRankAccountsForALinkThatIsAboutAsSlow) {
  const Machine m{topology::Groups({1, 1, 1, 1}), 1};
  const std::vector<double> slow = between(9, 3, 3);
  const Measured rates{{"rate", "B/s", Partner::node}, {slow, slow}};
  EXPECT_EQ(suspects(judge(m, {products({{10, 8, 10, 10}, {10, 8, 10, 10}}), rates})),
      (std::vector<Suspect>{{Suspect::rank, 1}, {Suspect::link, 1, 2}}));
  EXPECT_EQ(suspects(judge(m, {products({{10, 5, 10, 10}, {10, 5, 10, 10}}), rates})),
      (std::vector<Suspect>{{Suspect::rank, 1}}));
  const std::vector<double> held_up = {10, 5, 10, 10}, usual(4, 10);
  EXPECT_EQ(suspects(judge(m, {products({held_up, usual, held_up}), {rates.quantity, {slow, slow, slow}}})),
      (std::vector<Suspect>{{Suspect::rank, 1}, {Suspect::link, 1, 2}}))
      << "but not while the rank is not slow";
}

TEST(Judge, ALinkIsOneCulpritWhicheverWayShowsIt) {
  const Machine m{topology::Groups({1, 1, 1, 1}), 1};
  const std::vector<double> rate = between(9, 3, 9), latency = between(1e-4, 1e-4, 5e-3);
  const auto found = judge(m, {{{"rate", "B/s", Partner::node}, {rate, rate}},
                                  {{"latency", "s", Partner::node, 0.5, true}, {latency, latency}}});
  ASSERT_EQ(suspects(found), (std::vector<Suspect>{{Suspect::link, 1, 2}}));
  EXPECT_TRUE(found[0].both_ways);
  EXPECT_EQ(found[0].evidence.size(), 2U);
}

TEST(Machine, RanksOfANodeShareItsAdaptersEvenly) {
  const Machine m{topology::Groups({4, 2}), 2};
  std::vector<int> adapters;
  for (int r = 0; r < 6; ++r) adapters.push_back(m.adapter_of(r));
  EXPECT_EQ(adapters, (std::vector{0, 0, 1, 1, 0, 1}));
  EXPECT_EQ(std::tuple(m.driver(0, 1), Machine{topology::Groups({1}), 2}.driver(0, 1)), std::tuple(2, -1));
  EXPECT_EQ(std::tuple(m.rank_behind(Partner::node, 3, 1), m.rank_behind(Partner::inside, 4, 3)), std::tuple(5, -1));
}

TEST(Tournament, EachTwoMeetOnceAndNobodyTwiceInARound) {
  for (int n = 1; n <= 17; ++n) {
    std::set<std::pair<int, int>> met;
    const auto rounds = tournament(n);
    EXPECT_EQ(std::ssize(rounds), n - 1 + (n > 1 ? n % 2 : 0)) << n;
    for (const auto& round : rounds) {
      std::set<int> here;
      for (const auto& [a, b] : round) {
        EXPECT_TRUE(a < b && b < n) << a << " " << b;
        EXPECT_TRUE(here.insert(a).second && here.insert(b).second) << n;
        EXPECT_TRUE(met.insert({a, b}).second) << n;
      }
    }
    EXPECT_EQ(std::ssize(met), n * (n - 1) / 2);
  }
}
}  // namespace
}  // namespace minitaw::screen
