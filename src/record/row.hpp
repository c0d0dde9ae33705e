// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "case/result.hpp"

namespace minitaw::record {
/// A column of /summary, as scripts/minitaw/layout.txt has it, and what a case has in it.
struct Column {
  std::string name;
  std::string units;  ///< "1": a number without unit, "text"
  bool is_setting;    ///< what was asked for, as opposed to what came out
  Cell value;

  /// Without a unit; as many digits as tell the number from any other.
  [[nodiscard]] std::string text() const;

  [[nodiscard]] bool has_unit() const { return units != "1" && units != "text"; }
};

struct Row {
  std::vector<Column> columns;  ///< all of layout.txt, in its order

  /// By column name; LogicError if there is no such column or it has another type.
  [[nodiscard]] const Column& column(std::string_view name) const;
  [[nodiscard]] const std::string& text(std::string_view column) const;
  [[nodiscard]] std::int64_t integer(std::string_view column) const;
  [[nodiscard]] double real(std::string_view column) const;
  /// Sets columns. LogicError if there is no such column or it has another type.
  void set(const Cells& cells);
};

/// The row of a result, with what instruments have found.
[[nodiscard]] Row make_row(const CaseResult& result, int number = 0, int session = 0);
/// Rows of cases that have not run yet, for widths and settings_text().
[[nodiscard]] std::vector<Row> preview(const std::vector<Case>& cases);
/// FLOP/s of an NVIDIA device, dense: bf16 on tensor cores, fp32 outside. `unit`:
/// topology::RankPlace::unit. NaN: not known.
[[nodiscard]] double datasheet_peak(const std::string& unit, model::Dtype dtype);
/// Of each rank of a case, whose ranks are the first of these `units`. NaN: unknown, or not the
/// same for all.
[[nodiscard]] double common_peak(const std::vector<std::string>& units, const Case& c);
/// A figure of merit needs at least this many timed steps: with fewer, the quartiles say nothing.
inline constexpr int least_samples = 3;
/// Quartiles of the samples further apart than this share of the median make a result noisy.
inline constexpr double widest_spread = 0.1;
/// "VALID", "VALID (doubts)" or "INVALID: reason": ended ok, all repetitions, enough samples, bytes
/// as planned.
[[nodiscard]] std::string verdict(const CaseResult& result);
}  // namespace minitaw::record
