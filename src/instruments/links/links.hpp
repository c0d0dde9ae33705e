// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>
#include "instruments/links/messages.hpp"
#include "topology/groups.hpp"

/// What `topo` measures: who sends to whom, and the figures that come of it.
namespace minitaw::links {
/// Rates and latencies of messages over one kind of link; docs/topo.md defines each figure.
struct Figure {
  std::string name;  ///< in JSON: "latency_s" or "..._bytes_per_s"
  std::string who;   ///< takes part
  double value = 0;  ///< s, or bytes/s of the messages, one direction
};

using Figures = std::vector<Figure>;
using Flows = std::vector<std::pair<int, int>>;  ///< from and to

/// Sends messages between ranks. Collective, the same on all ranks.
class Links {
public:
  virtual ~Links() = default;
  /// Seconds from rank to rank.
  virtual double latency(int a, int b) = 0;
  /// Bytes/s of each flow while all are under way at once, until the last one has ended.
  virtual double rate(const Flows& flows) = 0;
};

/// Those of a job; each measurement takes about so long. Ranks without a part in one sleep.
[[nodiscard]] std::unique_ptr<Links> make_links(
    MPI_Comm comm, const Stopwatch& stopwatch, double seconds);
/// Empty without a group of two.
[[nodiscard]] Figures measure_inside(Links& links, const topology::Groups& groups);
/// Empty for one group.
[[nodiscard]] Figures measure_between(Links& links, const topology::Groups& groups);
/// Half of the median round, seconds; 0 without rounds.
[[nodiscard]] double latency_of(std::vector<double> rounds);
}  // namespace minitaw::links
