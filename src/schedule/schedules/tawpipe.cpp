#include <algorithm>
#include <functional>
#include <string>

#include "base/error.hpp"
#include "schedule/frame.hpp"
#include "schedule/order.hpp"
#include "schedule/owners.hpp"
#include "schedule/registry.hpp"
#include "schedule/relay.hpp"

namespace minitaw::schedule {
namespace {

/// The ranks of a team visit the same shard at the same tick, each with its own micro-batch.
class Team {
public:
  Team(Draft& draft, const topology::Groups& teams, int index, int per_rank, int first_tick)
      : team_(index), members_(teams.members(index)) {
    for (const int rank : members_) {
      computers_.emplace_back(draft, rank);
      visits_.push_back(
          micro_batch_after_micro_batch(draft.shards(), own_micro_batches(rank, per_rank), first_tick));
    }
  }

  [[nodiscard]] std::size_t visits() const { return visits_[0].size(); }
  [[nodiscard]] int last_tick() const { return visits_[0].back().tick; }

  /// Emits visit i with what it needs and leaves. Without `before`, shards come from their owners.
  void visit(std::size_t i, GroupRelay& relay, const Team* before) {
    const Visit& now = visits_[0][i];
    // At the turn from forward to backward, and back, the shard at hand is the one needed next.
    if (i == 0 || now.shard != visits_[0][i - 1].shard)
      weights_ = relay.fetch(team_, now.shard, now.tick,
                             before == nullptr ? GroupRelay::Source{}
                                               : GroupRelay::Source{before->team_, before->weights_});
    now.backward ? backward(i, relay) : forward(i);
  }

private:
  void forward(std::size_t i) {
    for (std::size_t r = 0; r < members_.size(); ++r) computers_[r].forward(visits_[r][i], weights_[r]);
  }

  void backward(std::size_t i, GroupRelay& relay) {
    const Visit& now = visits_[0][i];
    const std::vector<Value> gradients = relay.gradients(team_, now.shard);
    for (std::size_t r = 0; r < members_.size(); ++r)
      computers_[r].backward(visits_[r][i], weights_[r], gradients[r]);
    relay.give(team_, now.shard, std::min(now.tick + relay.timing().give, last_tick() + 1), gradients);
  }

  int team_;
  std::vector<int> members_;
  std::vector<Computer> computers_;
  std::vector<std::vector<Visit>> visits_;
  std::vector<Value> weights_;  ///< of the latest visit
};

RelayTiming timing(const Spec& spec) {
  return spec.options.contains("cco")
             ? RelayTiming{0, 0, 0}
             : RelayTiming{number_of(spec, "prefetch", 2), 1, number_of(spec, "drain", 3)};
}

/// Whether a message between groups may go in parts: where the owner sends it, and to a group.
bool may_share(const Spec& spec) { return !spec.options.contains("dbs") && !spec.options.contains("gwps"); }

/// rails=auto: a message uses as many adapters as a node has, and no more ranks than two groups have both.
void settle(Request& request, int adapters) {
  auto& options = request.spec.options;
  if (!options.contains("rails") && may_share(request.spec)) {
    std::vector<int> sizes = groups_of_copy(request.groups, request.replicas).sizes();
    std::ranges::sort(sizes, std::ranges::greater());
    options["rails"] = std::to_string(sizes.size() < 2 ? 1 : std::clamp(adapters, 1, sizes[1]));
  }
  if (options.contains("rails") && options["rails"] == "1") options.erase("rails");
}

void require(const Request& request) {
  const auto& options = request.spec.options;
  if (options.contains("dbs") && options.contains("gwps"))
    throw InputError("schedule: tawpipe:dbs=off passes shards from group to group, so it needs gwps=on");
  if (number_of(request.spec, "rails", 1) > 1 && !may_share(request.spec))
    throw InputError(
        "schedule: tawpipe with rails sends from the owner's group, so it needs dbs=on and gwps=on");
}

/// TawPipe (arXiv 2511.09741): group k runs one tick behind group k-1, so that each group sends and receives
/// at most one weight shard per tick. Options away from their defaults: gwps=off (single ranks instead of
/// groups, no stagger), dbs=off (a group gets a shard from the group that has just used it), cco=off (no
/// overlap of communication and computation), prefetch (ticks ahead between groups), drain (ticks behind that
/// gradients leave), rails (see GroupRelay).
Program make(const Request& request) {
  const auto& options = request.spec.options;
  const bool grouped = !options.contains("gwps");
  const int ranks = request.ranks_of_copy();
  Draft draft(request.groups, ranks, request.micro_batches, request.replicas);
  const topology::Groups teams = grouped ? draft.groups() : topology::Groups::equal(ranks, ranks);
  const std::vector<int> owners = round_robin_owners(teams, ranks);
  for (int s = 0; s < ranks; ++s) draft.own(owners[s], s);
  const RelayTiming when = timing(request.spec);
  GroupRelay relay(draft, teams, owners, when, number_of(request.spec, "rails", 1));
  std::vector<Team> all;
  for (int k = 0; k < teams.count(); ++k)
    all.emplace_back(draft, teams, k, request.micro_batches_of_rank(), grouped ? k : 0);
  for (std::size_t i = 0; i < all[0].visits(); ++i)
    for (std::size_t k = 0; k < all.size(); ++k)
      all[k].visit(i, relay, options.contains("dbs") && k > 0 ? &all[k - 1] : nullptr);
  close_step(draft, all.back().last_tick() + std::min(when.give, 1), EndsUpdate::sliced);
  return std::move(draft).finish(when.give > 0);
}

}  // namespace

Entry schedules::tawpipe() {
  return {
      .name = "tawpipe",
      .doc = "topology-aware grouped weight pipelining (arXiv 2511.09741)",
      .options = {{"gwps",
                   {"on", "off"},
                   "group-based weight pipelining; off: every rank gets shards from their owners directly"},
                  {"dbs", {"on", "off"}, "device-bound storage; off: shards travel on from group to group"},
                  {"cco",
                   {"on", "off"},
                   "communication-computation overlap; off: transfers and computation take turns"},
                  prefetch_option("2"),
                  {"drain",
                   {"3", "1..8"},
                   "ticks that gradients have to leave before computing wants their buffers again"},
                  {"rails",
                   {"auto", "1..64"},
                   "ranks of a group that share a message to another group; auto: as many as each node has "
                   "network adapters"}},
      .build = make,
      .shard_per_rank = true,
      .check = require,
      .settle = settle};
}

}  // namespace minitaw::schedule
