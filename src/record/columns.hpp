#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "record/result.hpp"

namespace minitaw::record {

/// One entry of the summary table.
using Cell = std::variant<std::int64_t, double, std::string>;
/// Without a unit; as many digits as tell the number from any other.
[[nodiscard]] std::string to_text(const Cell& cell);

/// What a column needs to know about a case.
struct CaseView {
  const CaseResult& result;
  Summary summary;
  int number;   ///< of the case in the file
  int session;  ///< of the run that measured it
};

/// A column of /summary. The file, `show`, CSV and JSON all use the table of these.
struct Column {
  std::string name;
  std::string units;     ///< "1": a number without unit, "text"
  bool setting = false;  ///< what was asked for, as opposed to what came out
  Cell (*value)(const CaseView& view);
  int since = 1;  ///< schema version that brought it; empty (text), 0 or NaN in rows from older files
};
[[nodiscard]] const std::vector<Column>& columns();

/// A row of /summary: cells in the order of columns().
class Row {
public:
  explicit Row(std::vector<Cell> cells) : cells_(std::move(cells)) {}

  /// By column name; LogicError if there is no such column or it has another type.
  [[nodiscard]] const std::string& text(std::string_view column) const;
  [[nodiscard]] std::int64_t integer(std::string_view column) const;
  [[nodiscard]] double real(std::string_view column) const;
  /// Of any type; LogicError if there is no such column.
  [[nodiscard]] const Cell& cell(std::string_view column) const;
  [[nodiscard]] const std::vector<Cell>& cells() const { return cells_; }

private:
  std::vector<Cell> cells_;
};
[[nodiscard]] Row make_row(const CaseResult& result, int number = 0, int session = 0);

}  // namespace minitaw::record
