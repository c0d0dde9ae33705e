#pragma once

#include <vector>

#include "schedule/draft.hpp"

namespace minitaw::schedule {

/// When the group relay moves shards, relative to the tick that computes with them.
struct RelayTiming {
  int fetch_inter = 1;  ///< ticks ahead that a shard is sent to another group (prefetch depth)
  int fetch_intra = 1;  ///< ticks ahead that the group broadcasts
  int give = 1;  ///< ticks after B that its gradient leaves, in the order of issue: how many buffers B has
};

/// Second and third choice of TawPipe: how a group gets a shard and gives back its gradient.
///
/// Weights: the owner broadcasts inside its own group; for another group it sends to one rank there, the
/// relay (same local index where it exists), which broadcasts. Gradients go the same way back: reduced to the
/// owner inside its group, else to the relay, which sends the sum; the owner adds it to its total. (arXiv
/// 2511.09741, GWPS and DBS; notes on the published rule in docs/schedules.md.)
///
/// With rails > 1, a message between groups goes in as many parts, or as many as both groups have ranks, each
/// from the rank of one group to the rank of the other with the same local index: the owner hands the parts
/// out in its group, the other group puts them together; gradients come back likewise.
///
/// `teams` are the groups that share a shard's visit: the topology's groups, or single ranks without GWPS.
class GroupRelay {
public:
  GroupRelay(Draft& draft, const topology::Groups& teams, std::vector<int> owners, RelayTiming timing,
             int rails);

  /// The shard's weights on every member of a team for `tick`: one value per member, in rank order. They come
  /// from the owner, or from the relay of another team that has them (`passed_on`: its values) at hand.
  struct Source {
    int team = -1;  ///< -1: the owner
    std::vector<Value> values;
  };
  [[nodiscard]] std::vector<Value> fetch(int team, int shard, int tick, const Source& source);

  /// Where each member's B of `tick` puts the shard's gradient.
  [[nodiscard]] std::vector<Value> gradients(int team, int shard);
  /// Moves those gradients to the owner's total, at tick `when`.
  void give(int team, int shard, int when, const std::vector<Value>& gradients);
  [[nodiscard]] const RelayTiming& timing() const { return timing_; }

  [[nodiscard]] bool owns(int team, int shard) const { return teams_.group_of(owners_[shard]) == team; }

private:
  [[nodiscard]] int relay(int team, int shard) const;
  [[nodiscard]] bool alone(int team) const { return teams_.size(team) == 1; }
  /// Parts that a message between two teams is cut into.
  [[nodiscard]] int rails(int team, int other) const;

  void fetch_whole(int team, int shard, int tick, Draft::Endpoint from, const std::vector<Value>& values);
  void fetch_in_parts(int team, int shard, int tick, const std::vector<Value>& values);
  void hand_out(int shard, int tick, const std::vector<Value>& parts);
  void put_together(int team, int shard, int tick, int parts, const std::vector<Value>& values);
  void give_whole(int team, int shard, int tick, const std::vector<Value>& gradients);
  void give_in_parts(int team, int shard, int tick, const std::vector<Value>& gradients);
  void add_to_total(int owner, int shard, int tick, Phase phase, Lane lane, Part part, Value gradient);
  /// A collective inside a team.
  void inside(Kind kind, int team, int root, int shard, int tick, Part part,
              const std::vector<Value>& values);

  Draft& draft_;
  const topology::Groups& teams_;
  std::vector<int> owners_;
  RelayTiming timing_;
  int rails_;
};

}  // namespace minitaw::schedule
