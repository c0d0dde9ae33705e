// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "record/verdict.hpp"

/// Rows and the schema as people and programs read them.
namespace minitaw::record {
/// Returns the table of `run` and `show`. Its columns fit `rows`; before a sweep, use preview(). A
/// narrow one has only the main figures and the settings in which the rows differ.
TextTable<Row> make_table(const std::vector<Row>& rows, bool narrow = false);
/// "# seq = 512, 1024 token": one line for each setting, with all its values.
std::string settings_text(const std::vector<Row>& rows);
/// A line of titles, "median_s [s]", and one for each row (RFC 4180); NaN is an empty field.
std::string to_csv(const std::vector<Row>& rows);
/// All datasets of a result file, in the lists of docs/results.md.
std::string schema_text();
}  // namespace minitaw::record
