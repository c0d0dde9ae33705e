// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace minitaw {
/// One field of a table. NaN: not known.
using Cell = std::variant<std::int64_t, double, std::string>;

/// Text with as many digits as tell a number from any other.
std::string to_text(const Cell& cell);

/// The form of a number in a text; texts stay as they are.
struct Format {
  enum Style { significant, fixed, scientific };

  double factor = 1;          ///< by which it is multiplied first: 100 for percent
  Style style = significant;  ///< significant: as figure()
  int decimals = 7;           ///< significant: at most
};

inline constexpr Format as_percent{.factor = 100, .style = Format::fixed, .decimals = 1};
inline constexpr Format as_mebibytes{.factor = 0x1p-20};

/// The cell in this format. Whole numbers stay whole unless the format has a factor; NaN is "-".
std::string to_text(const Cell& cell, const Format& format);
/// Four significant digits without an exponent, at most so many after the point; "-" if not finite.
std::string figure(double value, int most_decimals = 7);
/// Pads with spaces; a width below zero aligns to the left.
std::string aligned(const std::string& text, int width);

/// A column, from which an entry's field in the text and in the JSON comes:
///
///     const std::vector<TableColumn<Run>> columns = {
///         {.title = "step", .units = "s", .value = seconds, .name = "step_s"},
///         {.title = "idle", .units = "%", .value = idle, .format = as_percent, .name = "idle"}};
///     const TextTable<Run> table(columns, runs);  // header(), row(run)
///     Json json;
///     put(json, columns, run);  // of miniapp/print.hpp
///
/// The text has the value in its format and units, the JSON has it as it is.
template <class Entry>
struct TableColumn {
  std::string title;
  std::string units{};  ///< of the text
  std::function<Cell(const Entry&)> value{};
  Format format{};
  int width = 0;       ///< at least; below zero: left-aligned
  bool wide = false;   ///< a narrow table goes without it
  std::string name{};  ///< in JSON, "memory.worst" is a part of "memory"; empty: in the text only

  std::string text(const Entry& entry) const { return to_text(value(entry), format); }
};

/// An aligned table. Lines that are no data begin with #.
template <class Entry>
class TextTable {
public:
  /// Columns as wide as their cells.
  TextTable(std::vector<TableColumn<Entry>> columns,
      const std::vector<Entry>& entries,
      bool narrow = false)
      : columns_(std::move(columns)) {
    if (narrow)
      std::erase_if(columns_, [](const auto& column) { return column.wide; });
    for (TableColumn<Entry>& column : columns_) {
      std::size_t widest = std::max(column.title.size(), column.units.size());
      for (const Entry& entry : entries)
        widest = std::max(widest, column.text(entry).size());
      const int width = static_cast<int>(widest);
      column.width =
          column.width < 0 ? std::min(column.width, -width) : std::max(column.width, width);
    }
  }

  /// Two lines: titles and units.
  std::string header() const {
    return line("#", std::mem_fn(&TableColumn<Entry>::title)) +
           line("#", std::mem_fn(&TableColumn<Entry>::units));
  }

  /// One line, with a newline.
  std::string row(const Entry& entry) const {
    return line(" ", [&](const TableColumn<Entry>& column) { return column.text(entry); });
  }

  /// The header, and a row of each entry.
  std::string text(const std::vector<Entry>& entries) const {
    std::string all = header();
    for (const Entry& entry : entries)
      all += row(entry);
    return all;
  }

private:
  std::string line(std::string text, const auto& cell_of) const {
    for (const TableColumn<Entry>& column : columns_)
      text += " " + aligned(cell_of(column), column.width);
    return text.erase(text.find_last_not_of(' ') + 1) + "\n";
  }

  std::vector<TableColumn<Entry>> columns_;
};
}  // namespace minitaw
