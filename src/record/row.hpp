// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <string_view>
#include "case/result.hpp"

namespace minitaw::record {
/// Place of a column of /summary in the group of its case.
enum class Place { nowhere, itself, settings, verification };

/// A column of /summary and what a case has in it. Writing and printing use the one table of these,
/// in make_row(); reading, in C++ and Python, that in scripts/minitaw/layout.txt, which knows
/// earlier programs too.
struct Column {
  std::string_view name;
  std::string_view units;  ///< "1": a number without unit, "text"
  Place place;             ///< settings: what was asked for, as opposed to what came out
  Cell value;
  /// Without a unit; as many digits as tell the number from any other.
  [[nodiscard]] std::string text() const;

  [[nodiscard]] bool has_unit() const { return units != "1" && units != "text"; }
};

struct Row {
  std::vector<Column> columns;
  /// By column name; LogicError if there is no such column or it has another type.
  [[nodiscard]] const Column& column(std::string_view name) const;
  [[nodiscard]] const std::string& text(std::string_view column) const;
  [[nodiscard]] std::int64_t integer(std::string_view column) const;
  [[nodiscard]] double real(std::string_view column) const;
};

[[nodiscard]] Row make_row(const CaseResult& result, int number = 0, int session = 0);
/// A row whose cells have the types of the columns, and no meaning.
[[nodiscard]] Row sample_row();
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
