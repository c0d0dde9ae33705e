#include <gmock/gmock.h>

#include <cmath>

#include "deck/settings.hpp"
#include "record/official.hpp"
#include "sample.hpp"

namespace minitaw::record {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

/// A result as a run of the deck would leave it: every case valid, its median 2 s for the first one, 3 s for
/// the second, and so on.
std::vector<CaseResult> results_of(const std::string& name, const std::vector<std::string>& overrides = {}) {
  const auto deck = std::ranges::find(acceptance_decks(), name, &NamedDeck::name);
  std::vector<CaseResult> results;
  for (const deck::Case& c : deck::make_deck(deck->text, name, overrides, {8, {8}, true}).cases) {
    CaseResult r = sample_case();
    r.settings = c;
    r.seconds.assign(static_cast<std::size_t>(c.steps * c.repeats),
                     {2.0 + static_cast<double>(results.size())});
    r.position.assign(static_cast<std::size_t>(c.repeats), 0);
    r.planned_bytes = r.counted_bytes = {};
    results.push_back(r);
  }
  return results;
}

std::vector<Row> rows_of(const std::vector<CaseResult>& results) {
  std::vector<Row> rows;
  for (const CaseResult& r : results) rows.push_back(make_row(r, static_cast<int>(rows.size())));
  return rows;
}

std::vector<Provenance> sessions() {
  Provenance p;
  p.git_hash = "0123456789ab";
  p.command = "minitaw run";
  p.deck = "layers = 1";
  p.devices = {"cpu"};
  return {p};
}

std::string reason(const std::vector<CaseResult>& results) {
  return official(rows_of(results), sessions()).reason;
}
std::string reason(const std::string& name, const std::vector<std::string>& overrides) {
  return reason(results_of(name, overrides));
}

TEST(Official, is_what_the_shipped_decks_give) {
  for (const NamedDeck& deck : acceptance_decks()) {
    const Official found = official(rows_of(results_of(deck.name)), sessions());
    EXPECT_EQ(found.reason, "") << deck.name;
    EXPECT_EQ(found.size, deck.name);
    EXPECT_THAT(found.bests, SizeIs(3));
    EXPECT_THAT(found.text(), HasSubstr("official: yes (" + deck.name + ")\n"));
  }
}

TEST(Official, leaves_free_what_the_rules_leave_free) {
  EXPECT_EQ(reason("medium",
                   {"schedule=zb2,fsdp", "micro_batch=2", "micro_batches=16", "recompute=none", "replicas=2",
                    "groups=4", "transport=mpi", "attention=portable", "steps=30", "repeats=9", "warmup=4"}),
            "");
  EXPECT_EQ(reason("small", {"ranks=8", "groups=1", "schedule=fsdp"}), "");
}

TEST(Official, names_the_rule_that_was_broken) {
  EXPECT_THAT(reason("small", {"layers=9"}), HasSubstr("none of small, medium, large"));
  EXPECT_THAT(reason("medium", {"dtype=fp32"}), HasSubstr("case 0: dtype is \"fp32\", medium has \"bf16\""));
  EXPECT_THAT(reason("medium", {"seed=2"}), HasSubstr("seed"));
  EXPECT_THAT(reason("medium", {"learning_rate=0.1"}), HasSubstr("learning_rate"));
  EXPECT_THAT(reason("medium", {"steps=2"}), HasSubstr("steps = 2, medium needs 3"));
  EXPECT_THAT(reason("small", {"repeats=4"}), HasSubstr("repeats = 4, small needs 5"));
  EXPECT_THAT(reason("large", {"warmup=0"}), HasSubstr("warmup = 0"));
  EXPECT_THAT(reason("large", {"seq=4K,16K,24K,32K"}), HasSubstr("seq = 32768 is no length of large"));
  EXPECT_THAT(reason("large", {"seq=4K,24K"}), HasSubstr("4096, 16384, 24576"));
  EXPECT_THAT(reason("large", {"micro_batches=80"}), HasSubstr("80 sequences in a step, large has 160"));
  EXPECT_THAT(reason(std::vector<CaseResult>{}), HasSubstr("no case"));
}

TEST(Official, needs_cases_without_fault_and_doubt) {
  std::vector<CaseResult> results = results_of("small");
  results[5].status = Status::wrong;
  EXPECT_THAT(reason(results), HasSubstr("case 5: INVALID: wrong"));
  results = results_of("small");
  for (std::size_t i = 0; i < results[7].seconds.size(); i += 2) results[7].seconds[i] = {1.0};
  EXPECT_THAT(reason(results), HasSubstr("case 7: VALID (noisy"));
}

TEST(Official, needs_time_on_machines_but_not_for_the_smallest_size) {
  const auto quick = [](const std::string& name) {
    std::vector<CaseResult> results = results_of(name);
    for (CaseResult& r : results) r.seconds.assign(r.seconds.size(), {0.25});
    return results;
  };
  EXPECT_EQ(reason(quick("small")), "");
  EXPECT_THAT(reason(quick("medium")), HasSubstr("3.75 s of timed steps, 10 are needed"));
}

TEST(Official, needs_to_know_where_it_comes_from) {
  const std::vector<Row> rows = rows_of(results_of("small"));
  const auto why = [&](auto change) {
    std::vector<Provenance> all = sessions();
    all.push_back(all.front());
    change(all);
    return official(rows, all).reason;
  };
  EXPECT_EQ(why([](auto&) {}), "");
  EXPECT_THAT(why([](auto& all) { all[1].git_hash += "-dirty"; }), HasSubstr("differ from their commit"));
  EXPECT_THAT(why([](auto& all) { all[0].git_hash = "unknown"; }), HasSubstr("not known"));
  EXPECT_THAT(why([](auto& all) { all[1].git_hash = "ba9876543210"; }), HasSubstr("different commits"));
  EXPECT_THAT(why([](auto& all) { all[1].devices.clear(); }), HasSubstr("not complete"));
  EXPECT_THAT(why([](auto& all) { all.clear(); }), HasSubstr("nothing of where"));
}

// small has lengths 128, 256 and 512 with 8 sequences a step; its cases come by schedule, then length.
TEST(Official, rate_is_all_tokens_over_all_seconds_of_the_fastest) {
  const Official found = official(rows_of(results_of("small")), sessions());
  EXPECT_DOUBLE_EQ(found.rate(), 8 * (128 + 256 + 512) / (2.0 + 3.0 + 4.0));
  EXPECT_THAT(found.text(), AllOf(HasSubstr("# 256 tokens: 2048 tokens in 3 s (tawpipe)\n"),
                                  HasSubstr("rate of small: 796.444 tokens/s\n")));
  std::vector<CaseResult> results = results_of("small");
  results[0].status = Status::error;  // the second schedule takes its place, in 5 s
  const Official less = official(rows_of(results), sessions());
  EXPECT_DOUBLE_EQ(less.rate(), 8 * (128 + 256 + 512) / (5.0 + 3.0 + 4.0));
  EXPECT_THAT(less.text(), HasSubstr("estimate of small: "));
  for (std::size_t i = 0; i < results.size(); i += 3) results[i].status = Status::error;
  const Official none = official(rows_of(results), sessions());
  EXPECT_THAT(none.bests, IsEmpty());
  EXPECT_TRUE(std::isnan(none.rate()));
  EXPECT_THAT(none.text(), Not(HasSubstr("estimate")));
}

}  // namespace
}  // namespace minitaw::record
