#include "schedule/frame.hpp"
#include "schedule/order.hpp"
#include "schedule/owners.hpp"
#include "schedule/relay.hpp"
#include "schedule/schedules/schedules.hpp"

namespace minitaw::schedule {
namespace {

/// The ranks of a team visit the same shard at the same tick, each with its own micro-batch.
class Team {
public:
  Team(Draft& draft, const topology::Groups& teams, int index, int per_rank, int first_tick)
      : relay_team_(index), members_(teams.members(index)) {
    for (const int rank : members_) {
      computers_.emplace_back(draft, rank);
      visits_.push_back(
          micro_batch_after_micro_batch(draft.shards(), own_micro_batches(rank, per_rank), first_tick));
    }
  }

  /// Emits all visits; returns the last tick.
  int run(GroupRelay& relay) {
    std::vector<Value> weights;
    int held = -1;
    for (std::size_t i = 0; i < visits_[0].size(); ++i) {
      const Visit& visit = visits_[0][i];
      // At the turn from forward to backward, and back, the shard at hand is the one needed next.
      if (visit.shard != held) weights = relay.fetch(relay_team_, visit.shard, visit.tick);
      held = visit.shard;
      visit.backward ? backward(i, weights, relay) : forward(i, weights);
    }
    return visits_[0].back().tick;
  }

private:
  void forward(std::size_t i, const std::vector<Value>& weights) {
    for (std::size_t r = 0; r < members_.size(); ++r) computers_[r].forward(visits_[r][i], weights[r]);
  }

  void backward(std::size_t i, const std::vector<Value>& weights, GroupRelay& relay) {
    const Visit& visit = visits_[0][i];
    const std::vector<Value> gradients = relay.gradients(relay_team_, visit.shard);
    for (std::size_t r = 0; r < members_.size(); ++r)
      computers_[r].backward(visits_[r][i], weights[r], gradients[r]);
    relay.give(relay_team_, visit.shard, visit.tick, gradients);
  }

  int relay_team_;
  std::vector<int> members_;
  std::vector<Computer> computers_;
  std::vector<std::vector<Visit>> visits_;
};

RelayTiming timing(const Spec& spec) {
  const auto prefetch = spec.options.find("prefetch");
  const int depth = prefetch == spec.options.end() ? 1 : std::stoi(prefetch->second);
  return spec.options.contains("cco") ? RelayTiming{0, 0, 0} : RelayTiming{depth, 1, 1};
}

}  // namespace

/// TawPipe (arXiv 2511.09741): group k runs one tick behind group k-1, so that each group sends and receives
/// at most one weight shard per tick. Options away from their defaults: gwps=off (single ranks instead of
/// groups, no stagger), cco=off (no overlap of communication and computation), prefetch (ticks ahead between
/// groups).
Program build_tawpipe(const Request& request) {
  const int ranks = request.groups.ranks();
  const bool grouped = !request.spec.options.contains("gwps");
  const topology::Groups teams = grouped ? request.groups : topology::Groups::equal(ranks, ranks);
  const std::vector<int> owners = round_robin_owners(teams, ranks);

  Draft draft(request.groups, ranks, request.micro_batches);
  for (int s = 0; s < ranks; ++s) draft.own(owners[s], s);
  open_step(draft);
  const RelayTiming when = timing(request.spec);
  GroupRelay relay(draft, teams, owners, when);
  int last_tick = 0;
  for (int k = 0; k < teams.count(); ++k)
    last_tick = Team(draft, teams, k, request.micro_batches / ranks, grouped ? k : 0).run(relay);
  close_step(draft, last_tick + when.give, EndsUpdate::sliced);
  return std::move(draft).finish(when.give > 0);
}

}  // namespace minitaw::schedule
