// SPDX-License-Identifier: BSD-3-Clause
#include "record/table.hpp"
#include <cmath>
#include <fmt/ranges.h>
#include <set>
#include "deck/keys.hpp"
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

/// "`memory/other` [rank] (B)". A column of /runs has no axis to tell, a number without unit none.
std::string title_of(const Field& field) {
  std::string text = fmt::format("`{}`", field.name);
  if (!field.axes.empty() && field.axes != "run")
    text += fmt::format(" [{}]", field.axes);
  if (field.units != "1")
    text += fmt::format(" ({})", field.units);
  return text;
}

/// A list of docs/results.md: a line for each of some fields.
std::string list_text(const std::vector<Field>& fields) {
  std::string text;
  for (const Field& field : fields) {
    std::string doc = field.doc;
    if (!field.labels.empty())  // in the place of the full stop
      doc = fmt::format("{}: {}.", doc.substr(0, doc.size() - 1), fmt::join(field.labels, ", "));
    text += fmt::format("- {}: {}\n", title_of(field), doc);
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
  std::vector<Field> fields;
  std::vector<std::string> keys;  // which have an explanation of their own
  for (const Column& column : columns())
    if (deck::find_key(column.field.name) != nullptr)
      keys.push_back(title_of(column.field));
    else
      fields.push_back(column.field);
  return fmt::format("/runs: an element for each run\n\n{}"
                     "- settings of the case, as `minitaw help keys` explains them: {}\n\n"
                     "/runs/NNNN: arrays of run NNNN\n\n{}\n"
                     "/sessions/NNNN: one start of `minitaw run`\n\n{}",
      list_text(fields),
      fmt::join(keys, ", "),
      list_text(list_of(arrays(), &Array::field)),
      list_text(session_fields()));
}
}  // namespace minitaw::record
