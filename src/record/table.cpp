#include "record/table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "record/verdict.hpp"

namespace minitaw::record {

namespace {

std::string number(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "-";
}

/// Four significant digits without an exponent for what steps and rates usually are.
std::string figure(double value) {
  if (!std::isfinite(value)) return "-";
  if (value == 0) return "0";
  const int digits = 3 - static_cast<int>(std::floor(std::log10(std::abs(value))));
  return fmt::format("{:.{}f}", value, std::clamp(digits, 0, 7));
}

std::string mebibytes(const Row& row, std::string_view column) {
  return figure(static_cast<double>(row.integer(column)) / (1024.0 * 1024.0));
}

std::string percent(const Row& row, std::string_view column) { return number(100 * row.real(column), 1); }

std::string integer(const Row& row, std::string_view column) {
  return fmt::format("{}", row.integer(column));
}

/// Largest error against the serial reference; "-" if the case was not checked.
std::string error(double value) { return std::isnan(value) ? "-" : fmt::format("{:.0e}", value); }

int widest(const std::vector<Row>& rows, std::string_view column) {
  std::size_t width = column.size();
  for (const Row& row : rows) width = std::max(width, row.text(column).size());
  return static_cast<int>(width);
}

std::string align(const std::string& text, int width) {
  return width < 0 ? fmt::format("{:<{}}", text, -width) : fmt::format("{:>{}}", text, width);
}

/// "2", or "1..3" where ranks differ.
std::string micro_batch(const Row& row) {
  const std::string& sizes = row.text("micro_batch_per_rank");
  if (sizes.empty()) return integer(row, "micro_batch");
  std::int64_t least = row.integer("micro_batch"), size = 0;
  std::istringstream list(sizes);
  for (char comma = 0; list >> size; list >> comma) least = std::min(least, size);
  return fmt::format("{}..{}", least, integer(row, "micro_batch"));
}

std::string ranks(const Row& row) {
  return deck::ranks_text(static_cast<int>(row.integer("ranks")), static_cast<int>(row.integer("replicas")));
}

int widest_micro_batch(const std::vector<Row>& rows) {
  std::size_t width = 3;
  for (const Row& row : rows) width = std::max(width, micro_batch(row).size());
  return static_cast<int>(width);
}

}  // namespace

Table::Table(const std::vector<Row>& rows)
    : fields_{
          {"case", "", 5, [](const Row& r) { return integer(r, "case"); }},
          {"schedule", "", -widest(rows, "schedule"), [](const Row& r) { return r.text("schedule"); }},
          {"ranks", "", 5, ranks},
          {"groups", "", -widest(rows, "groups"), [](const Row& r) { return r.text("groups"); }},
          {"seq", "token", 7, [](const Row& r) { return integer(r, "seq"); }},
          {"B", "", widest_micro_batch(rows), micro_batch},
          {"M", "", 4, [](const Row& r) { return integer(r, "micro_batches"); }},
          {"step", "s", 9, [](const Row& r) { return figure(r.real("median_s")); }},
          {"q1", "s", 9, [](const Row& r) { return figure(r.real("q1_s")); }},
          {"q3", "s", 9, [](const Row& r) { return figure(r.real("q3_s")); }},
          {"rate", "token/s", 9, [](const Row& r) { return figure(r.real("tokens_per_s")); }},
          {"model", "TFLOP/s", 9, [](const Row& r) { return figure(r.real("tflops_causal")); }},
          {"memory", "MiB", 9, [](const Row& r) { return mebibytes(r, "memory_measured"); }},
          {"inside", "MiB/step", 9, [](const Row& r) { return mebibytes(r, "bytes_inside"); }},
          {"between", "MiB/step", 9, [](const Row& r) { return mebibytes(r, "bytes_between"); }},
          {"exposed", "%", 7, [](const Row& r) { return percent(r, "exposed_share"); }},
          {"bubble", "%", 6, [](const Row& r) { return percent(r, "idle_share"); }},
          {"overlap", "%", 7, [](const Row& r) { return percent(r, "overlap"); }},
          {"loss0", "nat", 8, [](const Row& r) { return number(r.real("first_loss"), 4); }},
          {"loss", "nat", 8, [](const Row& r) { return number(r.real("last_loss"), 4); }},
          {"check", "", 7, [](const Row& r) { return error(r.real("gradient_error")); }},
          {"status", "", -6, [](const Row& r) { return r.text("status"); }},
      } {}

std::string Table::header() const {
  std::string names = "#";
  std::string units = "#";
  for (const Field& field : fields_) {
    names += " " + align(field.name, field.width);
    units += " " + align(field.units, field.width);
  }
  return names + "\n" + units.substr(0, units.find_last_not_of(' ') + 1) + "\n";
}

std::string Table::row(const Row& row) const {
  std::string line = " ";
  for (const Field& field : fields_) line += " " + align(field.value(row), field.width);
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::vector<Row> preview(const std::vector<deck::Case>& cases) {
  std::vector<Row> rows;
  for (const deck::Case& c : cases) {
    CaseResult result;
    result.settings = c;
    rows.push_back(make_row(result));
  }
  return rows;
}

std::string settings_text(const std::vector<Row>& rows) {
  std::string text;
  for (std::size_t i = 0; i < columns().size(); ++i) {
    const Column& column = columns()[i];
    if (!column.setting || column.name == "identity" || column.name == "group_count") continue;
    std::vector<std::string> values;
    for (const Row& row : rows) {
      std::string value = to_text(row.cells()[i]);
      if (std::ranges::find(values, value) == values.end()) values.push_back(std::move(value));
    }
    if (values == std::vector<std::string>{""}) continue;
    const bool plain = column.units == "1" || column.units == "text";
    text += fmt::format("# {:<13} = {}{}{}\n", column.name, fmt::join(values, ", "), plain ? "" : " ",
                        plain ? "" : column.units);
  }
  return text;
}

std::string whole_text(const std::vector<Row>& rows) {
  const Table table(rows);
  std::string text = settings_text(rows) + table.header();
  for (const Row& row : rows) text += table.row(row);
  return text + closing_text(rows);
}

}  // namespace minitaw::record
