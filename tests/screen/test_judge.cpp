// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <gtest/gtest.h>
#include <set>
#include "simulated_machine.hpp"
#include "this_run.hpp"

namespace minitaw::screen {
namespace {
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
      text_of({"rate", "B/s", 1.5e6, 124.95e6, 1}), "rate: 12 Mbit/s where 1 Gbit/s is usual (99 % less) in 1 round");
}

/// Nine ranks: one has 10, seven differ by +- `apart` from it, and one of them has `value`. Is it named?
bool is_named(double apart, double value, const Rule& rule = {}, bool is_latency = false) {
  std::vector<double> round = {value, 10, 10 + apart};
  while (round.size() < 9) round.insert(round.end(), {10 - apart, 10 + apart});
  Quantity quantity{"product", "FLOP/s"};
  if (is_latency) {  // 10: 90 us, and the floor of 10 us
    for (double& v : round) v = 1e-3 / v - 10e-6;
    quantity = {"latency", "s", Partner::none, 0.5, true};
  }
  return !judge({topology::Groups({9}), 1}, {{quantity, {round, round}}}, rule).empty();
}

TEST(Judge, ThresholdsByHand) {
  EXPECT_TRUE(is_named(0, 8.9) && !is_named(0, 9.1)) << "a tenth";
  // 6 * 1.4826 * 0.2 are 1.78
  EXPECT_TRUE(is_named(0.2, 8.1) && !is_named(0.2, 8.3)) << "six standard deviations";
  EXPECT_TRUE(is_named(1.2, 4.9) && !is_named(1.2, 5.1)) << "half always counts";
  EXPECT_TRUE(is_named(0, 6.9, {.least = 0.3}) && !is_named(0, 7.1, {.least = 0.3}));
  const Rule strict{.least = 0.3};
  EXPECT_TRUE(is_named(0, 4.9, strict, true) && !is_named(0, 5.1, strict, true)) << "twice the latency";
  EXPECT_TRUE(is_named(1.2, 0.9, {}, true) && !is_named(1.2, 1.1, {}, true)) << "ten times always counts";
}

/// Of 100 ranks in three rounds one is slow in the first `times`, others once each, spread over the rounds.
bool is_named_beside(int times, int others) {
  std::vector<std::vector<double>> rounds(3, std::vector<double>(100, 10));
  for (int i = 0; i < others; ++i) rounds[i % 3][i] = 7;
  for (int i = 0; i < times; ++i) rounds[i][99] = 7;
  const std::vector<Suspect> found = suspects(judge({topology::Groups({100}), 1}, {products(rounds)}));
  EXPECT_TRUE(found.empty() || (found.size() == 1 && found[0] == Suspect{Suspect::rank, 99}));
  return !found.empty();
}

/// Of n others in 300 tries, chance is expected to name 100 * 3 (n / 300)^2 twice, and 100 (n / 300)^3 three times.
TEST(Judge, AmongManyRanksChanceNamesNobody) {
  EXPECT_TRUE(is_named_beside(2, 3)) << 0.03;
  EXPECT_FALSE(is_named_beside(2, 4)) << 0.053;
  EXPECT_TRUE(is_named_beside(3, 23)) << 0.045;
  EXPECT_FALSE(is_named_beside(3, 24)) << 0.051;
}

