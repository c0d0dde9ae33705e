// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include "simulated_machine.hpp"

namespace minitaw::screen {
namespace {
using Json = nlohmann::ordered_json;

enum { product, triad, inside, between, latency, load };  // what a simulated machine measures

constexpr double giga = 1e9;

/// Rounds without noise: rates of 1 G, latencies of 20 us, a hundredth of the cores taken by
/// others.
std::vector<Measurement> usual(const Wiring& machine, int rounds) {
  const auto ratio = [](const Quantity&) { return 1.0; };
  return SimulatedMachine(machine, {}, ratio, [](int, int) { return 0.01; }).measure(rounds);
}

Screening screened(
    const Wiring& machine, const std::vector<Measurement>& measured, double least_loss = 0) {
  return {machine, {"alpha", "beta", "gamma"}, measured, judge(machine, measured, least_loss)};
}

std::string text_of(const Screening& screening) {
  const std::vector<topology::RankPlace> places(screening.wiring.nodes.ranks());
  return table_text(screening) + findings_text(screening, places);
}

const Wiring node_of_three{topology::Groups({3}), 1};

/// Rank 1 computes at half the rate in three of five rounds; rank 0 adds 15 % less, and what it
/// sends to rank 2 takes twice as long.
std::vector<Measurement> three_culprits() {
  std::vector<Measurement> measured = usual(node_of_three, 5);
  measured.erase(measured.begin() + between, measured.begin() + load);
  for (int round = 0; round < 5; ++round) {
    if (round % 2 == 0)
      measured[product].rounds[round][1] = 0.5 * giga;
    measured[triad].rounds[round][0] = 0.85 * giga;
    measured[inside].rounds[round][3 * 2 + 0] = 0.5 * giga;
  }
  return measured;
}

TEST(Screening, IsATableWithCulpritsAndAVerdict) {
  const std::string head = fmt::format(
      "#{:>54}{:>13}{:>13}{:>15}{:>13}", "lowest", "median", "highest", "detectable", "expected");
  EXPECT_EQ(text_of(screened(node_of_three, three_culprits(), 0.14)), head + R"(
  matrix product                            500 MFLOP/s    1 GFLOP/s    1 GFLOP/s      14 % less
  triad                                        850 MB/s       1 GB/s       1 GB/s      14 % less
  rate inside                                  500 MB/s       1 GB/s       1 GB/s      14 % less
  load                                              1 %          1 %          1 %
CULPRIT: rank 1 (alpha)
  matrix product: 500 MFLOP/s where 1 GFLOP/s is usual (50 % less) in 3 rounds
CULPRIT: rank 0 (alpha)
  triad: 850 MB/s where 1 GB/s is usual (15 % less) in 5 rounds
CULPRIT: link between rank 0 (alpha) and rank 2 (alpha)
  rate inside, to rank 2: 500 MB/s where 1 GB/s is usual (50 % less) in 5 rounds
VERDICT: FOUND: 3 culprits in 5 rounds
)");
}

/// What is not known is null.
TEST(Screening, IsJsonWithTheSame) {
  const Json json = Json::parse(to_json(screened(node_of_three, three_culprits())).dump());
  EXPECT_EQ(json, Json::parse(R"json({
    "verdict": "FOUND: 3 culprits in 5 rounds",
    "rounds": 5,
    "nodes": [3],
    "adapters": 1,
    "load": 0.01,
    "loaded_ranks": [],
    "culprits": [
      {"kind": "rank", "ranks": [1], "nodes": ["alpha"], "text": "rank 1 (alpha)", "evidence": [
        {"quantity": "matrix product", "units": "FLOP/s", "value": 5e8, "usual": 1e9,
         "rounds": 3}]},
      {"kind": "rank", "ranks": [0], "nodes": ["alpha"], "text": "rank 0 (alpha)", "evidence": [
        {"quantity": "triad", "units": "B/s", "value": 8.5e8, "usual": 1e9, "rounds": 5}]},
      {"kind": "link", "ranks": [0, 2], "nodes": ["alpha"],
       "text": "link between rank 0 (alpha) and rank 2 (alpha)", "evidence": [
        {"quantity": "rate inside, to rank 2", "units": "B/s", "value": 5e8, "usual": 1e9,
         "rounds": 5}]}],
    "quantities": [
      {"name": "matrix product", "units": "FLOP/s", "lowest": 5e8, "median": 1e9, "highest": 1e9,
       "expected": null, "detectable": 0.1},
      {"name": "triad", "units": "B/s", "lowest": 8.5e8, "median": 1e9, "highest": 1e9,
       "expected": null, "detectable": 0.1},
      {"name": "rate inside", "units": "B/s", "lowest": 5e8, "median": 1e9, "highest": 1e9,
       "expected": null, "detectable": 0.2}]})json"))
      << json.dump(2);
}

TEST(Screening, NamesTheDeviceOfASlowRank) {
  std::vector<topology::RankPlace> places(3);
  places[1].unit = "device 1, a GPU, 80 GiB";
  places[1].uuid = "GPU-1";
  places[2] = places[1];  // of a link none is named
  const std::string text = findings_text(screened(node_of_three, three_culprits()), places);
  EXPECT_NE(text.find(" in 3 rounds\n  device 1, a GPU, 80 GiB, GPU-1\nCULPRIT: rank 0 (alpha)\n"),
      std::string::npos)
      << text;
  EXPECT_EQ(text.find("GPU-1"), text.rfind("GPU-1"));
}

TEST(Screening, IsCleanWherePartsAreSlowInTooFewRoundsOrByTooLittle) {
  std::vector<Measurement> measured = usual(node_of_three, 4);
  for (int round = 0; round < 4; ++round) {
    if (round < 2)
      measured[product].rounds[round][2] = 0.5 * giga;
    measured[triad].rounds[round][0] = 0.85 * giga;
  }
  const std::string text = text_of(screened(node_of_three, measured, 0.16));
  EXPECT_TRUE(text.ends_with("\nVERDICT: CLEAN: no part is slower than its peers in 4 rounds\n"))
      << text;
  EXPECT_EQ(text.find("CULPRIT"), std::string::npos) << text;
}

/// What passes the adapter of node 1 is slow, and the way between nodes 0 and 2 is long; then node
/// 0 is slow as a whole, which makes no link long.
TEST(Screening, SaysWhichAdapterWhichLinkAndWhichNode) {
  const Wiring machine{topology::Groups({2, 2, 1}), 1};
  std::vector<Measurement> measured = usual(machine, 2);
  for (int round = 0; round < 2; ++round) {
    std::vector<double>& rates = measured[between].rounds[round];
    rates[3 * 2 + 0] = rates[3 * 2 + 2] = 0.4 * giga;
    rates[3 * 0 + 1] = rates[3 * 4 + 1] = 0.5 * giga;
    std::vector<double>& latencies = measured[latency].rounds[round];
    latencies[3 * 0 + 2] = latencies[3 * 4 + 0] = 1e-3;
  }
  const std::string adapter_and_link =
      "CULPRIT: adapter of beta (rank 2)\n"
      "  rate between, out: 4 Gbit/s where 8 Gbit/s is usual (50 % less) in 2 rounds\n"
      "  rate between, in: 3.2 Gbit/s where 8 Gbit/s is usual (60 % less) in 2 rounds\n"
      "CULPRIT: link between rank 0 (alpha) and rank 4 (gamma)\n"
      "  latency, to rank 4: 1 ms where 20.0 us is usual (50.0 times) in 2 rounds\n"
      "  latency, to rank 0: 1 ms where 20.0 us is usual (50.0 times) in 2 rounds\n";
  const std::vector<topology::RankPlace> places(5);
  EXPECT_EQ(findings_text(screened(machine, measured), places),
      adapter_and_link + "VERDICT: FOUND: 2 culprits in 2 rounds\n");
  for (std::vector<double>& round : measured[product].rounds)
    round[0] = round[1] = 0.5 * giga;
  const Screening three = screened(machine, measured);
  EXPECT_EQ(findings_text(three, places),
      "CULPRIT: alpha\n"
      "  matrix product: 500 MFLOP/s where 1 GFLOP/s is usual (50 % less) in 2 rounds\n" +
          adapter_and_link + "VERDICT: FOUND: 3 culprits in 2 rounds\n");
  const Json culprits = to_json(three)["culprits"];
  EXPECT_EQ(culprits[0]["kind"], "node");
  EXPECT_EQ(culprits[0]["ranks"], (Json{0, 1}));
  EXPECT_EQ(culprits[1]["kind"], "adapter");
  EXPECT_EQ(culprits[2]["nodes"], (Json{"alpha", "gamma"}));
}

/// Others take most of the cores of ranks 1 and 2 in two of three rounds, in which rank 1 is slow.
TEST(Screening, IsInconclusiveBesideOtherPrograms) {
  std::vector<Measurement> measured = usual(node_of_three, 3);
  for (int round = 0; round < 2; ++round) {
    std::vector<double>& loads = measured[load].rounds[round];
    loads[1] = loads[2] = 0.6;
    measured[triad].rounds[round][1] = 0.4 * giga;
  }
  const Screening loaded = screened(node_of_three, measured);
  const std::string text = text_of(loaded);
  EXPECT_TRUE(
      text.ends_with("%\nVERDICT: INCONCLUSIVE: other programs took up to 60 % of the cores "
                     "of 3 ranks in 3 rounds\n"))
      << text;
  EXPECT_EQ(verdict_of(loaded).code, 3);
  const Json json = to_json(loaded);
  EXPECT_EQ(json["load"], 0.6);
  EXPECT_EQ(json["loaded_ranks"], (Json{0, 1, 2}));
  EXPECT_EQ(json["culprits"], Json::array());
  measured[load].rounds[1].assign(3, 0.05);
  EXPECT_EQ(verdict_of(screened(node_of_three, measured)).code, 0) << "one such round";
}

/// Of all ranks with 1 GB/s.
TEST(Screening, SaysWhatIsExpected) {
  std::vector<Measurement> measured = usual(node_of_three, 2);
  measured[triad].expected = 1.3 * giga;
  const Screening slow = screened(node_of_three, measured);
  const std::string text = text_of(slow);
  EXPECT_NE(text.find("      10 % less     1.3 GB/s\n"), std::string::npos) << text;
  EXPECT_NE(text.find("CULPRIT: ranks 0-2\n  triad: 1 GB/s where 1.3 GB/s is expected (23 % less) "
                      "in 2 rounds\n"),
      std::string::npos)
      << text;
  const Json json = to_json(slow), culprit = json["culprits"].at(0);
  EXPECT_EQ(json["quantities"][triad]["expected"], 1.3 * giga);
  EXPECT_EQ(culprit["kind"], "rank");
  EXPECT_EQ(culprit["ranks"], (Json{0, 1, 2}));
  EXPECT_EQ(culprit["evidence"].at(0)["expected"], 1.3 * giga);
  measured[triad].expected = 1.2 * giga;
  EXPECT_EQ(verdict_of(screened(node_of_three, measured)).text,
      "CLEAN: no part is slower than its peers or than expected in 2 rounds");
}

TEST(Verdict, SaysWhatWasFoundAndEndsWithItsCode) {
  const auto verdict = [](const Judgement& judgement) {
    const Verdict v = verdict_of({node_of_three, {}, usual(node_of_three, 3), judgement});
    return fmt::format("{} {}", v.code, v.text);
  };
  const Culprit culprit{{Suspect::adapter, {1}}};
  EXPECT_EQ(verdict({}), "0 CLEAN: no part is slower than its peers in 3 rounds");
  EXPECT_EQ(verdict({.culprits = {culprit}}), "1 FOUND: 1 culprit in 3 rounds");
  Judgement loaded{.loaded = {0, 1, 3}, .load = 0.93};
  const std::string taken = "other programs took up to 93 % of the cores of 3 ranks";
  EXPECT_EQ(verdict(loaded), "3 INCONCLUSIVE: " + taken + " in 3 rounds");
  loaded.culprits = {culprit};
  EXPECT_EQ(verdict(loaded), "1 FOUND: 1 culprit in 3 rounds; " + taken);
}

TEST(Wiring, RanksOfANodeShareItsAdaptersEvenly) {
  const Wiring m{topology::Groups({4, 2}), 2};
  std::vector<int> adapters;
  for (int r = 0; r < 6; ++r)
    adapters.push_back(m.adapter_of(r));
  EXPECT_EQ(adapters, (std::vector{0, 0, 1, 1, 0, 1}));
  EXPECT_EQ(
      std::tuple(m.driver(0, 1), Wiring{topology::Groups({1}), 2}.driver(0, 1)), std::tuple(2, -1));
  EXPECT_EQ(std::tuple(m.rank_of(Partner::node, 3, 1), m.rank_of(Partner::inside, 4, 3)),
      std::tuple(5, -1));
}

TEST(Wiring, CulpritsHaveTheirNames) {
  const Wiring m{topology::Groups({2, 4, 2}), 2}, one{topology::Groups({2, 4}), 1};
  const std::vector<std::string> names = {"alpha", "beta", "gamma"};
  EXPECT_EQ(name_of({Suspect::rank, {3}}, m, names), "rank 3 (beta)");
  EXPECT_EQ(name_of({Suspect::node, {2, 3, 4, 5}}, m, names), "beta");
  EXPECT_EQ(name_of({Suspect::adapter, {4}}, m, names), "adapter 1 of beta (rank 4)");
  EXPECT_EQ(name_of({Suspect::adapter, {2}}, one, names), "adapter of beta (rank 2)");
  EXPECT_EQ(
      name_of({Suspect::link, {1, 4}}, m, names), "link between rank 1 (alpha) and rank 4 (beta)");
  EXPECT_EQ(name_of({Suspect::link, {0, 2}}, one, names),
      "link between rank 0 (alpha) and rank 2 (beta), or the adapter at one of its ends");
  EXPECT_EQ(name_of({Suspect::link, {0, 1}}, one, names),
      "link between rank 0 (alpha) and rank 1 (alpha), or one of the two");
  EXPECT_EQ(name_of({Suspect::adapter, {0, 2}}, one, names),
      "an adapter of ranks 0,2, or the network between them");
  EXPECT_EQ(name_of({Suspect::rank, {0, 2, 3, 5}}, one, names), "ranks 0,2-3,5");
  EXPECT_EQ(nodes_of({Suspect::adapter, {2, 6}}, m), (std::vector{1, 2}));
}

TEST(Wiring, QuantitiesHaveTheirCustomaryUnits) {
  const Quantity triad{"triad", "B/s"}, rate{"rate", "B/s", Partner::node}, latency{"latency", "s"};
  EXPECT_EQ(readable(46.25e9, triad), "46.2 GB/s");
  EXPECT_EQ(readable(1.5e6, rate), "12 Mbit/s");
  EXPECT_EQ(readable(124.95e6, rate), "1 Gbit/s");
  EXPECT_EQ(readable(26e-6, latency), "26.0 us");
  EXPECT_EQ(readable(5.036e-3, latency), "5.04 ms");
  EXPECT_EQ(readable(0.034, {"load", "1"}), "3 %");
  EXPECT_EQ(text_of(Evidence{rate, ", in", 7.75e6, 12.5e6, 3, true}),
      "rate, in: 62 Mbit/s where 100 Mbit/s is expected (38 % less) in 3 rounds");
  EXPECT_EQ(
      text_of(0.121, triad) + ", " + text_of(24e-6, latency) + ", " + text_of(std::nan(""), rate),
      "13 % less, 24.0 us more, none");
}
}  // namespace
}  // namespace minitaw::screen
