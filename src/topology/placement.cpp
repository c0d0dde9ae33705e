// SPDX-License-Identifier: BSD-3-Clause
#include "topology/placement.hpp"
#include <algorithm>
#include <iterator>
#include "base/error.hpp"
#include "base/range.hpp"
#include "topology/system.hpp"

namespace minitaw::topology {
std::string cores_text(std::span<const int> cores) {
  return cores.empty() ? "unknown" : ranges_text(cores);
}

bool share_cores(const RankPlace& a, const RankPlace& b) {
  return a.machine == b.machine && std::ranges::find_first_of(a.cores, b.cores) != a.cores.end();
}

bool is_crowded(std::span<const RankPlace> ranks) {
  // Ranks that share cores, directly or through others, are joined: no two entries share any.
  std::vector<RankPlace> together;
  for (RankPlace joined : ranks) {
    const auto sharing = std::ranges::partition(
        together, [&](const RankPlace& other) { return !share_cores(joined, other); });
    for (const RankPlace& other : sharing) {
      std::vector<int> cores;
      std::ranges::set_union(joined.cores, other.cores, std::back_inserter(cores));
      joined.cores = cores;
      joined.threads += other.threads;
    }
    together.erase(sharing.begin(), sharing.end());
    together.push_back(joined);
  }
  return std::ranges::any_of(together, [](const RankPlace& place) {
    return !place.cores.empty() && place.threads > std::ssize(place.cores);
  });
}

Groups nodes_of(std::span<const int> node_of_rank) {
  std::vector<int> sizes, seen;
  for (const int rank : indices(node_of_rank)) {
    const int node = node_of_rank[rank];
    if (!seen.empty() && seen.back() == node) {
      ++sizes.back();
      continue;
    }
    if (std::ranges::find(seen, node) != seen.end())
      throw InputError(
          "rank {} runs on a node of earlier ranks, but rank {} does not: place consecutive "
          "ranks on each node (mpiexec -map-by core or -ppn N, srun --distribution=block)",
          rank,
          rank - 1);
    seen.push_back(node);
    sizes.push_back(1);
  }
  return Groups(std::move(sizes));
}
}  // namespace minitaw::topology
