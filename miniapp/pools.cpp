// SPDX-License-Identifier: BSD-3-Clause
#include "pools.hpp"
#include <algorithm>
#include <fmt/format.h>
#include <map>
#include "base/range.hpp"

namespace minitaw::app {
MemoryPools::MemoryPools(const topology::Groups& nodes,
    const std::vector<std::string>& uuids,
    const std::vector<std::uint64_t>& free,
    std::optional<std::uint64_t> allowed) {
  std::map<std::string, std::size_t> known;  // by what the ranks of one memory have in common
  for (const int rank : indices(uuids)) {
    const bool on_device = !allowed && !uuids[rank].empty();
    const std::string name = allowed     ? fmt::format("rank {}", rank)
                             : on_device ? fmt::format("device of rank {}", rank)
                                         : fmt::format("node {}", nodes.group_of(rank));
    const auto [at, added] = known.try_emplace(on_device ? uuids[rank] : name, pools_.size());
    if (added)
      pools_.push_back({name});
    Pool& pool = pools_[at->second];
    pool.bytes = std::min(pool.bytes, allowed.value_or(free[rank]));
    pool_of_rank_.push_back(at->second);
  }
}

std::optional<Shortage> MemoryPools::shortage(
    const std::vector<std::uint64_t>& needed, std::uint64_t beside, std::uint64_t alone) const {
  std::vector<std::uint64_t> sums(pools_.size());
  for (std::size_t rank = 0; rank < needed.size(); ++rank)
    sums[pool_of_rank_[rank]] += needed[rank];
  std::uint64_t& of_first = sums[pool_of_rank_[0]];
  of_first = std::max(of_first + beside, alone);
  for (std::size_t i = 0; i < pools_.size(); ++i)
    if (sums[i] > pools_[i].bytes)
      return Shortage{pools_[i].name, sums[i], pools_[i].bytes};
  return std::nullopt;
}
}  // namespace minitaw::app
