// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <set>
#include "base/range.hpp"
#include "simulated_machine.hpp"
#include "this_run.hpp"

namespace minitaw::screen {
namespace {
std::vector<Suspect> parts_of(const std::vector<Culprit>& culprits) {
  std::vector<Suspect> who;
  for (const Culprit& c : culprits)
    who.push_back(c.suspect);
  std::ranges::sort(who);
  return who;
}

std::vector<Culprit> culprits_of(
    const Wiring& m, const std::vector<Measurement>& measured, double least_loss = 0) {
  return judge(m, measured, least_loss).culprits;
}

class Random {
public:
  explicit Random(unsigned seed) : bits_(seed) {}

  int below(int n) { return static_cast<int>(bits_() % static_cast<unsigned>(n)); }

  double noise() { return noise_of(bits_, normal_); }

  Wiring machine(int least_nodes) {
    std::vector<int> sizes(least_nodes + below(7));
    for (int& size : sizes)
      size = 2 + below(4);
    return {topology::Groups(sizes), 1 + below(2)};
  }

private:
  std::mt19937 bits_;
  std::normal_distribution<double> normal_;
};

/// Three rounds on the machine with this fault.
std::vector<Culprit> screened(
    const Wiring& machine, const std::vector<Fault>& faults, Random& random) {
  return judge(machine,
      SimulatedMachine(machine, faults, [&](const Quantity&) { return random.noise(); }).measure(3))
      .culprits;
}

TEST(Judge, NothingStandsOutOnAHealthyMachine) {
  Random random(test::seed());
  int alarms = 0;
  for (int i = 0; i < 300; ++i)
    alarms += screened(random.machine(1), {}, random).empty() ? 0 : 1;
  EXPECT_LE(alarms, 3);
}

/// Draws a fault of one kind on random machines, which nothing but this fault explains.
void finds(Suspect::Kind kind, double factor, double delay) {
  Random random(test::seed());
  int missed = 0;
  for (int i = 0; i < 100; ++i) {
    const Wiring m = random.machine(3);
    const int node = random.below(m.nodes.count()),
              other = (node + 1 + random.below(m.nodes.count() - 1)) % m.nodes.count();
    const int adapter = random.below(m.adapters), driver = m.driver(node, adapter);
    Fault fault{{kind, {driver}}, factor, delay};
    if (kind == Suspect::rank)
      fault.suspect.ranks = {m.nodes.rank(node, random.below(m.nodes.size(node)))};
    if (kind == Suspect::node)
      fault.suspect.ranks = m.nodes.members(node);
    if (kind == Suspect::link) {
      fault.suspect.ranks.push_back(m.driver(other, adapter));
      std::ranges::sort(fault.suspect.ranks);
    }
    const std::vector<Culprit> found = screened(m, {fault}, random);
    missed += parts_of(found) == std::vector{fault.suspect} ? 0 : 1;
    EXPECT_TRUE(found.empty() || kind != Suspect::link || found.front().evidence.size() > 1);
  }
  EXPECT_LE(missed, 2) << "of 100 faults of kind " << kind;
}

TEST(Judge, ASlowRankIsNamedAndNoOther) {
  finds(Suspect::rank, 0.7, 0);
}

TEST(Judge, ANodeWhoseRanksAreAllSlowIsNamed) {
  finds(Suspect::node, 0.7, 0);
}

TEST(Judge, ASlowAdapterIsNamedAndNotItsLinks) {
  finds(Suspect::adapter, 0.4, 0);
}

TEST(Judge, AnAdapterWithMoreLatencyIsNamed) {
  finds(Suspect::adapter, 1, 5e-3);
}

TEST(Judge, ASlowLinkBetweenNodesIsNamedAndNotItsEnds) {
  finds(Suspect::link, 0.4, 0);
}

/// Values by hand: four ranks on one node, two rounds.
Measurement products(const std::vector<std::vector<double>>& rounds) {
  return {{"matrix product", "FLOP/s"}, rounds};
}

TEST(Judge, ASlowMomentIsNoCulprit) {
  const Wiring m{topology::Groups({4}), 1};
  EXPECT_TRUE(
      culprits_of(m, {products({{10, 10, 6, 10}, {10, 6, 10, 10}, {10, 10, 10, 10}})}).empty());
  const auto found =
      culprits_of(m, {products({{10, 10, 6, 10}, {10, 10, 10, 10}, {10, 10, 7, 10}})});
  ASSERT_EQ(parts_of(found), (std::vector<Suspect>{{Suspect::rank, {2}}}));
  const Evidence& evidence = found[0].evidence.at(0);
  EXPECT_EQ(std::tuple(evidence.rounds, evidence.value, evidence.usual), std::tuple(2, 6.5, 10));
  EXPECT_EQ(text_of(Evidence{{"matrix product", "FLOP/s"}, "", 6.5e9, 10e9, 2}),
      "matrix product: 6.5 GFLOP/s where 10 GFLOP/s is usual (35 % less) in 2 rounds");
}

/// Nine ranks: one has 10, seven differ by +- `apart` from it, and one of them has `value`. Is it
/// named?
bool is_named(double apart, double value, double least_loss = 0, bool is_latency = false) {
  std::vector<double> round = {value, 10, 10 + apart};
  while (round.size() < 9)
    round.insert(round.end(), {10 - apart, 10 + apart});
  Quantity quantity{"product", "FLOP/s"};
  if (is_latency) {  // 10: 90 us, and the floor of 10 us
    for (double& v : round)
      v = 1e-3 / v - 10e-6;
    quantity = {"latency", "s"};
  }
  return !culprits_of({topology::Groups({9}), 1}, {{quantity, {round, round}}}, least_loss).empty();
}

TEST(Judge, ThresholdsByHand) {
  EXPECT_TRUE(is_named(0, 8.9) && !is_named(0, 9.1)) << "a tenth";
  // 6 * 1.4826 * 0.2 are 1.78
  EXPECT_TRUE(is_named(0.2, 8.1) && !is_named(0.2, 8.3)) << "six standard deviations";
  EXPECT_TRUE(is_named(1.2, 4.9) && !is_named(1.2, 5.1)) << "half always counts";
  EXPECT_TRUE(is_named(0, 6.9, 0.3) && !is_named(0, 7.1, 0.3));
  EXPECT_TRUE(is_named(0, 4.9, 0.3, true) && !is_named(0, 5.1, 0.3, true)) << "twice the latency";
  EXPECT_TRUE(is_named(1.2, 0.9, 0, true) && !is_named(1.2, 1.1, 0, true))
      << "ten times always counts";
}

TEST(Judge, AmongFewPeersAMomentIsTwiceAsLarge) {
  const Wiring few{topology::Groups({6}), 1}, many{topology::Groups({9}), 1};
  const auto named = [](const Wiring& m, double slow, double other) {
    std::vector<std::vector<double>> rounds(3, std::vector<double>(m.nodes.ranks(), 10));
    rounds[0][2] = rounds[1][2] = slow;
    rounds[2][2] = other;
    return !culprits_of(m, {products(rounds)}).empty();
  };
  EXPECT_FALSE(named(few, 8.8, 10)) << "as two quiet screenings of six nodes have measured it";
  EXPECT_TRUE(named(few, 7.9, 10)) << "a fifth";
  EXPECT_TRUE(named(few, 8.8, 8.8)) << "or in all rounds";
  EXPECT_TRUE(named(many, 8.8, 10)) << "whose peers show what is usual";
}

TEST(Judge, HalfOfManyPeersMayBeSlow) {
  const Wiring m{topology::Groups({10}), 1};
  const std::vector<double> round = {10, 6, 10, 6, 10, 6, 10, 6, 10, 6};
  EXPECT_EQ(culprits_of(m, {products({round, round})}).size(), 5U)
      << "and tell nothing of the spread of the others";
}

/// Of 100 ranks in three rounds one is slow in the first `times`, others once each, spread over the
/// rounds.
bool is_named_beside(int times, int others) {
  std::vector<std::vector<double>> rounds(3, std::vector<double>(100, 10));
  for (int i = 0; i < others; ++i)
    rounds[i % 3][i] = 7;
  for (int i = 0; i < times; ++i)
    rounds[i][99] = 7;
  const std::vector<Suspect> found =
      parts_of(culprits_of({topology::Groups({100}), 1}, {products(rounds)}));
  EXPECT_TRUE(found.empty() || (found.size() == 1 && found[0] == Suspect{Suspect::rank, {99}}));
  return !found.empty();
}

/// Of n others in 300 tries, chance is expected to name 100 * 3 (n / 300)^2 twice, and 100 (n /
/// 300)^3 three times.
TEST(Judge, AmongManyRanksChanceNamesNone) {
  EXPECT_TRUE(is_named_beside(2, 3)) << 0.03;
  EXPECT_FALSE(is_named_beside(2, 4)) << 0.053;
  EXPECT_TRUE(is_named_beside(3, 23)) << 0.045;
  EXPECT_FALSE(is_named_beside(3, 24)) << 0.051;
}

TEST(Judge, OfTwoNodesOfARankTheSlowerRankIsNamedAndTheSlowDirectionOfTheLink) {
  const Wiring m{topology::Groups({1, 1}), 1};
  EXPECT_EQ(parts_of(culprits_of(m, {products({{10, 8}, {10, 8}})})),
      (std::vector<Suspect>{{Suspect::rank, {1}}}));
  const double none = std::nan("");
  const std::vector<double> round = {
      none, 9, 3, none};  // [to][from]: rank 0 receives 9, rank 1 receives 3
  const auto found = culprits_of(m, {{{"rate", "B/s", Partner::node}, {round, round}}});
  ASSERT_EQ(parts_of(found), (std::vector<Suspect>{{Suspect::link, {0, 1}}}));
  ASSERT_EQ(found[0].evidence.size(), 1U);
  EXPECT_EQ(found[0].evidence[0].way, ", to rank 1");
  EXPECT_EQ(nodes_of(found[0].suspect, m), (std::vector{0, 1}));
}

/// Messages between four nodes of one rank, [to][from], of which those of nodes 1 and 2 differ.
std::vector<double> between(double usual, double to_2, double to_1) {
  std::vector<double> values(16, usual);
  for (int r = 0; r < 4; ++r)
    values[5 * r] = std::nan("");
  values[2 * 4 + 1] = to_2;
  values[1 * 4 + 2] = to_1;
  return values;
}

TEST(Judge, ALinkIsJudgedByWhatItsTwoEndsReach) {
  const Wiring m{topology::Groups({1, 1, 1, 1}), 1};
  const auto names = [&](double link, bool sends) {
    std::vector<double> round = between(9, 0, 9);
    for (int peer : {0, 2, 3})
      (sends ? round[peer * 4 + 1] : round[2 * 4 + (peer == 2 ? 1 : peer)]) = 8.3;
    round[2 * 4 + 1] = link;
    return parts_of(culprits_of(m, {{{"rate", "B/s", Partner::node}, {round, round}}}));
  };
  for (const bool sends : {true, false}) {  // rank 1 sends, or rank 2 receives, 8.3 from all others
    EXPECT_TRUE(names(7.6, sends).empty()) << "8 % less than they reach";
    EXPECT_EQ(names(7.3, sends), (std::vector<Suspect>{{Suspect::link, {1, 2}}})) << "12 % less";
  }
}

TEST(Judge, AnAdapterIsAsGoodAsAQuarterOfItsPartners) {
  for (const int good : {1, 2}) {  // of five
    std::vector<double> round(36, 9);
    for (int r = 0; r < 6; ++r)
      round[7 * r] = std::nan("");
    for (int from = good + 1; from < 6; ++from)
      round[1 * 6 + from] = 4;
    const Measurement rates{{"rate", "B/s", Partner::node}, {round, round}};
    const auto found = culprits_of({topology::Groups({1, 1, 1, 1, 1, 1}), 1}, {rates});
    EXPECT_EQ(found.size(), good == 1 ? 1U : 3U);
    EXPECT_EQ(found[0].suspect.kind, good == 1 ? Suspect::adapter : Suspect::link);
    EXPECT_EQ(found[0].evidence.at(0).way, good == 1 ? ", in" : ", to rank 1");
  }
}

TEST(Judge, ASlowAdapterExcusesNoLinkInsideItsNode) {
  const Wiring m{topology::Groups({3, 3, 3}), 1};
  const std::vector<Fault> faults = {
      {{Suspect::adapter, {3}}, 0.5}, {{Suspect::link, {3, 4}}, 0.4}};
  const auto found =
      culprits_of(m, SimulatedMachine(m, faults, [](const Quantity&) { return 1; }).measure(2));
  EXPECT_EQ(
      parts_of(found), (std::vector<Suspect>{{Suspect::adapter, {3}}, {Suspect::link, {3, 4}}}));
  const std::vector<Fault> node = {
      {{Suspect::node, {3, 4, 5}}, 0.5}, {{Suspect::adapter, {3}}, 0.5}};
  const auto slow =
      culprits_of(m, SimulatedMachine(m, node, [](const Quantity&) { return 1; }).measure(2));
  EXPECT_EQ(parts_of(slow), (std::vector<Suspect>{{Suspect::node, {3, 4, 5}}}))
      << "which excuses its adapter";
}

TEST(Judge, TwoSlowRanksOfThreeAreNotTheirNode) {
  const std::vector<double> two = {10, 10, 10, 8, 10, 8, 10, 10, 10},
                            three = {10, 10, 10, 8, 8, 8, 10, 10, 10};
  const Wiring m{topology::Groups({3, 3, 3}), 1};
  const auto found = culprits_of(m, {products({two, two})});
  EXPECT_EQ(parts_of(found), (std::vector<Suspect>{{Suspect::rank, {3}}, {Suspect::rank, {5}}}));
  EXPECT_EQ(nodes_of(found.at(1).suspect, m), std::vector{1});
  const auto node = culprits_of(m, {products({three, three})});
  ASSERT_EQ(parts_of(node), (std::vector<Suspect>{{Suspect::node, {3, 4, 5}}}));
  EXPECT_EQ(nodes_of(node[0].suspect, m), std::vector{1});
  const std::vector<double> one = {10, 10, 10, 8, 10, 10, 10, 10, 10};
  EXPECT_EQ(parts_of(culprits_of(m, {products({one, one}), {{"triad", "B/s"}, {three, three}}})),
      (std::vector<Suspect>{{Suspect::rank, {3}}, {Suspect::node, {3, 4, 5}}}));
  const auto twice = culprits_of(m, {products({one, one}), {{"triad", "B/s"}, {one, one}}});
  EXPECT_TRUE(twice.size() == 1 && twice[0].evidence.size() == 2);
}

TEST(Judge, MicrosecondsMakeNoLatency) {
  const Wiring m{topology::Groups({1, 1, 1, 1}), 1};
  const auto names = [&](double seconds) {
    const std::vector<double> round = between(10e-6, seconds, 10e-6);
    return culprits_of(m, {{{"latency", "s", Partner::node}, {round, round}}});
  };
  EXPECT_TRUE(names(28e-6).empty()) << "(28 + 10) / (10 + 10) is less than 2";
  const auto found = names(32e-6);
  ASSERT_EQ(parts_of(found), (std::vector<Suspect>{{Suspect::link, {1, 2}}}));
  EXPECT_EQ(text_of(found[0].evidence.at(0)),
      "latency, to rank 2: 32.0 us where 10.0 us is usual (3.2 times) in 2 rounds");
}

TEST(Judge, ASlowRankAccountsForALinkThatIsAboutAsSlow) {
  const Wiring m{topology::Groups({1, 1, 1, 1}), 1};
  const std::vector<double> slow = between(9, 3, 3);
  const Measurement rates{{"rate", "B/s", Partner::node}, {slow, slow}};
  EXPECT_EQ(parts_of(culprits_of(m, {products({{10, 7.2, 10, 10}, {10, 7.2, 10, 10}}), rates})),
      (std::vector<Suspect>{{Suspect::rank, {1}}, {Suspect::link, {1, 2}}}));
  EXPECT_EQ(parts_of(culprits_of(m, {products({{10, 6, 10, 10}, {10, 6, 10, 10}}), rates})),
      (std::vector<Suspect>{{Suspect::rank, {1}}}));
  const std::vector<double> held_up = {10, 5, 10, 10}, usual(4, 10);
  EXPECT_EQ(parts_of(culprits_of(
                m, {products({held_up, usual, held_up}), {rates.quantity, {slow, slow, slow}}})),
      (std::vector<Suspect>{{Suspect::rank, {1}}, {Suspect::link, {1, 2}}}))
      << "but not while the rank is not slow";
  const std::vector<double> late = between(1e-4, 1e-3, 1e-3);
  const Measurement latencies{{"latency", "s", Partner::node}, {late, late, late}};
  EXPECT_EQ(parts_of(culprits_of(m, {products({held_up, held_up, held_up}), latencies})),
      (std::vector<Suspect>{{Suspect::rank, {1}}, {Suspect::link, {1, 2}}}))
      << "slow kernels make no latency";
}

TEST(Judge, ALinkIsOneCulpritWhicheverWayShowsIt) {
  const Wiring m{topology::Groups({1, 1, 1, 1}), 1};
  const std::vector<double> rate = between(9, 3, 9), latency = between(1e-4, 1e-4, 5e-3);
  const auto found = culprits_of(m,
      {{{"rate", "B/s", Partner::node}, {rate, rate}},
          {{"latency", "s", Partner::node}, {latency, latency}}});
  ASSERT_EQ(parts_of(found), (std::vector<Suspect>{{Suspect::link, {1, 2}}}));
  EXPECT_EQ(list_of(found[0].evidence, &Evidence::way),
      (std::vector<std::string>{", to rank 2", ", to rank 1"}));
}

/// Nodes of two ranks with one adapter each, whose values repeat within 2 % (normal, a standard
/// deviation of 1 %).
struct Cluster {
  explicit Cluster(int nodes)
      : machine{topology::Groups::equal(2 * nodes, nodes), 1},
        bits(test::seed()) {}

