// SPDX-License-Identifier: BSD-3-Clause
// What is said of a judgement.
#include <nlohmann/json.hpp>
#include "fixtures.hpp"
#include "names.hpp"

namespace minitaw::screen {
namespace {
const Wiring machine{topology::Groups({2, 4, 2}), 2};
const std::vector<std::string> hosts = {"alpha", "beta", "gamma"};
const Quantity triad{"triad", "B/s"}, rate{"rate", "B/s", Partner::node}, latency{"latency", "s"};
const Quantity inside{"inside", "B/s", Partner::inside};
constexpr double no = nothing;

/// Two rounds, in which only some ranks have values.
Screening screening() {
  return {machine,
      hosts,
      {{triad, {{4e9, no, 1e9, no, no, no, no, no}, {3e9, 2e9, no, no, no, no, no, no}}, 5e9},
          {latency, {{0.75, no, no, no, no, no, no, no}, {0.25, no, no, no, no, no, no, no}}},
          {{"load", "1"}, {{0.1}, {0.3}}}},
      {.culprits = {{{Suspect::rank, {3}}, {{triad, "", 1e9, 2.5e9, 2}}},
           {{Suspect::node, {0, 1}}},
           {{Suspect::adapter, {6}}, {{rate, ", in", 4e6, 5e6, 1, true}}},
           {{Suspect::link, {1, 4}}}},
          .smallest = {0.121, no, no},
          .loaded = {5},
          .load = 0.3},
      "a flood"};
}

/// What is not known is null.
TEST(Screening, IsJson) {
  using Json = nlohmann::json;
  const Json found = Json::parse(to_json(screening()).dump());
  EXPECT_EQ(found, Json::parse(R"json({
    "verdict":
      "FOUND: 4 culprits in 2 rounds; a flood took up to 30 % of the cores of 1 rank",
    "rounds": 2, "nodes": [2, 4, 2], "adapters": 2, "load": 0.3, "load_by": "a flood",
    "loaded_ranks": [5],
    "part": "rank",
    "culprits": [
      {"kind": "rank", "ranks": [3], "nodes": ["beta"], "text": "rank 3 (beta)", "evidence": [
        {"text": "triad: 1 GB/s where 2.5 GB/s is usual (60 % less) in 2 rounds",
         "quantity": "triad", "units": "B/s", "value": 1e9, "usual": 2.5e9, "rounds": 2}]},
      {"kind": "node", "ranks": [0, 1], "nodes": ["alpha"], "text": "alpha", "evidence": []},
      {"kind": "adapter", "ranks": [6], "nodes": ["gamma"], "text": "adapter 0 of gamma (rank 6)",
       "evidence": [
        {"text": "rate, in: 32 Mbit/s where 40 Mbit/s is expected (20 % less) in 1 round",
         "quantity": "rate, in", "units": "B/s", "value": 4e6, "expected": 5e6, "rounds": 1}]},
      {"kind": "link", "ranks": [1, 4], "nodes": ["alpha", "beta"],
       "text": "link between rank 1 (alpha) and rank 4 (beta)", "evidence": []}],
    "quantities": [
      {"name": "triad", "units": "B/s", "lowest": 1e9, "median": 2.5e9, "highest": 4e9,
       "expected": 5e9, "detectable": 0.121, "of": "each",
       "values": [3.5e9, 2e9, 1e9, null, null, null, null, null]},
      {"name": "latency", "units": "s", "lowest": 0.25, "median": 0.5, "highest": 0.75,
       "expected": null, "detectable": null, "of": "each",
       "values": [0.5, null, null, null, null, null, null, null]}]})json"))
      << found.dump(2);
}

/// By sender, then receiver, medians of two rounds; of many ranks the slowest pair of two nodes.
TEST(Screening, HasTheValuesOfPairs) {
  const auto values = [](const Wiring& wiring, const Quantity& quantity, const Values& first) {
    Values second = first;
    second[1] += 2;
    Screening some{wiring, hosts, {{quantity, {first, second}}}};
    some.judgement.smallest = {no};
    return to_json(some)["quantities"][0]["values"].dump();
  };
  const Wiring small{topology::Groups({2, 1}), 1};
  EXPECT_EQ(values(small, inside, {no, 1, 5, no, no, 4}),
      "[[null,5.0,null],[2.0,null,null],[null,null,null]]");
  EXPECT_EQ(values(small, rate, {no, 3, no, no, 9, no}),
      "[[null,null,9.0],[null,null,null],[4.0,null,null]]");
  const Wiring large{topology::Groups({64, 2}), 2};
  Values between(66 * 2, no), within(66 * 64, 7);
  between[0 * 2 + 1] = 8;
  between[32 * 2 + 1] = 7;
  between[64 * 2] = 5;
  between[65 * 2] = 3;
  within[2] = 6;
  EXPECT_EQ(values(large, rate, between), "[[null,3.0],[7.0,null]]");
  EXPECT_EQ(values(large, {"latency", "s", Partner::node}, between), "[[null,5.0],[9.0,null]]");
  EXPECT_EQ(values(large, inside, within), "[6.0,7.0]");
}

TEST(Screening, IsATableAndFindings) {
  EXPECT_THAT(table_text(screening()),
      testing::ContainsRegex("triad +1 GB/s +2.5 GB/s +4 GB/s +13 % less +5 GB/s\n"
                             "  latency +250.* ms +none\n  load +10 % +20 % +30 %\n"));
  std::vector<topology::RankPlace> places(8, {.unit = "a GPU", .uuid = "GPU-1"});
  EXPECT_THAT(findings_text(screening(), places),
      testing::MatchesRegex(
          "CULPRIT: rank 3 .beta.\n  triad: 1 GB/s .* 2.5 GB/s is usual .60 % less. "
          "in 2 rounds\n  a GPU, GPU-1\nCULPRIT: alpha\nCULPRIT: adapter "
          "[^\n]*\n  rate, in: 32 Mbit/s .* 40 Mbit/s is expected [^\n]*\n"
          "CULPRIT: link [^\n]*\nVERDICT: FOUND: .*\n"));
}

TEST(Verdict, SaysWhatWasFoundAndEndsWithItsCode) {
  const std::vector<Culprit> culprit = {{{Suspect::adapter, {1}}}};
  for (const auto& [judgement, expected, code, words] :
      Rows<Judgement, double, int, std::vector<std::string>>{
          {{}, nothing, 0, {"CLEAN: ", " its peers in 2 rounds"}},
          {{}, 1, 0, {"CLEAN: ", " than expected "}},
          {{culprit}, nothing, 1, {"FOUND: 1 culprit in 2 rounds"}},
          {{{}, {}, {0, 1, 3}, 0.93}, nothing, 3, {"INCONCLUSIVE: ", "93 %", "3 ranks"}}}) {
    const Verdict found = verdict_of({machine, hosts, {{triad, {{}, {}}, expected}}, judgement});
    EXPECT_EQ(found.code, code);
    EXPECT_THAT(found.text, test::Says(words));
  }
}

TEST(Wiring, PartnersAreRanksOfTheNodeOrDriversOfTheSameAdapter) {
  EXPECT_EQ(machine.rank_of(Partner::node, 5, 2), 7);
  EXPECT_EQ(machine.rank_of(Partner::inside, 4, 3), 5);
  EXPECT_EQ(machine.rank_of(Partner::inside, 1, 3), -1);
}

/// Who of two is meant may not be known.
TEST(Wiring, CulpritsHaveTheirNames) {
  const Wiring one_adapter{topology::Groups({2, 3}), 1};
  const std::string link = "link between rank 0 (alpha) and rank ";
  for (const auto& [suspect, expected] :
      Rows<Suspect, std::string>{{{Suspect::adapter, {2}}, "adapter of beta (rank 2)"},
          {{Suspect::adapter, {0, 2}}, "an adapter of ranks 0,2, or the network between them"},
          {{Suspect::link, {0, 2}}, link + "2 (beta), or the adapter at one of its ends"},
          {{Suspect::link, {0, 1}}, link + "1 (alpha), or one of the two"},
          {{Suspect::rank, {0, 2, 3, 4}}, "ranks 0,2-4"}})
    EXPECT_EQ(name_of(suspect, one_adapter, hosts), expected);
}

TEST(Quantity, HasItsCustomaryUnit) {
  for (const auto& [value, quantity, text] :
      Rows<double, Quantity, std::string>{{46.25e9, triad, "46.2 GB/s"},
          {124.95e6, rate, "1 Gbit/s"},
          {5.036e-3, latency, "5.04 ms"}})
    EXPECT_EQ(readable(value, quantity), text);
  EXPECT_EQ(text_of(24e-6, latency), "24.0 us more");
  EXPECT_THAT(text_of(Evidence{latency, "", 32e-6, 10e-6}), test::Says({"usual", "3.2 times"}));
}
}  // namespace
}  // namespace minitaw::screen
