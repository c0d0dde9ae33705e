// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <string>
#include <vector>
#include "base/table.hpp"

namespace minitaw::record {
/// A dataset of a result file: a line of scripts/minitaw/layout.txt, which Python reads as well.
struct Entry {
  std::string path;  ///< in its group: of the summary, of a case, of a session
  std::string type, units;
  std::vector<std::string> axes;  ///< {}: a scalar
  bool of_valid = false;          ///< an array that a valid case has
  bool required = true;

  // Of a column:

  bool is_setting = false;  ///< what was asked for, as opposed to what came out
  std::string in_case{};    ///< path of the same value in the group of its case; empty: nowhere
};

struct Layout {
  std::vector<Entry> columns, of_case, of_session;
};

[[nodiscard]] const Layout& layout();
/// The units of a dataset of a case. Throws LogicError if the table has no such path.
[[nodiscard]] const std::string& units_in_case(const std::string& path);
/// A cell of the type of a column: NaN, 0, of an index -1, or an empty text.
[[nodiscard]] Cell empty_cell(const Entry& column);
}  // namespace minitaw::record
