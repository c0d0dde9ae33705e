#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "record/table.hpp"

namespace minitaw::record {

namespace {

std::string title(const Column& column) {
  return column.units == "text" || column.units == "1" ? column.name
                                                       : fmt::format("{} [{}]", column.name, column.units);
}

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

}  // namespace

std::string to_csv(const std::vector<Row>& rows) {
  std::string text;
  for (const Column& column : columns()) text += (text.empty() ? "" : ",") + csv_text(title(column));
  text += "\n";
  for (const Row& row : rows) {
    std::string line;
    for (const Cell& cell : row.cells())
      line += (&cell == row.cells().data() ? "" : ",") + std::visit(CsvCell{}, cell);
    text += line + "\n";
  }
  return text;
}

std::string to_json(const std::vector<Row>& rows) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    nlohmann::ordered_json object;
    for (std::size_t i = 0; i < columns().size(); ++i)
      std::visit([&](const auto& cell) { object[title(columns()[i])] = cell; }, row.cells()[i]);
    list.push_back(std::move(object));
  }
  // Text of a damaged file must not stop the export: what is not UTF-8 is replaced.
  return list.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace minitaw::record
