// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <filesystem>
#include <string>
#include <vector>

/// The node as hwloc sees it: processors and network adapters.
namespace minitaw::topology {
/// Empty: none, or not known.
struct Site {
  std::string cpu =
      "unknown";  ///< "AMD EPYC 9654 96-Core Processor, 2 sockets, 192 cores, 384 threads"
  /// Ports that carry the job's messages (docs/run.md): "mlx5_0:1,mlx5_1:1".
  std::string adapters{};
  /// [processor]: its core, by the first processor of that.
  std::vector<int> core_of{};
  /// On which the node's control groups let programs run, ascending.
  std::vector<int> cores{};
};

/// Looks around. One rank of a node does so for all: the kernel lets one at a time, for 10 ms.
/// `xml`: a node as hwloc writes it; empty: this machine. `classes`: states and rates of ports,
/// which hwloc does not tell.
Site look(const std::string& xml = {}, const std::filesystem::path& classes = "/sys/class");
/// Ports of the node that has fewest; one where none is known.
int fewest_adapters(const std::vector<Site>& sites);
}  // namespace minitaw::topology
