// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "record/hdf5.hpp"
#include "record/row.hpp"

namespace minitaw::record {
/// A dataset of a result file: a line of scripts/minitaw/layout.txt, which Python reads as well.
struct Entry {
  std::string path;  ///< in its group: of the summary, of a case, of a session
  std::string type, units;
  std::vector<std::string> axes;  ///< {}: a scalar
  bool of_valid = false;          ///< an array that a valid case has
  std::string missing;  ///< what stands for it in a file of an earlier program; "required"
};

struct Layout {
  std::vector<Entry> columns, of_case, of_session;
};

[[nodiscard]] const Layout& layout();

struct Summary {
  std::vector<Row> rows;
  int sessions;
};

/// Reads the summary of a file that holds nothing but what h5::objects_of() allows, and all parts
/// of a result: with their types, with shapes that agree with each other (sessions, as many cases
/// as rows, ranks, steps), and values that agree with those of the cases. A column that an earlier
/// program did not write has what that program did. Throws std::runtime_error that names the part.
/// A file of others is asked for nothing before.
[[nodiscard]] Summary read_summary(hid_t file);
}  // namespace minitaw::record
