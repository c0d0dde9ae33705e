// SPDX-License-Identifier: BSD-3-Clause
#include "topology/placement.hpp"
#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include "base/error.hpp"
#include "base/range.hpp"
#include "topology/system.hpp"

namespace minitaw::topology {
std::vector<int> cores_of(std::span<const int> processors, std::span<const int> core_of) {
  std::set<int> cores;
  for (const int processor : processors) {
    const bool known = processor < std::ssize(core_of) && core_of[processor] >= 0;
    cores.insert(known ? core_of[processor] : processor);
  }
  return {cores.begin(), cores.end()};
}

double throttled_share(const RankPlace& rank) {
  return std::max(0.0, 1 - rank.quota / rank.threads);
}

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

std::string overlap_text(
    std::span<const RankPlace> ranks, std::span<const std::vector<int>> cores) {
  std::map<int, std::map<int, std::vector<int>>> machines;  // ranks of each core
  for (const int rank : indices(ranks)) {
    auto& ranks_of = machines[ranks[rank].machine];
    for (const int core : cores[rank])
      ranks_of[core];
    for (const int core : ranks[rank].cores)
      ranks_of[core].push_back(rank);
  }
  std::string text;
  int more = 0;
  for (const auto& [machine, ranks_of] : machines) {
    std::vector<int> shared, unused;
    std::set<int> sharing;
    for (const auto& [core, users] : ranks_of) {
      if (users.size() > 1) {
        shared.push_back(core);
        sharing.insert(users.begin(), users.end());
      } else if (users.empty()) {
        unused.push_back(core);
      }
    }
    if (shared.empty() || unused.empty())
      continue;
    const auto named = [](const std::vector<int>& some) {
      return fmt::format("{} {}", some.size() > 1 ? "cores" : "core", ranges_text(some));
    };
    if (!text.empty())
      ++more;
    else
      text = fmt::format("ranks {} share {} while no rank uses {}",
          ranges_text(std::vector(sharing.begin(), sharing.end())),
          named(shared),
          named(unused));
  }
  if (more > 0)
    text += fmt::format(", and likewise on {} more", counted(more, "node"));
  return text.empty() ? "" : text + ": give each rank cores of its own (docs/cluster.md)";
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
