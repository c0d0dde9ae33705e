#pragma once

#include <cstdint>
#include <vector>

#include "schedule/program.hpp"

namespace minitaw::schedule {

/// One action of one rank.
struct Place {
  std::int32_t rank = -1;
  std::int32_t action = -1;
};

/// All collectives that one communicator issues on one lane, in order.
struct Channel {
  std::vector<std::vector<std::int32_t>> calls;  ///< per member in ring order: its actions
  std::int32_t first = 0;                        ///< number of its first instance
};

/// Which sends and receives belong together, and which calls make up one collective.
struct Matching {
  std::vector<std::int64_t> base;   ///< an action's number: base[rank] + its index
  std::vector<std::int32_t> other;  ///< by number. send, recv: the peer's action; collective: its instance
  std::vector<Channel> channels;    ///< by communicator * lanes + lane
  std::vector<std::int32_t> instances;  ///< channel of every collective

  [[nodiscard]] std::int64_t number(Place place) const { return base[place.rank] + place.action; }
};

namespace detail {
/// (c) and (d); throws Refusal.
[[nodiscard]] Matching match(const Program& program);
}  // namespace detail

}  // namespace minitaw::schedule
