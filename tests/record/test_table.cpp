// SPDX-License-Identifier: BSD-3-Clause
#include <regex>
#include "fixtures.hpp"
#include "record/table.hpp"
#include "sample.hpp"

namespace minitaw::record {
namespace {
using testing::AllOf, testing::HasSubstr, testing::MatchesRegex, testing::StartsWith;

/// With single blanks.
std::string squeezed(const std::string& text) {
  return std::regex_replace(text, std::regex(" +"), " ");
}

/// By hand: 2.25 s, 1536 tokens; pair p of ranks 0 .. 8 has 25 p + 10 units, 0, 4, 5, 7 and 8 lie
/// inside groups. Titles end where the figures end.
TEST(Table, ARowHasTheFiguresOfItsColumns) {
  CaseResult r = sample_case();
  for (LinkBytes& link : r.bytes)
    link.counted <<= 24;
  for (RankMemory& memory : r.memory)
    memory.measured[0] += 3 << 20;
  r.peak = 1e9;
  const Row row = make_row(r, {7});
  const std::string titles = make_table({row}).header(), line = make_table({row}).row(row);
  EXPECT_EQ(squeezed(line),
      " 7 tawpipe 3x1 1+2 128 2 6 2.250 1.500 3.000 682.7 0.0000157 1.6 3.040 10400 5440 35.0 25.0 "
      "33.3 3.0000 2.5000 1e-07 ok\n");
  EXPECT_EQ(make_table(preview({r.asked})).header(), titles);
  EXPECT_EQ(titles.find("loss0") + 5, line.find("3.0000") + 6);
}

/// Of these rows schedule and seq differ, and repetitions.
TEST(Table, ANarrowLineKeepsWhatTellsCasesApartAndTheMainFigures) {
  const Row first = make_row(sample_case("ddp", 64)), second = make_row(sample_case(), {0, 1});
  EXPECT_THAT(squeezed(make_table({first, second}, true).header()),
      StartsWith("# case rep schedule seq step rate memory exposed idle status\n"))
      << "no groups, which are equal";
}

TEST(Table, SettingsListEveryValueOnce) {
  const Row first = make_row(sample_case()), second = make_row(sample_case("ddp", 65536));
  EXPECT_THAT(settings_text({first, second, first}),
      AllOf(HasSubstr("\n# seq           = 128, 65536 token\n"),
          HasSubstr("\n# layers        = 5\n")));
}

/// A quoted field may hold commas, quotes and line breaks.
TEST(Csv, HasTitlesWithUnitsAndALineForEachRun) {
  CaseResult failed = sample_case();
  failed.status = Status::error;
  failed.reason = "a \"b\",\nc";
  const std::string titles = to_csv({});
  EXPECT_THAT(
      titles, MatchesRegex("case,repetition,session,.*,median_s \\[s],.*,samples,[^\n]*\n"));
  EXPECT_THAT(to_csv({make_row(failed, {2})}),
      AllOf(StartsWith(titles + "2,0,0,"), HasSubstr(",\"a \"\"b\"\",\nc\",")));
}
}  // namespace
}  // namespace minitaw::record
