// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "base/table.hpp"
#include "record/extension.hpp"

namespace minitaw::record {
/// Settings in which the rows differ, in the order of the columns, but not what follows from
/// another one.
[[nodiscard]] std::vector<std::string> varying_settings(const std::vector<Row>& rows);

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
/// What instruments say, what was judged, a line "figure of merit: ..." for each model, and
/// "RESULT: VALID" or "RESULT: INVALID: reason".
[[nodiscard]] std::string closing_text(
    const std::vector<Row>& rows, const Extensions& extensions = {}, const Missing& missing = {});

/// Returns the table of `run` and `show`. Its columns fit `rows`; before a sweep, use preview(). A
/// narrow one has only the main figures and the settings in which the rows differ.
[[nodiscard]] TextTable<Row> make_table(const std::vector<Row>& rows, bool narrow = false);
/// "# seq = 512, 1024 token": one line for each setting, with all its values.
[[nodiscard]] std::string settings_text(const std::vector<Row>& rows);
/// A list of objects with the columns by their names; NaN is null.
[[nodiscard]] std::string to_json(const std::vector<Row>& rows);
/// A line of titles, "median_s [s]", and one for each row (RFC 4180); NaN is an empty field.
[[nodiscard]] std::string to_csv(const std::vector<Row>& rows);
}  // namespace minitaw::record
