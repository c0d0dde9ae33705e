// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <sstream>
#include "fixtures.hpp"
#include "record/table.hpp"
#include "sample.hpp"

namespace minitaw::record {
namespace {
using testing::AllOf, testing::HasSubstr;

std::vector<Row> rows() {
  CaseResult failed;
  failed.asked = sample_case("tawpipe:cco=off", 65536).asked;
  failed.status = Status::error;
  failed.reason = "a \"b\",\nc";
  return {
      make_row(sample_case()), make_row(sample_case("ddp", 4096, 7), {1}), make_row(failed, {2})};
}

/// Columns where a field of the line ends: right-aligned fields must end where their names end.
std::vector<std::size_t> ends(const std::string& line) {
  std::vector<std::size_t> found;
  for (std::size_t i = 1; i < line.size(); ++i)
    if (line[i - 1] != ' ' && (line[i] == ' ' || line[i] == '\n'))
      found.push_back(i);
  return found;
}

TEST(Table, RowsAreAlignedWithTheNames) {
  const TextTable<Row> table = make_table(rows());
  std::string names = table.header();
  names.erase(names.find('\n') + 1);
  names[0] = ' ';
  const auto columns = ends(names);
  for (const Row& row : rows()) {
    const auto fields = ends(table.row(row));
    ASSERT_EQ(fields.size(), columns.size()) << table.row(row);
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const bool left_aligned = i == 1 || i == 3 || i + 1 == fields.size();
      EXPECT_TRUE(left_aligned || fields[i] == columns[i])
          << names << table.row(row) << "field " << i;
    }
  }
  EXPECT_EQ(make_table(preview({sample_case().asked})).header(),
      make_table({make_row(sample_case())}).header());
}

/// By hand: 2.25 s, 1536 tokens; pair p of ranks 0 .. 8 has 25 p + 10 units, 0, 4, 5, 7 and 8 lie
/// inside groups.
TEST(Table, ARowHasTheFiguresOfItsColumns) {
  CaseResult r = sample_case();
  for (LinkBytes& link : r.bytes)
    link.counted <<= 24;
  for (RankMemory& memory : r.memory)
    memory.measured[0] += 3 << 20;
  r.peak = 1e9;
  const Row row = make_row(r, {7});
  const double teraflops =
      1536 / 2.25 / 3 * (6.0 * (12 * (5 * 32 + 3 * 45) + 276) + 6.0 * 5 * 128 * 12) * 1e-12;
  const double inside = 25 * 24 + 5 * 10, between = 990 - inside;
  std::istringstream line(make_table({row}).row(row));
  std::string found;
  for (std::string field; line >> field;)
    found += field + " ";
  EXPECT_EQ(found,
      fmt::format("7 tawpipe 3x1 1+2 128 2 6 2.250 1.500 3.000 682.7 {:.7f} {:.1f} {:.3f} {:.0f} "
                  "{:.0f} 35.0 25.0 33.3 3.0000 2.5000 1e-07 ok ",
          teraflops,
          100 * teraflops / 1e-3,
          3 + (7 * 6000 + 21 + 302) / 1048576.0,
          16 * inside,
          16 * between));
}

/// Of these rows schedule and seq differ.
TEST(Table, ANarrowLineKeepsWhatTellsCasesApartAndTheMainFigures) {
  const std::vector<Row> some = {make_row(sample_case("ddp", 64)), make_row(sample_case())};
  const TextTable<Row> table = make_table(some, true);
  std::istringstream lines(table.header() + table.row(some[0]) + table.row(some[1]));
  for (std::string line; std::getline(lines, line);)
    EXPECT_LE(line.size(), 80U) << line;
  EXPECT_THAT(table.header(),
      testing::ContainsRegex("case +schedule +seq +step +rate +memory +exposed +idle +status"))
      << "no groups, which are equal";
}

TEST(Table, ShowsCopiesAndSizesOfMicroBatches) {
  CaseResult copies = sample_case(), plain = sample_case();
  copies.asked.ranks = 6;
  copies.asked.replicas = 2;
  copies.asked.shape.micro_batch = 13;
  plain.asked.replicas = 1;
  const std::vector<Row> both = {make_row(plain), make_row(copies)};
  EXPECT_THAT(
      make_table(both).row(both[0]), AllOf(HasSubstr("    3 1+2 "), HasSubstr("128   2    6 ")));
  EXPECT_THAT(
      make_table(both).row(both[1]), AllOf(HasSubstr("  2x3 1+2 "), HasSubstr("128  13    6 ")));
}

TEST(Table, LinesThatAreNoDataBeginWithAHashAndSettingsListEveryValueOnce) {
  const std::string text = settings_text(rows());
  EXPECT_THAT(make_table(rows()).header() + text, testing::MatchesRegex("(#[^\n]*\n)+"));
  EXPECT_THAT(text,
      AllOf(HasSubstr("# seq           = 128, 4096, 65536 token\n"),
          HasSubstr("# layers        = 5\n")));
}

TEST(Table, TellsRepetitionsApart) {
  const Row first = make_row(sample_case()), second = make_row(sample_case(), {0, 1});
  EXPECT_THAT(make_table({first, second}, true).header(), HasSubstr("case rep schedule"));
}

/// A quoted field may hold commas, quotes and line breaks.
TEST(Csv, HasTitlesWithUnitsAndALineForEachRun) {
  const std::string text = to_csv(rows()), titles = to_csv({});
  EXPECT_THAT(titles,
      testing::MatchesRegex("case,repetition,session,.*,median_s \\[s],.*,samples,[^\n]*\n"));
  EXPECT_THAT(
      text, AllOf(testing::StartsWith(titles + "0,0,0,"), HasSubstr(",\"a \"\"b\"\",\nc\",")));
}
}  // namespace
}  // namespace minitaw::record
