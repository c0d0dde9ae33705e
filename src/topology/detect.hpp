#pragma once

#include <mpi.h>

#include <span>
#include <string>
#include <vector>

#include "topology/groups.hpp"

namespace minitaw::topology {

/// Where the ranks of a job run.
struct Job {
  Groups nodes;                    ///< ranks of each node, in rank order
  std::vector<std::string> hosts;  ///< host name of each node
  int node = 0;                    ///< of this rank
  int local_rank = 0;              ///< of this rank on its node
  int cores = 1;                   ///< that this process may run on
  std::string core_list;           ///< these: "0-3,8"
  int node_cores = 1;              ///< that the processes of this node may run on, taken together
  int adapters = 1;                ///< network adapters of the node that has fewest, see system.hpp
};

/// Asks MPI which ranks share memory, and the system for cores and names. Collective; throws InputError on
/// all ranks if the ranks of a node are not consecutive.
[[nodiscard]] Job detect(MPI_Comm world);

/// Ranks per node from the node of each rank (any numbers, equal within a node). Throws InputError if the
/// ranks of a node are not consecutive: groups are runs of ranks.
[[nodiscard]] Groups nodes_of(std::span<const int> node_of_rank);

}  // namespace minitaw::topology
