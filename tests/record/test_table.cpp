#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "record/remaining.hpp"
#include "record/table.hpp"
#include "sample.hpp"

namespace minitaw::record {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::vector<Row> rows() {
  CaseResult failed;
  failed.settings = sample_case("tawpipe:cco=off", 65536).settings;
  failed.status = Status::error;
  failed.reason = "out of memory, on \"rank\" 2";
  return {make_row(sample_case(), 0), make_row(sample_case("ddp", 4096, 7), 1), make_row(failed, 2)};
}

/// Columns where a field of the line ends: right-aligned fields must end where their names end.
std::vector<std::size_t> ends(const std::string& line) {
  std::vector<std::size_t> found;
  for (std::size_t i = 1; i < line.size(); ++i)
    if (line[i - 1] != ' ' && (line[i] == ' ' || line[i] == '\n')) found.push_back(i);
  return found;
}

TEST(Table, rows_are_aligned_with_the_names) {
  const Table table(rows());
  std::string names = table.header();
  names.erase(names.find('\n') + 1);
  names[0] = ' ';
  const auto columns = ends(names);
  for (const Row& row : rows()) {
    const auto fields = ends(table.row(row));
    ASSERT_EQ(fields.size(), columns.size()) << table.row(row);
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const bool left_aligned = i == 1 || i == 3 || i + 1 == fields.size();
      EXPECT_TRUE(left_aligned || fields[i] == columns[i]) << names << table.row(row) << "field " << i;
    }
  }
}

TEST(Table, shows_copies_and_micro_batches_of_unequal_size) {
  CaseResult copies = sample_case();
  copies.settings.ranks = 6;
  copies.settings.replicas = 2;
  copies.settings.micro_batch_per_rank = {2, 13, 7, 2, 2, 2};
  copies.settings.shape.micro_batch = 13;
  CaseResult plain = sample_case();
  plain.settings.replicas = 1;
  const std::vector<Row> both = {make_row(plain), make_row(copies)};
  EXPECT_THAT(Table(both).row(both[0]), HasSubstr("    3 1+2 "));
  EXPECT_THAT(Table(both).row(both[1]), HasSubstr("  2x3 1+2 "));
  EXPECT_THAT(Table(both).row(both[0]), HasSubstr("128     2    6 "));
  EXPECT_THAT(Table(both).row(both[1]), HasSubstr("128 2..13    6 "));
}

TEST(Table, lines_that_are_no_data_begin_with_a_hash) {
  std::istringstream lines(Table(rows()).header() + settings_text(rows()));
  for (std::string line; std::getline(lines, line);) EXPECT_THAT(line, StartsWith("#"));
}

TEST(Table, settings_list_every_value_once) {
  const std::string text = settings_text(rows());
  EXPECT_THAT(text, HasSubstr("# seq           = 128, 4096, 65536 token\n"));
  EXPECT_THAT(text, HasSubstr("# layers        = 5\n"));
  EXPECT_THAT(text, HasSubstr("# ffn           = 7,8,9,10,11\n"));
}

TEST(Table, a_preview_has_the_width_of_the_rows_to_come) {
  const CaseResult r = sample_case("tawpipe:cco=off:prefetch=2");
  EXPECT_EQ(Table(preview({r.settings})).header(), Table({make_row(r)}).header());
}

TEST(Json, is_a_list_of_objects) {
  const auto list = nlohmann::json::parse(to_json(rows()));
  ASSERT_EQ(list.size(), 3U);
  EXPECT_EQ(list[0].size(), columns().size());
  EXPECT_EQ(list[1]["schedule"], "ddp");
  EXPECT_EQ(list[1]["seq [token]"], 4096);
  EXPECT_DOUBLE_EQ(list[0]["median_s [s]"].get<double>(), 2.25);
  EXPECT_TRUE(list[2]["median_s [s]"].is_null());
  EXPECT_EQ(nlohmann::json::parse(to_json({})).size(), 0U);
}

TEST(Progress, counts_and_weighs_the_cases) {
  deck::Case small = sample_case("ddp", 128).settings;
  deck::Case large = small;
  large.steps = 3 * (small.steps + small.warmup) - small.warmup;
  Progress progress({small, large}, 1e9);
  EXPECT_EQ(progress.after(10), "[1/2, 0:30 to go]");
  EXPECT_EQ(progress.after(30), "[2/2, 0:00 to go]");
}

TEST(Progress, clock) {
  EXPECT_EQ(clock_text(0), "0:00");
  EXPECT_EQ(clock_text(65), "1:05");
  EXPECT_EQ(clock_text(2 * 3600 + 3 * 60 + 4), "2:03:04");
}

}  // namespace
}  // namespace minitaw::record
