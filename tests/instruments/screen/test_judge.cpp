// SPDX-License-Identifier: BSD-3-Clause
// Values and verdicts by hand. 100 is usual.
#include <cmath>
#include <gmock/gmock.h>
#include "names.hpp"

namespace minitaw::screen {
namespace {
using Values = std::vector<double>;  ///< of ranks in a round
using Rounds = std::vector<Values>;

const Quantity product{"product", "FLOP/s"}, latency{"latency", "s"};

/// On one node.
Judgement judged(const Rounds& rounds, const Quantity& quantity = product, double least_loss = 0) {
  const int ranks = rounds.empty() ? 1 : static_cast<int>(rounds[0].size());
  return judge({topology::Groups({ranks}), 1}, {{quantity, rounds}}, least_loss);
}

/// So many ranks, of which the last one has these values, one a round.
Rounds last_of(int ranks, const Values& values) {
  Rounds rounds;
  for (const double value : values) {
    rounds.emplace_back(ranks, 100);
    rounds.back().back() = value;
  }
  return rounds;
}

TEST(Judge, ACulpritStandsOutInMostRoundsAndAtLeastInTwo) {
  for (const auto& [ranks, values, named] :
      std::vector<std::tuple<int, Values, bool>>{{9, {88}, false},
          {9, {88, 88}, true},
          {9, {88, 100, 100}, false},
          {9, {88, 88, 100}, true},
          {9, {70, 70, 100, 100}, false},
          {9, {70, 70, 70, 100, 100}, true},
          // Among few, in all rounds or by twice as much.
          {6, {88, 88, 100}, false},
          {6, {79, 79, 100}, true},
          {6, {88, 88, 88}, true},
          {2, {80, 80}, true}})
    EXPECT_EQ(names(judged(last_of(ranks, values))), named ? fmt::format("rank {}", ranks - 1) : "")
        << fmt::format("{}", fmt::join(values, " "));
  EXPECT_EQ(names(judged({{100, 100, 60, 100}, {100, 60, 100, 100}, {100, 100, 100, 100}})), "")
      << "a moment each";
  const Judgement found = judged(last_of(4, {60, 100, 70}));
  const Evidence& evidence = found.culprits.at(0).evidence.at(0);
  EXPECT_EQ(std::tuple(evidence.rounds, evidence.value, evidence.usual), std::tuple(2, 65, 100));
}

/// Of nine ranks one has 100, seven differ by +- `apart` from it, the first one has `value`; of
/// latencies 100 are 90 us and the floor of 10 us.
TEST(Judge, ThresholdsByHand) {
  for (const auto& [apart, value, least_loss, is_latency, named] :
      std::vector<std::tuple<double, double, double, bool, bool>>{{0, 89, 0, false, true},
          {0, 91, 0, false, false},
          {2, 81, 0, false, true},  // six standard deviations, 6 * 1.4826 * 2
          {2, 83, 0, false, false},
          {12, 49, 0, false, true},  // less than half always counts
          {12, 50, 0, false, false},
          {0, 69, 0.3, false, true},
          {0, 71, 0.3, false, false},
          {0, 49, 0.3, true, true},  // twice the latency, whatever loss was given
          {0, 51, 0.3, true, false},
          {12, 9, 0, true, true},  // ten times always counts
          {12, 11, 0, true, false}}) {
    Values round = {value, 100, 100 + apart};
    while (round.size() < 9)
      round.insert(round.end(), {100 - apart, 100 + apart});
    for (double& v : round)
      v = is_latency ? 1e-2 / v - 10e-6 : v;
    EXPECT_EQ(names(judged({round, round}, is_latency ? latency : product, least_loss)),
        named ? "rank 0" : "")
        << apart << " " << value;
  }
  const Values half = {100, 60, 100, 60, 100, 60, 100, 60};
  EXPECT_EQ(names(judged({half, half})), "rank 1, rank 3, rank 5, rank 7")
      << "and tell nothing of the spread of the others";
}

/// Of 100 ranks in three rounds one is slow in the first `times`, others once each, spread over the
/// rounds. Of n others in 300 tries, chance is expected to name 100 * 3 (n / 300)^2 twice, and
/// 100 (n / 300)^3 three times.
TEST(Judge, AmongManyRanksChanceNamesNone) {
  for (const auto& [times, others, named] :
      {std::tuple(2, 3, true), {2, 4, false}, {3, 23, true}, {3, 24, false}}) {
    Rounds rounds = last_of(100, {70, 70, times > 2 ? 70.0 : 100});
    for (int i = 0; i < others; ++i)
      rounds[i % 3][i] = 70;
    EXPECT_EQ(names(judged(rounds)), named ? "rank 99" : "") << others;
  }
}

/// Ranks on nodes of their own, [to][from].
TEST(Judge, TheSlowDirectionsOfAnAdapterOrALinkAreNamed) {
  const double no = nothing;
  const Quantity rate{"rate", "B/s", Partner::node};
  for (const auto& [nodes, round, expected, ways] :
      std::vector<std::tuple<int, Values, std::string, std::string>>{
          {2, {no, 90, 30, no}, "link 0+1", ", to rank 1"},
          {3, {no, 90, 90, 30, no, 30, 90, 90, no}, "adapter 1", ", in"},
          {3, {no, 30, 90, 30, no, 30, 90, 30, no}, "adapter 1", ", out, in"}}) {
    const topology::Groups groups(std::vector(nodes, 1));
    const Judgement found = judge({groups, 1}, {{rate, {round, round}}});
    ASSERT_EQ(names(found), expected);
    std::string said;
    for (const Evidence& evidence : found.culprits[0].evidence)
      said += evidence.way;
    EXPECT_EQ(said, ways);
    const Values fine(nodes * nodes, 90);
    const Measurement load{{"load", "1"}, {Values{0, 1, 0}, Values(3), Values(3)}};
    EXPECT_EQ(names(judge({groups, 1}, {{rate, {round, round, fine}}, load})), "")
        << "a round beside a load is that of a link's ends";
  }
}

/// Three ranks on a node, of which the last one computes as given; rates between it and rank 0 are
/// slow in all rounds.
TEST(Judge, ARankAccountsForALinkInTheRoundsInWhichItIsSlow) {
  const double no = nothing;
  for (const auto& [values, expected] : std::vector<std::pair<Values, std::string>>{
           {{50, 50, 50}, "rank 2"}, {{50, 100, 50}, "rank 2, link 0+2"}}) {
    const Values links = {no, 90, 30, 90, no, 90, 30, 90, no};
    EXPECT_EQ(names(judge({topology::Groups({3}), 1},
                  {{product, last_of(3, values)},
                      {{"rate", "B/s", Partner::inside}, {links, links, links}}})),
        expected);
  }
}

/// Six ranks, of which the last but two is as given; others take `load` of the cores of some in the
/// first `rounds`.
Judgement beside(
    const Values& values, double load, std::size_t rounds, const std::vector<int>& of) {
  Measurement products{product}, loads{{"load", "1"}};
  for (std::size_t r = 0; r < values.size(); ++r) {
    products.rounds.push_back({100, 100, 100, values[r], 100, 100});
    loads.rounds.push_back({0, 0.01, 0.02, 0.02, 0, nothing});
    for (const int rank : of)
      loads.rounds[r][rank] = r < rounds ? load : 0.02;
  }
  return judge({topology::Groups({2, 2, 2}), 1}, {products, loads});
}

/// More than a tenth. Where more than half of the ranks are left with too few rounds, none is
/// judged by its peers: it is named for what is clear in all rounds.
TEST(Judge, ARoundInWhichOthersTookTheCoresDoesNotCount) {
  const std::vector<int> two = {2, 3}, half = {1, 2, 3}, most = {0, 1, 2, 3},
                         all = {0, 1, 2, 3, 4, 5};
  for (const auto& [values, load, rounds, of, expected, loaded] :
      std::vector<std::tuple<Values, double, int, std::vector<int>, std::string, std::vector<int>>>{
          {{70, 70, 100}, 0.1, 1, two, "rank 3", {}},
          {{70, 70, 100}, 0.11, 1, two, "", {}},
          {{70, 70, 70}, 0.5, 1, two, "rank 3", {}},  // two rounds are left
          {{70, 70, 100}, 0.5, 2, two, "", two},
          {{70, 70, 70}, 0.5, 3, half, "rank 3", half},
          {{60, 60, 60}, 1, 3, most, "rank 3", all},
          {{60, 60, 100}, 1, 3, most, "", all}}) {
    const Judgement found = beside(values, load, rounds, of);
    EXPECT_EQ(names(found), expected) << load << " " << rounds;
    EXPECT_EQ(found.loaded, loaded);
    EXPECT_EQ(found.load, load);
  }
  const Rounds restless = {
      {50, 100, 100, 60, 100, 100}, {100, 50, 100, 60, 100, 100}, {100, 100, 50, 60, 100, 100}};
  const Measurement full{{"load", "1"}, Rounds(3, Values(6, 1))};
  EXPECT_EQ(names(judge({topology::Groups({6}), 1}, {{product, restless}, full})), "")
      << "where a quarter of the values shows what a load does";
}

TEST(Judge, TheSmallestLossByHand) {
  const Values even(3, 100), late(3, 90e-6);
  for (const auto& [rounds, least_loss, expected] :
      std::vector<std::tuple<Rounds, double, double>>{{{even, even}, 0, 0.1},
          {{even, even}, 0.03, 0.03},
          // The middle one of the differences 0, ln 1.05 and ln 1.05, over 0.6745 sqrt(2), are
          // 5.115 %: eight of these
          {{even, {100, 105, 95.238}}, 0, 8 * 0.05115}})
    EXPECT_NEAR(judged(rounds, product, least_loss).smallest.at(0), expected, 1e-4);
  EXPECT_NEAR(judged({late, late}, latency).smallest.at(0), 100e-6, 1e-12) << "twice 90 + 10 us";
  for (const Rounds& none : {Rounds{even}, {}, {{100}, {100}}})
    EXPECT_TRUE(std::isnan(judged(none).smallest.at(0))) << "one round, none, no peers";
}

/// 80 % of a rate are as expected, and twice a latency.
TEST(Judge, AMachineThatIsSlowAllOverIsNotAsExpected) {
  const Quantity rate{"rate", "B/s", Partner::node};
  for (const auto& [nodes, quantity, round, expected, named] :
      std::vector<std::tuple<std::vector<int>, Quantity, Values, double, std::string>>{
          {{1, 1}, rate, {nothing, 80, 80, nothing}, 100, ""},
          {{1, 1}, rate, {nothing, 80, 80, nothing}, 101, "adapter 0+1"},
          {{4}, product, {40, 40, 40, 90}, 100, "rank 0+1+2"},
          {{1}, latency, {30e-6}, 10e-6, ""},
          {{1}, latency, {31e-6}, 10e-6, "rank 0"}}) {
    const Judgement found =
        judge({topology::Groups(nodes), 1}, {{quantity, {round, round}, expected}});
    EXPECT_EQ(names(found), named);
    for (const auto& [suspect, evidence] : found.culprits)
      EXPECT_EQ(std::tuple(evidence.at(0).usual, evidence[0].rounds, evidence[0].expected),
          std::tuple(expected, 2, true));
  }
}
}  // namespace
}  // namespace minitaw::screen
