// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <functional>
#include <optional>
#include "case/result.hpp"
#include "record/field.hpp"

/// The schema of a result file. These tables define the datasets and attributes of the file, the
/// columns of the printed table, JSON and CSV, and the tables of docs/results.md. Python reads all
/// of it from the file.
namespace minitaw::record {
/// Version of the layout. Programs read and add to files of their own version.
inline constexpr std::int64_t schema_version = 5;

/// Where a run stands in a file.
struct RunPosition {
  int case_number = 0;  ///< by the first run of the case
  int repetition = 0;
  int session = 0;
};

/// A run and what several columns are made of.
struct MeasuredRun {
  MeasuredRun(const CaseResult& run, const RunPosition& at);

  const CaseResult& result;
  RunPosition position;
  std::vector<double> samples;  ///< the slowest rank of each timed step, s, rising
  double q1, step, q3;          ///< their quartiles; a step takes the median
  double spread;                ///< (q3 - q1) / step
  double tokens_per_s;
  double tflops, tflops_rank;  ///< of all ranks and of one, causal attention
  /// Bytes of a step, by whether sender and receiver share a group.
  std::int64_t planned_inside = 0, planned_between = 0, counted_inside = 0, counted_between = 0;
  trace::RankTime mean;  ///< over ranks

  const Case& asked() const { return result.asked; }
};

/// The columns of a run.
struct Row {
  std::vector<Cell> cells;  ///< in the order of columns()

  /// By column name; LogicError if there is no such column.
  const Cell& cell(std::string_view column) const;
  /// The same as a type; InputError if the file has another type there.
  const std::string& text(std::string_view column) const;
  std::int64_t integer(std::string_view column) const;
  double real(std::string_view column) const;
};

/// How a column stands in the printed table.
using Shown = TableColumn<Row>;

/// One dataset of /runs, of which each run has an element.
struct Column {
  Field field;
  std::function<Cell(const MeasuredRun&)> value;
  std::optional<Shown> shown{};  ///< nothing: where runs differ in it
  bool is_setting = false;       ///< what was asked for, as opposed to what came out

  bool has_unit() const { return field.units != "1" && field.units != "text"; }
};

/// A dataset of /runs/NNNN.
struct Array {
  Field field;
  std::function<Elements(const CaseResult&)> elements;
  bool of_timeline = false;  ///< only where one was asked for
};

const std::vector<Column>& columns();
const std::vector<Array>& arrays();

Row make_row(const CaseResult& result, const RunPosition& position = {});
/// A row without content, for the types of all columns.
Row example_row();
/// Rows of cases that have not run yet, for widths and settings_text().
std::vector<Row> preview(const std::vector<Case>& cases);
}  // namespace minitaw::record
