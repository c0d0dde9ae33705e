// SPDX-License-Identifier: BSD-3-Clause
// Values and verdicts by hand. 100 is usual.
#include <cmath>
#include <gtest/gtest.h>
#include "names.hpp"

namespace minitaw::screen {
namespace {
using Rounds = std::vector<Values>;

const Quantity product{"product", "FLOP/s"}, delay{"latency", "s"},
    link_rate{"rate", "B/s", Partner::node}, taken{"load", "1"};

/// On one node.
Judgement judged(const Rounds& rounds, const Quantity& quantity = product, double least_loss = 0) {
  const int ranks = static_cast<int>(rounds[0].size());
  return judge({topology::Groups({ranks}), 1}, {{quantity, rounds}}, least_loss);
}

/// So many ranks, of which the last one has these values, one a round.
Rounds last_of(int ranks, const Values& values) {
  Rounds rounds(values.size(), Values(ranks, 100));
  for (std::size_t i = 0; i < values.size(); ++i)
    rounds[i].back() = values[i];
  return rounds;
}

TEST(Judge, ACulpritStandsOutInMostRoundsAndAtLeastInTwo) {
  for (const auto& [ranks, values, expected] : Rows<int, Values, std::string>{{9, {88}, ""},
           {9, {88, 88}, "rank 8"},
           {9, {88, 88, 100}, "rank 8"},
           {9, {70, 70, 100, 100}, ""},
           // Among few, in all rounds or by twice as much.
           {6, {88, 88, 100}, ""},
           {6, {79, 79, 100}, "rank 5"},
           {6, {88, 88, 88}, "rank 5"},
           {2, {80, 80}, "rank 1"}})
    EXPECT_EQ(names(judged(last_of(ranks, values))), expected) << values.size();
  EXPECT_EQ(names(judged({{100, 100, 60, 100}, {100, 60, 100, 100}, {100, 100, 100, 100}})), "")
      << "a moment each";
  const Judgement found = judged(last_of(4, {60, 100, 70}));
  const Evidence& evidence = found.culprits.at(0).evidence.at(0);
  EXPECT_EQ(std::tuple(evidence.rounds, evidence.value, evidence.usual), std::tuple(2, 65, 100));
}

/// Of nine ranks one has 100, seven differ by +- `apart` from it, the first one has `value`; of
/// latencies 100 are 90 us and the floor of 10 us.
TEST(Judge, ThresholdsByHand) {
  for (const auto& [apart, value, least_loss, quantity, expected] :
      Rows<double, double, double, Quantity, std::string>{// six deviations, 6 * 1.4826 * 2
          {2, 81, 0, product, "rank 0"},
          {2, 83, 0, product, ""},
          {12, 49, 0, product, "rank 0"},  // less than half always counts
          {12, 50, 0, product, ""},
          {0, 69, 0.3, product, "rank 0"},
          {0, 71, 0.3, product, ""},
          {0, 49, 0.3, delay, "rank 0"},  // twice the latency, whatever loss was given
          {12, 11, 0, delay, ""}}) {      // ten times always counts
    Values round = {value, 100, 100 + apart};
    while (round.size() < 9)
      round.insert(round.end(), {100 - apart, 100 + apart});
    for (double& v : round)
      v = quantity.is_latency() ? 1e-2 / v - 10e-6 : v;
    EXPECT_EQ(names(judged({round, round}, quantity, least_loss)), expected) << value;
  }
  const Values half = {100, 60, 100, 60, 100, 60, 100, 60};
  EXPECT_EQ(names(judged({half, half})), "rank 1, rank 3, rank 5, rank 7")
      << "and tell nothing of the spread of the others";
}

/// Of 100 ranks in three rounds the last is slow in two, others once each. Of n others in 300
/// tries, chance is expected to name 100 * 3 (n / 300)^2.
TEST(Judge, AmongManyRanksChanceNamesNone) {
  Rounds rounds = last_of(100, {70, 70, 100});
  rounds[0][0] = rounds[1][1] = rounds[2][2] = 70;
  EXPECT_EQ(names(judged(rounds)), "rank 99");
  rounds[0][3] = 70;
  EXPECT_EQ(names(judged(rounds)), "");
}

/// Ranks on nodes of their own, [to][from].
TEST(Judge, TheSlowDirectionsOfAnAdapterOrALinkAreNamed) {
  const double no = nothing;
  for (const auto& [nodes, round, expected, ways] :
      Rows<int, Values, std::string, std::string>{{2, {no, 90, 30, no}, "link 0+1", ", to rank 1"},
          {3, {no, 90, 90, 30, no, 30, 90, 90, no}, "adapter 1", ", in"},
          {3, {no, 30, 90, 30, no, 30, 90, 30, no}, "adapter 1", ", out, in"}}) {
    const Wiring wiring{topology::Groups(std::vector(nodes, 1)), 1};
    const Judgement found = judge(wiring, {{link_rate, {round, round}}});
    ASSERT_EQ(names(found), expected);
    std::string said;
    for (const Evidence& evidence : found.culprits[0].evidence)
      said += evidence.way;
    EXPECT_EQ(said, ways);
    const Measurement load{taken, {Values{0, 1, 0}, Values(3), Values(3)}};
    EXPECT_EQ(
        names(judge(wiring, {{link_rate, {round, round, Values(nodes * nodes, 90)}}, load})), "")
        << "a round beside a load is that of a link's ends";
  }
}

/// Three ranks on a node, of which the last one computes as given; rates between it and rank 0 are
/// slow in all rounds.
TEST(Judge, ARankAccountsForALinkInTheRoundsInWhichItIsSlow) {
  const Values links = {nothing, 90, 30, 90, nothing, 90, 30, 90, nothing};
  for (const auto& [values, expected] :
      Rows<Values, std::string>{{{50, 50, 50}, "rank 2"}, {{50, 100, 50}, "rank 2, link 0+2"}})
    EXPECT_EQ(names(judge({topology::Groups({3}), 1},
                  {{product, last_of(3, values)},
                      {{"rate", "B/s", Partner::inside}, {links, links, links}}})),
        expected);
}

/// Six ranks, of which the fourth computes as given; others take `load` of the cores of the fourth
/// and of some before it in the first `rounds`. More than a tenth counts. Where more than half of
/// the ranks are left with too few rounds, none is judged by its peers: it is named for what is
/// clear in all rounds.
TEST(Judge, ARoundInWhichOthersTookTheCoresDoesNotCount) {
  const std::vector<int> two = {2, 3}, half = {1, 2, 3}, most = {0, 1, 2, 3},
                         all = {0, 1, 2, 3, 4, 5};
  for (const auto& [values, load, rounds, of, expected, loaded] :
      Rows<Values, double, int, std::vector<int>, std::string, std::vector<int>>{
          {{70, 70, 100}, 0.1, 1, two, "rank 3", {}},
          {{70, 70, 100}, 0.11, 1, two, "", {}},
          {{70, 70, 70}, 0.5, 1, two, "rank 3", {}},  // two rounds are left
          {{70, 70, 100}, 0.5, 2, two, "", two},
          {{70, 70, 70}, 0.5, 3, half, "rank 3", half},
          {{60, 60, 60}, 1, 3, most, "rank 3", all}}) {
    Measurement products{product}, loads{taken, Rounds(3, {0, 0.01, 0.02, 0.02, 0, nothing})};
    for (const double value : values)
      products.rounds.push_back({100, 100, 100, value, 100, 100});
    for (int round = 0; round < rounds; ++round)
      for (const int rank : of)
        loads.rounds[round][rank] = load;
    const Judgement found = judge({topology::Groups({2, 2, 2}), 1}, {products, loads});
    EXPECT_EQ(names(found), expected) << load << " " << rounds;
    EXPECT_EQ(found.loaded, loaded);
    EXPECT_EQ(found.load, load);
  }
  // A quarter of the differences exceeds 8.5 %, a deviation of 5.25 %: ten of these are allowed.
  const Rounds restless = {{100, 105, 100, 60, 105, 100}, {105, 100, 105, 60, 100, 105}};
  const Measurement full{taken, Rounds(2, Values(6, 1))};
  EXPECT_EQ(names(judge({topology::Groups({6}), 1}, {{product, restless}, full})), "");
}

TEST(Judge, TheSmallestLossByHand) {
  const Values even(3, 100), late(3, 90e-6);
  for (const auto& [other, least_loss, expected] : Rows<Values, double, double>{{even, 0, 0.1},
           {even, 0.03, 0.03},
           // The middle one of the differences 0, ln 1.05 and ln 1.05, over 0.6745 sqrt(2), are
           // 5.115 %: eight of these
           {{100, 105, 95.238}, 0, 8 * 0.05115}})
    EXPECT_NEAR(judged({even, other}, product, least_loss).smallest.at(0), expected, 1e-4);
  EXPECT_NEAR(judged({late, late}, delay).smallest.at(0), 100e-6, 1e-12) << "twice 90 + 10 us";
  EXPECT_TRUE(std::isnan(judged({even}).smallest.at(0))) << "one round";
  EXPECT_TRUE(std::isnan(judged({{100}, {100}}).smallest.at(0))) << "no peers";
}

/// 80 % of a rate are as expected, and twice a latency.
TEST(Judge, AMachineThatIsSlowAllOverIsNotAsExpected) {
  for (const auto& [nodes, quantity, round, expected, named] :
      Rows<std::vector<int>, Quantity, Values, double, std::string>{
          {{1, 1}, link_rate, {nothing, 80, 80, nothing}, 100, ""},
          {{1, 1}, link_rate, {nothing, 80, 80, nothing}, 101, "adapter 0+1"},
          {{4}, product, {40, 40, 40, 90}, 100, "rank 0+1+2"},
          {{1}, delay, {30e-6}, 10e-6, ""},
          {{1}, delay, {31e-6}, 10e-6, "rank 0"}}) {
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
