// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "instruments/blame/blame.hpp"
#include "record/extension.hpp"

namespace minitaw::blame {
/// Adds the datasets "blame/..." (docs/results.md) to a result.
void add(const Finding& finding, CaseResult& result);
/// Columns of what stands out, and the closing lines of a sweep.
[[nodiscard]] record::Extension extension();
/// "rank 3 (node 1) computes ... (case 2); it stands out in 5 of 7 cases" of each culprit that does
/// so in half of the cases or more, and in two of several; if there is none, why. Empty if no case
/// was looked at.
[[nodiscard]] std::vector<std::string> standing_out(const std::vector<record::Row>& rows);
}  // namespace minitaw::blame
