// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <string>
#include <vector>
#include "case/dataset.hpp"

namespace minitaw::record {
/// A dataset of a result file: a line of scripts/minitaw/layout.txt, which Python reads as well.
struct Entry {
  std::string path;  ///< in its group: of the summary, of a case, of a session
  std::string type, units;
  std::vector<std::string> axes;  ///< {}: a scalar
  bool of_valid = false;          ///< an array that a valid case has
  std::string missing;  ///< what stands for it in a file that lacks it; "required": none may

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
/// What stands for a column in a file that lacks it, as a cell of its type: NaN, 0 or an empty text
/// if the table says nothing else. Of "=name" or "~name", another column, the same.
[[nodiscard]] Cell missing_cell(const Entry& column);
}  // namespace minitaw::record
