#include "schedule/owners.hpp"

namespace minitaw::schedule {

std::vector<int> round_robin_owners(const topology::Groups& groups, int shards) {
  std::vector<int> owners;
  std::vector<int> given(groups.count(), 0);
  while (static_cast<int>(owners.size()) < shards) {
    // One pass over the groups hands a shard to each that has a rank left in this round of one shard a rank.
    const int round = static_cast<int>(owners.size()) / groups.ranks();
    for (int k = 0; k < groups.count() && static_cast<int>(owners.size()) < shards; ++k) {
      if (given[k] >= (round + 1) * groups.size(k)) continue;
      owners.push_back(groups.rank(k, given[k]++ % groups.size(k)));
    }
  }
  return owners;
}

}  // namespace minitaw::schedule
