#include "comm/mpi/detect.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "comm/mpi/mpi.hpp"
#include "topology/system.hpp"

namespace minitaw::topology {
namespace {

using comm::mpi::check;
using comm::mpi::rank_in;
using comm::mpi::size_of;
using Name = std::array<char, 256>;

/// The ranks that share memory with this one, in rank order; freed with the object.
class Node {
public:
  explicit Node(MPI_Comm world) {
    check(MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &comm_), "MPI_Comm_split_type");
  }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node() { MPI_Comm_free(&comm_); }
  [[nodiscard]] MPI_Comm comm() const { return comm_; }

private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

/// For each rank, the lowest rank of its node.
std::vector<int> first_ranks(MPI_Comm world, MPI_Comm node) {
  int first = rank_in(world);
  check(MPI_Bcast(&first, 1, MPI_INT, 0, node), "MPI_Bcast of the first rank of a node");
  std::vector<int> firsts(static_cast<std::size_t>(size_of(world)));
  check(MPI_Allgather(&first, 1, MPI_INT, firsts.data(), 1, MPI_INT, world), "MPI_Allgather of nodes");
  return firsts;
}

std::vector<std::string> host_names(MPI_Comm world, const Groups& nodes) {
  Name own{};
  gethostname(own.data(), own.size() - 1);
  std::vector<Name> all(static_cast<std::size_t>(nodes.ranks()));
  check(MPI_Allgather(own.data(), static_cast<int>(own.size()), MPI_CHAR, all.data(),
                      static_cast<int>(own.size()), MPI_CHAR, world),
        "MPI_Allgather of host names");
  std::vector<std::string> hosts;
  for (int node = 0; node < nodes.count(); ++node) hosts.emplace_back(all[nodes.first(node)].data());
  return hosts;
}

/// Cores this process may run on; all zero if the system does not say (more than 1024 cores, say).
cpu_set_t own_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) CPU_ZERO(&cores);
  return cores;
}

cpu_set_t cores_of(MPI_Comm node) {
  const cpu_set_t own = own_cores();
  cpu_set_t all;
  check(MPI_Allreduce(&own, &all, sizeof(all), MPI_BYTE, MPI_BOR, node), "MPI_Allreduce of cores");
  return all;
}

std::string list(const cpu_set_t& cores) {
  std::vector<int> numbers;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &cores)) numbers.push_back(core);
  return numbers.empty() ? "unknown" : ranges_text(numbers);
}

int fewest_adapters(MPI_Comm world) {
  int adapters = network_adapters();
  check(MPI_Allreduce(MPI_IN_PLACE, &adapters, 1, MPI_INT, MPI_MIN, world), "MPI_Allreduce of adapters");
  return adapters;
}

int count(const cpu_set_t& cores) { return std::max(CPU_COUNT(&cores), 1); }

}  // namespace

Groups nodes_of(std::span<const int> node_of_rank) {
  std::vector<int> sizes, seen;
  for (std::size_t rank = 0; rank < node_of_rank.size(); ++rank) {
    const int node = node_of_rank[rank];
    if (!seen.empty() && seen.back() == node) {
      ++sizes.back();
      continue;
    }
    if (std::ranges::find(seen, node) != seen.end())
      throw InputError(fmt::format(
          "rank {} runs on a node of earlier ranks, but rank {} does not: place consecutive ranks on each "
          "node (mpiexec -map-by core or -ppn N, srun --distribution=block)",
          rank, rank - 1));
    seen.push_back(node);
    sizes.push_back(1);
  }
  return Groups(std::move(sizes));
}

Job detect(MPI_Comm world) {
  const Node node(world);
  Groups nodes = nodes_of(first_ranks(world, node.comm()));
  std::vector<std::string> hosts = host_names(world, nodes);
  const int own_node = nodes.group_of(rank_in(world));
  return {.nodes = std::move(nodes),
          .hosts = std::move(hosts),
          .node = own_node,
          .local_rank = rank_in(node.comm()),
          .cores = count(own_cores()),
          .core_list = list(own_cores()),
          .node_cores = count(cores_of(node.comm())),
          .adapters = fewest_adapters(world)};
}

}  // namespace minitaw::topology
