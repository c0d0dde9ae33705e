// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <functional>
#include "record/row.hpp"

namespace minitaw::record {
/// What an instrument does with the columns that it fills (CaseResult::found) when repetitions of a
/// case are joined, and when all cases are there.
struct Extension {
  /// Makes the columns of the last repetition those of all, by the row of the earlier ones.
  std::function<void(const Row& earlier, const Case& settings, Row& row)> join;
  /// A closing line of a sweep, also kept as an attribute of /summary; empty: nothing to say.
  std::string attribute{};
  std::function<std::string(const std::vector<Row>& rows)> sentence{};
};

using Extensions = std::vector<Extension>;
}  // namespace minitaw::record