  /// What three rounds of this machine are said to be. `expected`: of adapters; healthy ones reach
  /// 1e9.
  Judgement screened(const std::vector<Fault>& faults, double expected = nothing) {
    const auto noise = [&](const Quantity&) { return std::exp(deviation * normal(bits)); };
    std::vector<Measurement> measured = SimulatedMachine(machine, faults, noise, load).measure(3);
    measured[3].expected = expected;
    return judge(machine, measured);
  }

  /// Times of 100 that these, and no others, are named.
  int found(const std::vector<Fault>& faults, std::vector<Suspect> who, double expected = nothing) {
    int count = 0;
    std::ranges::sort(who);
    for (int i = 0; i < 100; ++i)
      count += parts_of(screened(faults, expected).culprits) == who ? 1 : 0;
    return count;
  }

  Wiring machine;
  std::mt19937 bits;
  std::normal_distribution<double> normal;
  double deviation = 0.01;
  std::function<double(int, int)> load;
};

Fault adapter(int rank, double factor, double delay = 0) {
  return {{Suspect::adapter, {rank}}, factor, delay};
}

TEST(Judge, OneSlowAdapterIsFoundOnThreeFourAndSixNodes) {
  for (const int nodes : {3, 4, 6}) {
    Cluster cluster(nodes);
    for (const double rate : {0.7, 0.6, 0.5})
      EXPECT_GE(cluster.found({adapter(2, rate)}, {{Suspect::adapter, {2}}}), 98)
          << nodes << " " << rate;
    EXPECT_GE(cluster.found({}, {}), 98) << nodes;
  }
}

TEST(Judge, OfTwoSlowAdaptersOfThreeTheBetterOneNeedsARateThatIsExpected) {
  const std::vector<Fault> two = {adapter(2, 0.7), adapter(4, 0.55)};
  Cluster three(3), four(4);
  EXPECT_GE(three.found(two, {{Suspect::adapter, {4}}}), 98);
  EXPECT_GE(three.found(two, {{Suspect::adapter, {4}}, {Suspect::adapter, {0, 2}}}, 1e9), 98);
  const std::vector<Culprit> found = three.screened(two, 1e9).culprits;
  EXPECT_EQ(found.at(0).evidence.size(), 2U) << "out and in, beside its peers";
  EXPECT_GE(four.found(two, {{Suspect::adapter, {2}}, {Suspect::adapter, {4}}}), 98)
      << "two good ones show both";
}

TEST(Judge, HalfARateBesideMoreLatencyAreTwoCulprits) {
  Cluster cluster(3);
  EXPECT_GE(cluster.found({adapter(2, 0.5), adapter(4, 1, 5e-3)},
                {{Suspect::adapter, {2}}, {Suspect::adapter, {4}}}),
      98);
}

TEST(Judge, ASlowRankExplainsNeitherLatencyNorAMuchSlowerAdapter) {
  Cluster cluster(3);
  const Suspect rank{Suspect::rank, {2}}, port{Suspect::adapter, {2}};
  EXPECT_GE(cluster.found({{rank, 0.6}}, {rank}), 98);
  EXPECT_GE(cluster.found({{rank, 0.6}, {port, 1, 5e-3}}, {rank, port}), 98);
  EXPECT_GE(cluster.found({{rank, 0.8}, {port, 0.3}}, {rank, port}), 98);
}

/// Others take most of the cores: a rank gets what is left, an eighth to all of its usual rate.
TEST(Judge, BesideALoadNoPartIsNamed) {
  Cluster cluster(3);
  cluster.load = [](int, int) { return 0.8; };
  cluster.deviation = 0.6;
  for (int i = 0; i < 200; ++i) {
    const Judgement judgement = cluster.screened({}, 1e9);
    EXPECT_TRUE(judgement.culprits.empty()) << text_of(judgement.culprits[0].evidence[0]);
    EXPECT_EQ(std::pair(judgement.loaded.size(), judgement.load), std::pair(std::size_t{6}, 0.8));
  }
  cluster.deviation = 0.01;  // what repeats all the same is no doing of a load
  EXPECT_GE(cluster.found({adapter(2, 0.6)}, {{Suspect::adapter, {2}}}), 98);
  cluster.deviation = 0.12;
  EXPECT_GE(cluster.found({{{Suspect::rank, {1}}, 0.3}}, {}), 80)
      << "70 % less, but ten deviations of 12 % are more";
}

/// Ranks 10, but rank 2 as given; others take `load` of the cores of ranks 2 and 3 in these rounds.
Judgement beside(const std::vector<double>& of_rank_2, double load, const std::set<int>& rounds) {
  Measurement products_of{{"product", "FLOP/s"}}, loads{{"load", "1"}};
  for (std::size_t r = 0; r < of_rank_2.size(); ++r) {
    products_of.rounds.push_back({10, 10, of_rank_2[r], 10, 10, 10});
    const double taken = rounds.contains(static_cast<int>(r)) ? load : 0.02;
    loads.rounds.push_back({0, 0.01, taken, taken, 0, std::nan("")});
  }
  return judge({topology::Groups({2, 2, 2}), 1}, {products_of, loads});
}

TEST(Judge, ARoundInWhichOthersTookTheCoresDoesNotCount) {
  EXPECT_EQ(beside({7, 7, 10}, 0.09, {0}).culprits.size(), 1U) << "a tenth of the cores is little";
  const Judgement once = beside({7, 7, 10}, 0.11, {0});
  EXPECT_TRUE(once.culprits.empty() && once.loaded.empty());
  EXPECT_EQ(once.load, 0.11);
  EXPECT_EQ(beside({7, 7, 7}, 0.5, {0}).culprits.size(), 1U) << "two rounds are left";
  const Judgement twice = beside({7, 7, 10}, 0.5, {0, 1});
  EXPECT_TRUE(twice.culprits.empty());
  EXPECT_EQ(twice.loaded, (std::vector{2, 3})) << "the others are judged";
  const Measurement taken{{"load", "1"}, std::vector<std::vector<double>>(3, {1, 1, 1, 0})};
  const std::vector<double> slow = {10, 6, 10, 10}, usual(4, 10);
  const Wiring m{topology::Groups({4}), 1};
  EXPECT_EQ(culprits_of(m, {products({slow, slow, slow}), taken}).size(), 1U)
      << "clear in all rounds";
  EXPECT_TRUE(culprits_of(m, {products({slow, slow, usual}), taken}).empty()) << "but not in most";
}

/// Of faults of any size those count that are above what the same screening says that it would
/// name, or far below.
void expect_promise(Cluster& cluster,
    const std::function<Fault(double)>& fault,
    std::size_t quantity,
    double most) {
  std::uniform_real_distribution<double> sizes(0, most);
  int above = 0, found = 0, below = 0, alarms = 0;
  for (int i = 0; i < 400; ++i) {
    const double size = sizes(cluster.bits);
    const Judgement judgement = cluster.screened({fault(size)});
    const double smallest = judgement.smallest.at(quantity);
    const bool named = parts_of(judgement.culprits) == std::vector{Suspect{Suspect::adapter, {2}}};
    above += size > smallest ? 1 : 0;
    found += size > smallest && named ? 1 : 0;
    below += size < smallest / 3 ? 1 : 0;
    alarms += size < smallest / 3 && named ? 1 : 0;
  }
  EXPECT_TRUE(above > 50 && found >= 0.92 * above) << found << " of " << above;
  EXPECT_TRUE(below > 10 && alarms <= 0.05 * below) << alarms << " of " << below;
}

TEST(Judge, TheSmallestLossIsWhatWouldHaveBeenNamed) {
  for (const int nodes : {3, 4, 8})
    for (const double deviation : {0.005, 0.02, 0.04}) {
      Cluster cluster(nodes);
      cluster.deviation = deviation;
      expect_promise(cluster, [](double loss) { return adapter(2, 1 - loss); }, 3, 0.5);
      expect_promise(cluster, [](double delay) { return adapter(2, 1, delay); }, 4, 120e-6);
    }
}

TEST(Judge, TheSmallestLossByHand) {
  const Wiring m{topology::Groups({3}), 1};
  const auto smallest = [&](const std::vector<std::vector<double>>& rounds, double least_loss = 0) {
    return judge(m, {products(rounds)}, least_loss).smallest.at(0);
  };
  EXPECT_NEAR(smallest({{10, 10, 10}, {10, 10, 10}}), 0.1, 1e-9) << "the rule, without noise";
  EXPECT_NEAR(smallest({{10, 10, 10}, {10, 10, 10}}, 0.03), 0.03, 1e-9);
  // The middle one of the differences 0, ln 1.05 and ln 1.05, over 0.6745 sqrt(2), are 5.1 %: eight
  // of these
  EXPECT_NEAR(smallest({{10, 10, 10}, {10, 10.5, 9.5238}}), 8 * 0.05115, 1e-4);
  EXPECT_TRUE(std::isnan(smallest({{10, 10, 10}})) && std::isnan(smallest({}))) << "one round";
  const Quantity latency{"latency", "s"};
  const std::vector<double> late(3, 90e-6);
  EXPECT_NEAR(judge(m, {{latency, {late, late}}}).smallest.at(0), 100e-6, 1e-12)
      << "twice 90 + 10 us";
  const auto alone = judge({topology::Groups({1}), 1}, {products({{10}, {10}})});
  EXPECT_TRUE(std::isnan(alone.smallest.at(0))) << "without peers";
}

/// Rates between nodes of one rank, [to][from], and what is expected of each.
std::vector<Culprit> rates_expected(const std::vector<double>& round, double expected) {
  const int nodes = static_cast<int>(std::sqrt(round.size()));
  return culprits_of({topology::Groups::equal(nodes, nodes), 1},
      {{{"rate", "B/s", Partner::node}, {round, round}, expected}});
}

TEST(Judge, AMachineThatIsSlowAllOverIsNotAsExpected) {
  const std::vector<double> two = {nothing, 70, 70, nothing},
                            three = {nothing, 70, 70, 70, nothing, 70, 70, 70, nothing};
  for (const std::vector<double>& round : {two, three}) {
    const auto found = rates_expected(round, 100);
    const std::vector<int> all = round.size() == 4 ? std::vector{0, 1} : std::vector{0, 1, 2};
    ASSERT_EQ(parts_of(found), (std::vector<Suspect>{{Suspect::adapter, all}}));
    const Evidence& e = found[0].evidence.at(0);
    EXPECT_EQ(std::tuple(e.value, e.usual, e.rounds, e.expected), std::tuple(70.0, 100.0, 2, true));
    EXPECT_TRUE(rates_expected(round, 87).empty()) << "80.5 %";
    EXPECT_EQ(rates_expected(round, 88).size(), 1U) << "79.5 %";
  }
  Measurement slow = products({{4, 4, 4, 9}, {4, 4, 4, 9}});
  slow.expected = 10;
  EXPECT_EQ(parts_of(culprits_of({topology::Groups({4}), 1}, {slow})),
      (std::vector<Suspect>{{Suspect::rank, {0, 1, 2}}}))
      << "most are slow";
  const auto late = [](double expected) {
    const Measurement latency{{"latency", "s"}, {{90e-6}, {90e-6}}, expected};
    return culprits_of({topology::Groups({1}), 1}, {latency}).size();
  };
  EXPECT_EQ(std::pair(late(39e-6), late(41e-6)), std::pair(std::size_t{1}, std::size_t{0}))
      << "90 + 10 to 40 + 10 us";
}
}  // namespace
}  // namespace minitaw::screen
