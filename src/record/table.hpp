// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <utility>
#include "record/extension.hpp"

namespace minitaw::record {
/// Settings in which the rows differ, in the order of the columns, but not what follows from
/// another one.
[[nodiscard]] std::vector<std::string_view> varying_settings(const std::vector<Row>& rows);

struct Missing {
  std::size_t cases = 0;
  std::string why;  ///< "stopped by SIGTERM"
};

/// The verdict of a sweep: there is at least one case, all are valid and none is missing.
[[nodiscard]] std::string verdict(const std::vector<Row>& rows, const Missing& missing = {});
[[nodiscard]] bool is_valid(const std::string& verdict);
/// The fastest valid case of each model: "1234 tokens/s (tawpipe, 4 ranks in groups 2+2, 1024
/// tokens)", followed by its doubt and the fastest case without one if it has a doubt. "none" if no
/// case is valid.
[[nodiscard]] std::vector<std::string> figures_of_merit(const std::vector<Row>& rows);
/// What instruments say, who has most memory, what was judged, a line "figure of merit: ..." for
/// each model, and "RESULT: VALID" or "RESULT: INVALID: reason".
[[nodiscard]] std::string closing_text(
    const std::vector<Row>& rows, const Extensions& extensions = {}, const Missing& missing = {});
/// Four significant digits without an exponent, at most so many behind the point; "-" if not known.
[[nodiscard]] std::string figure(double value, int most_decimals = 7);
/// With spaces; a width below zero aligns to the left.
[[nodiscard]] std::string aligned(const std::string& text, int width);

struct TableLayout {
  int width = 0;  ///< characters of a line, as far as possible; 0: no limit, for files and pipes
  std::vector<std::string> columns{};  ///< these and no others; empty: all
};

template <class Entry>
struct TextColumn {
  std::string name, units;
  int width;  ///< at least; below zero: left-aligned
  std::function<std::string(const Entry&)> cell;
  /// Where the lines are too long, columns go in falling order; 0: stays.
  int spare = 0;
};

/// An aligned table. Lines that are no data begin with #.
template <class Entry>
class TextTable {
public:
  /// Columns as wide as their cells. With a width, texts are cut to `widest_text` characters, then
  /// columns left out.
  TextTable(
      std::vector<TextColumn<Entry>> columns, const std::vector<Entry>& entries, int width = 0)
      : columns_(std::move(columns)) {
    for (TextColumn<Entry>& column : columns_) {
      std::size_t widest = std::max(column.name.size(), column.units.size());
      for (const Entry& entry : entries)
        widest = std::max(widest, column.cell(entry).size());
      const int wide = static_cast<int>(widest);
      column.width =
          column.width < 0 ? std::min(column.width, -wide) : std::max(column.width, wide);
      if (width > 0)
        column.width = std::max(column.width, -widest_text);
    }
    while (width > 0 && length() > width) {
      const auto least = std::ranges::max_element(columns_, {}, &TextColumn<Entry>::spare);
      if (least == columns_.end() || least->spare == 0)
        break;
      columns_.erase(least);
    }
  }

  /// Two lines: names and units.
  [[nodiscard]] std::string header() const {
    return line("#", std::mem_fn(&TextColumn<Entry>::name)) +
           line("#", std::mem_fn(&TextColumn<Entry>::units));
  }

  /// One line, with a newline.
  [[nodiscard]] std::string row(const Entry& entry) const {
    return line(" ", [&](const TextColumn<Entry>& column) { return column.cell(entry); });
  }

  static constexpr int widest_text = 30;

private:
  [[nodiscard]] int length() const {
    int sum = 1;
    for (const TextColumn<Entry>& column : columns_)
      sum += 1 + std::abs(column.width);
    return sum;
  }

  std::string line(std::string text, const auto& cell) const {
    for (const TextColumn<Entry>& column : columns_) {
      std::string entry = cell(column);
      if (column.width == -widest_text && entry.size() > widest_text) {
        entry.resize(widest_text);
        entry.back() = '~';
      }
      text += " " + aligned(entry, column.width);
    }
    return text.erase(text.find_last_not_of(' ') + 1) + "\n";
  }

  std::vector<TextColumn<Entry>> columns_;
};

/// Returns the table of `run` and `show`. Its columns fit `rows`; before a sweep, use preview().
/// Those of the layout are its titles or columns of the summary; else it throws InputError. With a
/// width, equal settings are left out.
[[nodiscard]] TextTable<Row> make_table(
    const std::vector<Row>& rows, const TableLayout& layout = {});
/// "# seq = 512, 1024 token": one line for each setting, with all its values.
[[nodiscard]] std::string settings_text(const std::vector<Row>& rows);
/// A list of objects with the columns by their names; NaN is null.
[[nodiscard]] std::string to_json(const std::vector<Row>& rows);
}  // namespace minitaw::record
