// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "schedule/simulate.hpp"

namespace minitaw::schedule {
/// Planned spans as an engine measures them: an action is ready when the one before it in its lane
/// ends, and begins when what it waits for has ended. In a plan a transfer begins when all sides
/// are there; ends stay as they are.
inline std::vector<std::vector<Span>> as_measured(
    const Program& program, std::vector<std::vector<Span>> spans) {
  for (std::size_t r = 0; r < spans.size(); ++r) {
    std::array<std::vector<double>, lanes> ends;
    for (std::size_t i = 0; i < spans[r].size(); ++i) {
      const Action& a = program.ranks[r].actions[i];
      std::vector<double>& lane = ends[index_of(a.lane)];
      Span& span = spans[r][i];
      span.ready = span.begin = lane.empty() ? 0 : lane.back();
      for (int l = 0; l < lanes; ++l)
        if (a.waits[l] > 0)
          span.begin = std::max(span.begin, ends[l][a.waits[l] - 1]);
      lane.push_back(span.end);
    }
  }
  return spans;
}
}  // namespace minitaw::schedule
