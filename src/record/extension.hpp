// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <functional>
#include "record/row.hpp"

namespace minitaw::record {
/// What an instrument adds to a result file and to what is printed of it, beside the datasets of
/// CaseResult::found. scripts/minitaw/layout.txt lists all columns and datasets, those of
/// instruments too: a build without them leaves these out.
struct Extension {
  /// Columns of the summary, from what the instrument has found.
  std::function<Cells(const CaseResult& result)> columns;
  /// Corrects what was found in the last repetition by the row of the earlier ones. Datasets along
  /// repetitions are joined already.
  std::function<void(const Row& earlier, CaseResult& result)> join;
  /// A closing line of a sweep, also kept as an attribute of /summary; empty: nothing to say.
  std::string attribute{};
  std::function<std::string(const std::vector<Row>& rows)> sentence{};
};

using Extensions = std::vector<Extension>;
}  // namespace minitaw::record
