// SPDX-License-Identifier: BSD-3-Clause
#include "record/table.hpp"
#include <cmath>
#include <fmt/ranges.h>
#include <set>
#include "record/provenance.hpp"

namespace minitaw::record {
namespace {
/// "6", or "2x3" for two replicas.
Cell ranks_of(const Row& row) {
  return ranks_text(
      static_cast<int>(row.integer("ranks")), static_cast<int>(row.integer("replicas")));
}

/// In quotes where it holds a comma, a quote or a line break.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos)
    return text;
  std::string quoted = "\"";
  for (const char c : text)
    quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string csv_title(const Column& column) {
  const std::string& name = column.field.name;
  return column.has_unit() ? fmt::format("{} [{}]", name, column.field.units) : name;
}

std::string csv_cell(const Cell& cell) {
  const auto* real = std::get_if<double>(&cell);
  return real != nullptr && std::isnan(*real) ? std::string() : csv_field(to_text(cell));
}

/// A table of docs/results.md: a line for each of some fields.
std::string table_of(const std::string& group, const std::vector<Field>& fields) {
  std::string text = "| dataset | axes | units | meaning |\n|---|---|---|---|\n";
  for (const Field& field : fields) {
    std::string doc = field.doc;
    for (const auto& names : {field.labels, field.codes})
      if (!names.empty())
        doc += fmt::format(" {}.", fmt::join(names, ", "));
    const std::string axes = field.axes.empty() ? "" : fmt::format("[{}]", field.axes);
    text += fmt::format("| `{}{}` | {} | {} | {} |\n", group, field.name, axes, field.units, doc);
  }
  return text;
}
}  // namespace

TextTable<Row> make_table(const std::vector<Row>& rows, bool narrow) {
  const std::vector<std::string> varying = varying_settings(rows);
  std::set<std::string> told(varying.begin(), varying.end());
  if (told.erase("replicas") > 0)
    told.insert("ranks");  // "2x3"
  const auto repeats = [](const Row& row) { return row.integer("repetition") > 0; };
  if (std::ranges::any_of(rows, repeats))
    told.insert("repetition");
  std::vector<Shown> list;
  for (const Column& column : columns()) {
    const std::string& name = column.field.name;
    const bool differs = told.contains(name), is_optional = !column.shown || name == "repetition";
    if (is_optional && !differs)
      continue;
    list.push_back(column.shown.value_or(Shown{.title = name}));
    list.back().wide = list.back().wide && !differs;
    list.back().value = [name](const Row& row) { return row.cell(name); };
    if (name == "ranks")
      list.back().value = ranks_of;
  }
  return {std::move(list), rows, narrow};
}

std::string settings_text(const std::vector<Row>& rows) {
  const std::set<std::string_view> left_out = {"identity", "group_count"};
  std::string text;
  for (std::size_t i = 0; !rows.empty() && i < columns().size(); ++i) {
    const Column& column = columns()[i];
    if (!column.is_setting || left_out.contains(column.field.name))
      continue;
    std::vector<std::string> values;
    for (const Row& row : rows)
      if (std::string value = to_text(row.cells[i]);
          std::ranges::find(values, value) == values.end())
        values.push_back(std::move(value));
    if (values == std::vector<std::string>{""})
      continue;
    text += fmt::format("# {:<13} = {}{}{}\n",
        column.field.name,
        fmt::join(values, ", "),
        column.has_unit() ? " " : "",
        column.has_unit() ? column.field.units : "");
  }
  return text;
}

std::string to_csv(const std::vector<Row>& rows) {
  std::string text = fmt::format("{}\n", fmt::join(list_of(columns(), csv_title), ","));
  for (const Row& row : rows)
    text += fmt::format("{}\n", fmt::join(list_of(row.cells, csv_cell), ","));
  return text;
}

std::string schema_text() {
  return fmt::format("{}\n{}\n{}",
      table_of("/runs/", list_of(columns(), &Column::field)),
      table_of("/runs/NNNN/", list_of(arrays(), &Array::field)),
      table_of("/sessions/NNNN/", session_fields()));
}
}  // namespace minitaw::record
