// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <fmt/ranges.h>
#include "instruments/rows.hpp"
#include "instruments/screen/screening.hpp"

namespace minitaw::screen {
using test::Rows;

/// "rank 3, node 4+5, link 0+3": the culprits in the order in which they were found.
inline std::string names(const Judgement& judgement) {
  constexpr const char* kinds[] = {"rank", "node", "adapter", "link"};
  std::string text;
  for (const auto& [suspect, evidence] : judgement.culprits)
    text += fmt::format(
        "{}{} {}", text.empty() ? "" : ", ", kinds[suspect.kind], fmt::join(suspect.ranks, "+"));
  return text;
}
}  // namespace minitaw::screen
