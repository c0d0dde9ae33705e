#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "record/export.hpp"
#include "record/table.hpp"

namespace minitaw::record {

namespace {

/// RFC 4180.
std::string csv_text(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

struct CsvCell {
  std::string operator()(std::int64_t value) const { return fmt::format("{}", value); }
  std::string operator()(double value) const { return std::isfinite(value) ? fmt::format("{}", value) : ""; }
  std::string operator()(const std::string& value) const { return csv_text(value); }
};

std::vector<std::string> summary_titles() {
  std::vector<std::string> titles;
  for (const Column& column : columns()) titles.push_back(export_title(column.name, column.units));
  return titles;
}

std::vector<std::vector<Cell>> cells_of(const std::vector<Row>& rows) {
  std::vector<std::vector<Cell>> cells;
  for (const Row& row : rows) cells.push_back(row.cells());
  return cells;
}

}  // namespace

std::string export_title(const std::string& name, const std::string& units) {
  return units == "text" || units == "1" ? name : fmt::format("{} [{}]", name, units);
}

std::string cells_to_csv(const std::vector<std::string>& titles, const std::vector<std::vector<Cell>>& rows) {
  std::string text;
  for (const std::string& title : titles) text += (text.empty() ? "" : ",") + csv_text(title);
  text += "\n";
  for (const std::vector<Cell>& row : rows) {
    for (const Cell& cell : row) text += (&cell == row.data() ? "" : ",") + std::visit(CsvCell{}, cell);
    text += "\n";
  }
  return text;
}

std::string cells_to_json(const std::vector<std::string>& titles,
                          const std::vector<std::vector<Cell>>& rows) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const std::vector<Cell>& row : rows) {
    nlohmann::ordered_json object;
    for (std::size_t i = 0; i < titles.size(); ++i)
      std::visit([&](const auto& cell) { object[titles[i]] = cell; }, row[i]);
    list.push_back(std::move(object));
  }
  // Text of a damaged file must not stop the export: what is not UTF-8 is replaced.
  return list.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string to_csv(const std::vector<Row>& rows) { return cells_to_csv(summary_titles(), cells_of(rows)); }

std::string to_json(const std::vector<Row>& rows) { return cells_to_json(summary_titles(), cells_of(rows)); }

}  // namespace minitaw::record
