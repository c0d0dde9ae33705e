// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "record/hdf5.hpp"
#include "record/row.hpp"

namespace minitaw::record {
struct Summary {
  std::vector<Row> rows;
  int sessions;
};

/// Reads the summary of a file that holds nothing but what h5::objects_of() allows, and all parts
/// of a result: with their types, with shapes that agree with each other (sessions, as many cases
/// as rows, ranks, steps), and values that agree with those of the cases. A column that is not
/// there has what layout.txt says. Throws std::runtime_error that names the part. A file of others
/// is asked for nothing before.
[[nodiscard]] Summary read_summary(hid_t file);
}  // namespace minitaw::record