TEST(Judge, OfTwoNodesOfARankTheSlowerRankIsNamedAndTheSlowDirectionAsALink) {
  const Machine m{topology::Groups({1, 1}), 1};
  EXPECT_EQ(suspects(judge(m, {products({{10, 8}, {10, 8}})})), (std::vector<Suspect>{{Suspect::rank, 1}}));
  const double none = std::nan("");
  const std::vector<double> round = {none, 9, 3, none};  // [to][from]: rank 0 receives 9, rank 1 receives 3
  const auto found = judge(m, {{{"rate", "B/s", Partner::node}, {round, round}}});
  ASSERT_EQ(suspects(found), (std::vector<Suspect>{{Suspect::link, 0, 1}}));
  EXPECT_FALSE(found[0].both_ways);
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

TEST(Judge, ALinkIsJudgedByWhatItsTwoEndsReach) {
  const Machine m{topology::Groups({1, 1, 1, 1}), 1};
  const auto names = [&](double link, bool sends) {
    std::vector<double> round = between(9, 0, 9);
    for (int peer : {0, 2, 3}) (sends ? round[peer * 4 + 1] : round[2 * 4 + (peer == 2 ? 1 : peer)]) = 8.3;
    round[2 * 4 + 1] = link;
    return suspects(judge(m, {{{"rate", "B/s", Partner::node}, {round, round}}}));
  };
  for (const bool sends : {true, false}) {  // rank 1 sends, or rank 2 receives, 8.3 from all others
    EXPECT_TRUE(names(7.6, sends).empty()) << "8 % less than they reach";
    EXPECT_EQ(names(7.3, sends), (std::vector<Suspect>{{Suspect::link, 1, 2}})) << "12 % less";
  }
}

TEST(Judge, AnAdapterIsAsGoodAsAQuarterOfItsPartners) {
  for (const int good : {1, 2}) {  // of five
    std::vector<double> round(36, 9);
    for (int r = 0; r < 6; ++r) round[7 * r] = std::nan("");
    for (int from = good + 1; from < 6; ++from) round[1 * 6 + from] = 4;
    const Measured rates{{"rate", "B/s", Partner::node}, {round, round}};
    const auto found = judge({topology::Groups({1, 1, 1, 1, 1, 1}), 1}, {rates});
    EXPECT_EQ(found.size(), good == 1 ? 1U : 3U);
    EXPECT_EQ(found[0].who.kind, good == 1 ? Suspect::adapter : Suspect::link);
    EXPECT_EQ(found[0].evidence.at(0).quantity, good == 1 ? "rate, in" : "rate");
  }
}

TEST(Judge, ASlowAdapterExcusesNoLinkInsideItsNode) {
  const Machine m{topology::Groups({3, 3, 3}), 1};
  const std::vector<Fault> faults = {{{Suspect::adapter, 3}, 0.5}, {{Suspect::link, 3, 4}, 0.4}};
  const auto found = judge(m, SimulatedMachine(m, faults, [](const Quantity&) { return 1; }).measure(2));
  EXPECT_EQ(suspects(found), (std::vector<Suspect>{{Suspect::adapter, 3}, {Suspect::link, 3, 4}}));
  const std::vector<Fault> node = {{{Suspect::node, 1}, 0.5}, {{Suspect::adapter, 3}, 0.5}};
  const auto slow = judge(m, SimulatedMachine(m, node, [](const Quantity&) { return 1; }).measure(2));
  EXPECT_EQ(suspects(slow), (std::vector<Suspect>{{Suspect::node, 1}})) << "which excuses its adapter";
}

TEST(Judge, TwoSlowRanksOfThreeAreNotTheirNode) {
  const std::vector<double> two = {10, 10, 10, 8, 10, 8, 10, 10, 10}, three = {10, 10, 10, 8, 8, 8, 10, 10, 10};
  const Machine m{topology::Groups({3, 3, 3}), 1};
  const auto found = judge(m, {products({two, two})});
  EXPECT_EQ(suspects(found), (std::vector<Suspect>{{Suspect::rank, 3}, {Suspect::rank, 5}}));
  EXPECT_EQ(nodes_of(found.at(1), m), std::vector{1});
  const auto node = judge(m, {products({three, three})});
  ASSERT_EQ(suspects(node), (std::vector<Suspect>{{Suspect::node, 1}}));
  EXPECT_EQ(nodes_of(node[0], m), std::vector{1});
  const std::vector<double> one = {10, 10, 10, 8, 10, 10, 10, 10, 10};
  EXPECT_EQ(suspects(judge(m, {products({one, one}), {{"triad", "B/s"}, {three, three}}})),
      (std::vector<Suspect>{{Suspect::rank, 3}, {Suspect::node, 1}}));
  const auto twice = judge(m, {products({one, one}), {{"triad", "B/s"}, {one, one}}});
  EXPECT_TRUE(twice.size() == 1 && twice[0].evidence.size() == 2);
}

TEST(Judge, MicrosecondsMakeNoLatency) {
  const Machine m{topology::Groups({1, 1, 1, 1}), 1};
  const auto names = [&](double seconds) {
    const std::vector<double> round = between(10e-6, seconds, 10e-6);
    return judge(m, {{{"latency", "s", Partner::node, 0.5, true}, {round, round}}});
  };
  EXPECT_TRUE(names(28e-6).empty()) << "(28 + 10) / (10 + 10) is less than 2";
  const auto found = names(32e-6);
  ASSERT_EQ(suspects(found), (std::vector<Suspect>{{Suspect::link, 1, 2}}));
  EXPECT_EQ(text_of(found[0].evidence.at(0)), "latency: 32.0 us where 10.0 us is usual (3.2 times) in 2 rounds");
}

TEST(Judge, ASlowRankAccountsForALinkThatIsAboutAsSlow) {
  const Machine m{topology::Groups({1, 1, 1, 1}), 1};
  const std::vector<double> slow = between(9, 3, 3);
  const Measured rates{{"rate", "B/s", Partner::node}, {slow, slow}};
  EXPECT_EQ(suspects(judge(m, {products({{10, 7.2, 10, 10}, {10, 7.2, 10, 10}}), rates})),
      (std::vector<Suspect>{{Suspect::rank, 1}, {Suspect::link, 1, 2}}));
  EXPECT_EQ(suspects(judge(m, {products({{10, 6, 10, 10}, {10, 6, 10, 10}}), rates})),
      (std::vector<Suspect>{{Suspect::rank, 1}}));
  const std::vector<double> held_up = {10, 5, 10, 10}, usual(4, 10);
  EXPECT_EQ(suspects(judge(m, {products({held_up, usual, held_up}), {rates.quantity, {slow, slow, slow}}})),
      (std::vector<Suspect>{{Suspect::rank, 1}, {Suspect::link, 1, 2}}))
      << "but not while the rank is not slow";
  const std::vector<double> late = between(1e-4, 1e-3, 1e-3);
  const Measured latencies{{"latency", "s", Partner::node, 0.5, true}, {late, late, late}};
  EXPECT_EQ(
      suspects(judge(m, {products({held_up, usual, held_up}), latencies})), (std::vector<Suspect>{{Suspect::rank, 1}}))
      << "latencies may be long, and in all rounds";
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

TEST(Machine, CulpritsHaveTheirNames) {
  const Machine m{topology::Groups({2, 4}), 2}, one{topology::Groups({2, 4}), 1};
  const std::vector<std::string> names = {"alpha", "beta"};
  EXPECT_EQ(name_of({Suspect::rank, 3}, m, names), "rank 3 (beta)");
  EXPECT_EQ(name_of({Suspect::node, 1}, m, names), "beta");
  EXPECT_EQ(name_of({Suspect::adapter, 4}, m, names), "adapter 1 of beta (rank 4)");
  EXPECT_EQ(name_of({Suspect::adapter, 2}, one, names), "adapter of beta (rank 2)");
  EXPECT_EQ(name_of({Suspect::link, 1, 4}, m, names), "link from rank 1 (alpha) to rank 4 (beta)");
  EXPECT_EQ(name_of({Suspect::link, 1, 4}, m, names, true), "link between rank 1 (alpha) and rank 4 (beta)");
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
