// SPDX-License-Identifier: BSD-3-Clause
#include "topology/placement.hpp"
#include <algorithm>
#include <fmt/format.h>
#include <set>
#include "base/error.hpp"
#include "topology/system.hpp"

namespace minitaw::topology {
std::string cores_text(std::span<const int> cores) {
  return cores.empty() ? "unknown" : ranges_text(cores);
}

bool share_cores(const RankPlace& a, const RankPlace& b) {
  return a.machine == b.machine && std::ranges::find_first_of(a.cores, b.cores) != a.cores.end();
}

bool is_crowded(std::span<const RankPlace> ranks) {
  const int count = static_cast<int>(ranks.size());
  std::vector<bool> seen(ranks.size());
  for (int first = 0; first < count; ++first) {
    // Those who share cores with the first one, directly or by way of others.
    std::vector<int> together;
    const auto join = [&](int rank) {
      if (!seen[rank])
        together.push_back(rank);
      seen[rank] = true;
    };
    join(first);
    int threads = 0;
    std::set<int> cores;
    for (std::size_t at = 0; at < together.size(); ++at) {
      const RankPlace& place = ranks[together[at]];
      threads += place.threads;
      cores.insert(place.cores.begin(), place.cores.end());
      for (int other = first; other < count; ++other)
        if (share_cores(place, ranks[other]))
          join(other);
    }
    if (!cores.empty() && threads > std::ssize(cores))
      return true;
  }
  return false;
}

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
          "rank {} runs on a node of earlier ranks, but rank {} does not: place consecutive "
          "ranks on each node (mpiexec -map-by core or -ppn N, srun --distribution=block)",
          rank,
          rank - 1));
    seen.push_back(node);
    sizes.push_back(1);
  }
  return Groups(std::move(sizes));
}
}  // namespace minitaw::topology
