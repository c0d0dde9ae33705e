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

/// A column of /summary. Writing, reading and printing all use the table of these; the file names its
/// columns, so that programs in Python need no table of their own.
struct Column {
  std::string name;
  std::string units;     ///< "1": a number without unit, "text"
  bool setting = false;  ///< what was asked for, as opposed to what came out
  Cell (*value)(const CaseView& view);
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

/// A figure of merit needs at least this many timed steps: with fewer, the quartiles say nothing.
inline constexpr int least_samples = 3;

/// Quartiles of the samples further apart than this share of the median make a result noisy.
inline constexpr double widest_spread = 0.1;

/// Whether a result may be quoted.
struct Verdict {
  std::string reason;  ///< why it is invalid; empty: valid
  std::string doubt;   ///< what to know about a valid one: no warm-up, too noisy, or both

  [[nodiscard]] bool valid() const { return reason.empty(); }
  /// "VALID", "VALID (doubt)" or "INVALID: reason"
  [[nodiscard]] std::string text() const;
};

/// Of one case: it ended ok, with all repetitions and enough samples, and the bytes counted are those
/// planned.
[[nodiscard]] Verdict verdict(const CaseResult& result);
/// Of a sweep: there is at least one case and all are valid.
[[nodiscard]] Verdict verdict(const std::vector<Row>& rows);

/// Cases of a sweep that are not finished.
struct Missing {
  std::size_t cases = 0;
  std::string why;  ///< "stopped by SIGTERM"
};
/// Of a sweep of which some cases are missing.
[[nodiscard]] Verdict verdict(const std::vector<Row>& rows, const Missing& missing);

[[nodiscard]] bool is_valid(const Row& row);

/// "figure of merit: 1234 tokens/s (tawpipe, 4 ranks in groups 2+2, 1024 tokens)", the fastest valid case;
/// and "RESULT: VALID" or "RESULT: INVALID: reason". Two lines.
[[nodiscard]] std::string closing_text(const std::vector<Row>& rows, const Missing& missing = {});

/// The aligned table that `run` prints row by row and `show` prints at once. Lines that are no data begin
/// with #.
class Table {
public:
  /// Rows that may be printed, to know how wide the text columns get. For a sweep that has not run yet, rows
  /// of results that hold settings only do.
  explicit Table(const std::vector<Row>& rows);

  /// Two lines: names and units.
  [[nodiscard]] std::string header() const;
  /// One line, with a newline.
  [[nodiscard]] std::string row(const Row& row) const;

private:
  struct Field {
    std::string name, units;
    int width;  ///< negative: left-aligned
    std::string (*value)(const Row& row);
  };
  std::vector<Field> fields_;
};

/// Rows of cases that have not run yet, for widths and settings_text().
[[nodiscard]] std::vector<Row> preview(const std::vector<deck::Case>& cases);

/// "# seq = 512, 1024 token": one line for each setting, with all its values.
[[nodiscard]] std::string settings_text(const std::vector<Row>& rows);

/// Settings, table, figure of merit and verdict: what `show` prints.
[[nodiscard]] std::string whole_text(const std::vector<Row>& rows);

/// A list of objects, titles with units where there are any: "median_s [s]"; figures that do not exist are
/// null.
[[nodiscard]] std::string to_json(const std::vector<Row>& rows);

}  // namespace minitaw::record
