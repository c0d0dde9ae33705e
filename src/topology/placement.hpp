// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <span>
#include "topology/control_groups.hpp"
#include "topology/groups.hpp"
#include "topology/hardware.hpp"

/// The nodes and cores on which the ranks of a job run.
namespace minitaw::topology {
/// The cores of processors, ascending. `core_of`: Placement::core_of.
std::vector<int> cores_of(std::span<const int> processors, std::span<const int> core_of);

/// The nodes of a job, and where one rank is on its own.
struct Placement {
  Groups nodes;        ///< ranks of each node, in rank order
  int node = 0;        ///< of this rank
  int local_rank = 0;  ///< of this rank on its node
  std::string host{};  ///< name of that node
  /// Hardware threads that this rank may run on, and their cores, ascending; empty: not known.
  std::vector<int> processors{}, cores{};
  std::vector<int> core_of{};  ///< [processor]: the first processor of its core; -1: not known
  int node_cores = 1;          ///< that the processes of this node may run on, taken together
  ProcessorQuota quota{};      ///< of this rank

  void set_processors(std::vector<int> own) {
    processors = std::move(own);
    cores = cores_of(processors, core_of);
  }
};

/// The place of one rank of the job, as rank 0 knows it.
struct RankPlace {
  int machine = 0;           ///< cores of one number are the same for ranks of one machine
  std::vector<int> cores{};  ///< that it may run on, ascending; empty: not known
  int threads = 1;           ///< that it computes with
  double quota = ProcessorQuota().processors;  ///< processors whose time it may take
  int node = 0;
  std::string unit{};  ///< what computes: "host, 2 threads", "device 0, NVIDIA H100, 79.6 GiB"
  std::string uuid{};  ///< of the device; empty without one
  Site site{};
};

/// The share of a rank's threads that its quota keeps from computing; 0: none.
double throttled_share(const RankPlace& rank);
/// "0-3,8"; "unknown" where the system does not tell the cores of a rank.
std::string cores_text(std::span<const int> cores);
/// Returns whether two ranks may run on the same core.
bool share_cores(const RankPlace& a, const RankPlace& b);
/// Returns whether ranks compute with more threads than they have cores, all those together that
/// share some.
bool is_crowded(std::span<const RankPlace> ranks);
/// One sentence on ranks that share a core while their machine has others that no rank uses; empty
/// if there are none. `cores`: of their node, from its first ranks.
std::string overlap_text(std::span<const RankPlace> ranks, std::span<const std::vector<int>> cores);
/// Ranks per node from the node of each rank (any number). Throws InputError if they are not
/// consecutive.
Groups nodes_of(std::span<const int> node_of_rank);
}  // namespace minitaw::topology
