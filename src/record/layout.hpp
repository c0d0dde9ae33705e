// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "record/row.hpp"

/// What a result file holds: the table scripts/minitaw/layout.txt, which Python reads as well.
namespace minitaw::record {
/// All columns of the summary, in the order of the table. Their cells have its types and are empty:
/// NaN, 0, or a text without letters.
[[nodiscard]] const Row& empty_row();
/// The units of a dataset of a case. Throws LogicError if the table has no such path.
[[nodiscard]] const std::string& units_in_case(const std::string& path);
}  // namespace minitaw::record
