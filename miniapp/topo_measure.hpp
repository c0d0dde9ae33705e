#pragma once

#include <optional>
#include <vector>

#include "topology/groups.hpp"

namespace minitaw::app {

/// What messages between ranks of one kind of link reach. Bytes are of the messages, one direction.
struct LinkRates {
  double latency = 0;  ///< s: half of a ping-pong of 8 bytes, one pair alone, median
  double alone = 0;    ///< bytes/s from one rank to one other while nobody else sends
  double shared = 0;   ///< bytes/s: what docs/topo.md says of each kind
  double both = 0;     ///< bytes/s
};

struct TopoRates {
  std::optional<LinkRates> inside, between;  ///< nothing where no two ranks are so
};

/// Bytes of the messages that rates are measured with.
inline constexpr int topo_message = 1 << 20;

/// Sends messages between the ranks of MPI_COMM_WORLD in these groups, each measurement for about
/// `seconds_each` after two messages of warm-up. Collective, the same on all ranks. Ranks that wait sleep.
[[nodiscard]] TopoRates measure_links(const topology::Groups& groups, double seconds_each);

}  // namespace minitaw::app
