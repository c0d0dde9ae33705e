#pragma once

#include <vector>

#include "schedule/draft.hpp"

namespace minitaw::schedule {

/// When the group relay moves shards, relative to the tick that computes with them.
struct RelayTiming {
  int fetch_inter = 1;  ///< ticks ahead that the owner sends to another group (prefetch depth)
  int fetch_intra = 1;  ///< ticks ahead that the group broadcasts
  int give = 1;         ///< ticks after B that its gradient leaves
};

/// Second and third choice of TawPipe: how a group gets a shard and gives back its gradient.
///
/// Weights: the owner broadcasts inside its own group; for another group it sends to one rank there, the
/// relay (same local index where it exists), which broadcasts. Gradients go the same way back: reduced to the
/// owner inside its group, else to the relay, which sends the sum; the owner adds it to its total. (arXiv
/// 2511.09741, GWPS and DBS; notes on the published rule in docs/schedules.md.)
///
/// `teams` are the groups that share a shard's visit: the topology's groups, or single ranks without GWPS.
class GroupRelay {
public:
  GroupRelay(Draft& draft, const topology::Groups& teams, std::vector<int> owners, RelayTiming timing);

  /// The shard's weights on every member of a team for `tick`: one value per member, in rank order.
  [[nodiscard]] std::vector<Value> fetch(int team, int shard, int tick);

  /// Where each member's B of `tick` puts the shard's gradient.
  [[nodiscard]] std::vector<Value> gradients(int team, int shard);
  /// Moves those gradients to the owner's total.
  void give(int team, int shard, int tick, const std::vector<Value>& gradients);

private:
  [[nodiscard]] int relay(int team, int shard) const;
  [[nodiscard]] bool owns(int team, int shard) const { return teams_.group_of(owners_[shard]) == team; }
  [[nodiscard]] bool alone(int team) const { return teams_.size(team) == 1; }
  void add_to_total(int owner, int shard, int tick, Lane lane, Value gradient);

  Draft& draft_;
  const topology::Groups& teams_;
  std::vector<int> owners_;
  RelayTiming timing_;
};

}  // namespace minitaw::schedule
