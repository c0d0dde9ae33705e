#pragma once

#include <string>
#include <vector>

#include "record/columns.hpp"

namespace minitaw::record {

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

/// A table for other programs. Header names carry the units: "median_s [s]".
[[nodiscard]] std::string to_csv(const std::vector<Row>& rows);
/// A list of objects with the same names; figures that do not exist are null.
[[nodiscard]] std::string to_json(const std::vector<Row>& rows);

}  // namespace minitaw::record
