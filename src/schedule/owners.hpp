#pragma once

#include <vector>

#include "topology/groups.hpp"

namespace minitaw::schedule {

/// Owner rank of each shard: shards go round-robin over the groups that still have a rank with fewer shards
/// than the rest, and inside a group over its ranks. With n equal groups this is rank (s mod D) n + s div D
/// (TawPipe, device-bound storage); with unequal groups every rank still owns as many shards as any other,
/// give or take one.
[[nodiscard]] std::vector<int> round_robin_owners(const topology::Groups& groups, int shards);

}  // namespace minitaw::schedule
