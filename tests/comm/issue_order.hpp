#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "schedule/program.hpp"
#include "units.hpp"

namespace minitaw::comm::test {

/// A unit of a lane, and how many actions of each lane must have gone before it.
struct Issued {
  schedule::Lane lane = schedule::Lane::compute;
  schedule::Unit unit;
  std::array<int, schedule::lanes> waits{};
};

/// All units of a rank in the order in which the engine's one thread feeds device queues: of those whose
/// waits have been issued always the one that comes first in the program. Shorter than the program if it gets
/// stuck.
inline std::vector<Issued> issue_order(const schedule::RankProgram& rank) {
  std::array<std::vector<Issued>, schedule::lanes> queues;
  for (int l = 0; l < schedule::lanes; ++l)
    for (schedule::Unit& unit : schedule::units(rank, static_cast<schedule::Lane>(l))) {
      Issued& issued = queues[l].emplace_back(static_cast<schedule::Lane>(l), std::move(unit));
      for (const int i : issued.unit.actions)
        for (int k = 0; k < schedule::lanes; ++k)
          issued.waits[k] = std::max(issued.waits[k], rank.actions[i].waits[k]);
      issued.waits[l] = 0;  // its own lane is in order
    }
  std::vector<Issued> order;
  std::array<std::size_t, schedule::lanes> next{};
  std::array<int, schedule::lanes> gone{};
  for (;;) {
    int chosen = -1;
    for (int l = 0; l < schedule::lanes; ++l) {
      if (next[l] == queues[l].size()) continue;
      const Issued& head = queues[l][next[l]];
      if (!std::ranges::equal(head.waits, gone, std::less_equal{})) continue;
      if (chosen < 0 || head.unit.actions.front() < queues[chosen][next[chosen]].unit.actions.front())
        chosen = l;
    }
    if (chosen < 0) return order;
    order.push_back(queues[chosen][next[chosen]++]);
    gone[chosen] += static_cast<int>(order.back().unit.actions.size());
  }
}

}  // namespace minitaw::comm::test
