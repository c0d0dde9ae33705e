#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "schedule/builder.hpp"
#include "schedule/registry.hpp"

namespace minitaw::schedule {
namespace {

/// Owner rank of each shard: shards go round-robin over the groups that still have a rank with fewer shards
/// than the rest, and inside a group over its ranks. With n equal groups this is rank (s mod D) n + s div D
/// (TawPipe, device-bound storage); with unequal groups every rank still owns as many shards as any other,
/// give or take one.
std::vector<int> round_robin_owners(const topology::Groups& groups, int shards) {
  std::vector<int> owners;
  std::vector<int> owned(groups.count(), 0);
  while (static_cast<int>(owners.size()) < shards) {
    // One pass over the groups gives a shard to each that has a rank left in this round of one shard a rank.
    const int round = static_cast<int>(owners.size()) / groups.ranks();
    for (int k = 0; k < groups.count() && static_cast<int>(owners.size()) < shards; ++k) {
      if (owned[k] >= (round + 1) * groups.size(k)) continue;
      owners.push_back(groups.rank(k, owned[k]++ % groups.size(k)));
    }
  }
  return owners;
}

/// When the group relay moves shards, relative to the tick that computes with them.
struct RelayTiming {
  int fetch_inter = 1;  ///< ticks ahead that a shard is sent to another group (prefetch depth)
  int fetch_intra = 1;  ///< ticks ahead that the group broadcasts
  int give = 1;  ///< ticks after B that its gradient leaves, in the order of issue: how many buffers B has
};

/// How a group gets a shard and returns its gradient.
///
/// Weights: the owner broadcasts inside its own group; for another group it sends to one rank there, the
/// group leader for this shard (same local index where it exists), which broadcasts. Gradients go the same
/// way back: reduced to the owner inside its group, else to the leader, which sends the sum; the owner adds
/// it to its total. (arXiv 2511.09741, GWPS and DBS; notes on the published rule in docs/schedules.md.)
///
/// With rails > 1, a message between groups goes in as many parts, or as many as both groups have ranks, each
/// from the rank of one group to the rank of the other with the same local index: the owner scatters the
/// parts in its group, the other group gathers them; gradients come back likewise.
///
/// `teams` are the groups that share a shard's visit: the topology's groups, or single ranks without GWPS.
class GroupRelay {
public:
  GroupRelay(Builder& builder, const topology::Groups& teams, std::vector<int> owners, RelayTiming timing,
             int rails)
      : builder_(builder), teams_(teams), owners_(std::move(owners)), timing_(timing), rails_(rails) {
    for (int a = 0; a < teams.count(); ++a)
      for (int b = 0; b < a; ++b) builder.cut_shards(this->rails(a, b));
  }

  [[nodiscard]] const RelayTiming& timing() const { return timing_; }

  /// Where a team takes a shard from: the owner, or the leader of another team that has `values` of it.
  struct Source {
    int team = -1;  ///< -1: the owner
    std::vector<VirtualBuffer> values;
  };

  /// The shard's weights on every member of a team for `tick`: one value per member, in rank order.
  [[nodiscard]] std::vector<VirtualBuffer> fetch(int team, int shard, int tick, const Source& source) {
    const int owner = owners_[shard];
    std::vector<VirtualBuffer> values;
    for (const int r : teams_.members(team))
      values.push_back(r == owner ? builder_.owned(r, shard) : builder_.value(r, SlotClass::weights));
    if (owns(team, shard)) {
      if (!alone(team)) inside(Kind::broadcast, team, owner, shard, tick - timing_.fetch_intra, {}, values);
    } else if (rails(team, teams_.group_of(owner)) > 1) {
      fetch_in_parts(team, shard, tick, values);
    } else {
      const bool passed_on = source.team >= 0 && !owns(source.team, shard);
      const int from = passed_on ? leader(source.team, shard) : owner;
      fetch_whole(team, shard, tick,
                  {from, passed_on ? source.values[teams_.local(from)] : builder_.owned(owner, shard)},
                  values);
    }
    return values;
  }

  /// Where each member's B puts the shard's gradient.
  [[nodiscard]] std::vector<VirtualBuffer> gradients(int team, int shard) {
    std::vector<VirtualBuffer> values;
    for (const int r : teams_.members(team))
      values.push_back(alone(team) && owns(team, shard) ? builder_.accumulator(r, shard)
                                                        : builder_.value(r, SlotClass::gradient));
    return values;
  }

  /// Moves those gradients to the owner's total, at tick `when`.
  void return_gradients(int team, int shard, int when, const std::vector<VirtualBuffer>& gradients) {
    const int owner = owners_[shard];
    if (!owns(team, shard) && rails(team, teams_.group_of(owner)) > 1)
      return return_in_parts(team, shard, when, gradients);
    if (!alone(team)) inside(Kind::reduce, team, leader(team, shard), shard, when, {}, gradients);
    if (!owns(team, shard)) return return_whole(team, shard, when, gradients);
    // Right behind the reduction, in the same lane.
    if (!alone(team))
      add_to_total(owner, shard, when, Phase::give_intra, Lane::gradients, {},
                   gradients[teams_.local(owner)]);
  }

private:
  [[nodiscard]] bool owns(int team, int shard) const { return teams_.group_of(owners_[shard]) == team; }
  [[nodiscard]] bool alone(int team) const { return teams_.size(team) == 1; }

  /// The rank of a team that exchanges a shard with other teams.
  [[nodiscard]] int leader(int team, int shard) const {
    if (owns(team, shard)) return owners_[shard];
    return teams_.rank(team, teams_.local(owners_[shard]) % teams_.size(team));
  }

  /// Parts that a message between two teams is cut into.
  [[nodiscard]] int rails(int team, int other) const {
    return std::min({rails_, teams_.size(team), teams_.size(other)});
  }

  /// A collective inside a team.
  void inside(Kind kind, int team, int root, int shard, int tick, Part part,
              const std::vector<VirtualBuffer>& values) {
    const bool weights = kind == Kind::broadcast || kind == Kind::all_gather;
    Action a = make_action(kind, tick, weights ? Payload::weights : Payload::gradient, shard, part);
    a.peer = is_rooted(kind) ? root : -1;
    a.communicator = builder_.group(team);
    builder_.collective(tick, weights ? Phase::fetch_intra : Phase::give_intra, a, values);
  }

  void fetch_whole(int team, int shard, int tick, Builder::Endpoint from,
                   const std::vector<VirtualBuffer>& values) {
    const int root = leader(team, shard);
    builder_.transfer(tick - timing_.fetch_inter, Phase::fetch_inter, {Payload::weights, shard, -1, {}}, from,
                      {root, values[teams_.local(root)]});
    if (!alone(team)) inside(Kind::broadcast, team, root, shard, tick - timing_.fetch_intra, {}, values);
  }

  void fetch_in_parts(int team, int shard, int tick, const std::vector<VirtualBuffer>& values) {
    const int owner = owners_[shard], owned = teams_.group_of(owner), parts = rails(team, owned);
    const int sent = tick - timing_.fetch_inter;
    std::vector<VirtualBuffer> scattered;
    for (int i = 0; i < parts; ++i) {
      const int r = teams_.rank(owned, i);
      scattered.push_back(r == owner ? builder_.owned(owner, shard) : builder_.value(r, SlotClass::weights));
    }
    scatter(shard, sent, scattered);
    for (int i = 0; i < parts; ++i)
      builder_.transfer(sent, Phase::fetch_inter, {Payload::weights, shard, -1, {i, parts}},
                        {teams_.rank(owned, i), scattered[i]}, {teams_.rank(team, i), values[i]});
    gather(team, shard, tick - timing_.fetch_intra, parts, values);
  }

  /// Part i from the owner to the rank with local index i of its group.
  void scatter(int shard, int tick, const std::vector<VirtualBuffer>& parts) {
    const int owner = owners_[shard], owned = teams_.group_of(owner);
    for (int i = 0; i < static_cast<int>(parts.size()); ++i)
      if (const int r = teams_.rank(owned, i); r != owner)
        builder_.transfer(tick, Phase::fetch_first,
                          {Payload::weights, shard, -1, {i, static_cast<int>(parts.size())}},
                          {owner, builder_.owned(owner, shard)}, {r, parts[i]});
  }

  /// The whole shard on every member, from the parts on the first ones.
  void gather(int team, int shard, int tick, int parts, const std::vector<VirtualBuffer>& values) {
    if (parts == teams_.size(team)) return inside(Kind::all_gather, team, -1, shard, tick, {}, values);
    for (int i = 0; i < parts; ++i)
      inside(Kind::broadcast, team, teams_.rank(team, i), shard, tick, {i, parts}, values);
  }

  void return_whole(int team, int shard, int tick, const std::vector<VirtualBuffer>& gradients) {
    const int owner = owners_[shard], root = leader(team, shard);
    const VirtualBuffer received = builder_.value(owner, SlotClass::contribution);
    builder_.transfer(tick, Phase::give_inter, {Payload::gradient, shard, -1, {}},
                      {root, gradients[teams_.local(root)]}, {owner, received});
    add_to_total(owner, shard, tick, Phase::give_inter, Lane::gradients_in, {}, received);
  }

  /// Member i gets the sum of part i and sends it to the rank with its local index in the owner's group,
  /// which sends it to the owner.
  void return_in_parts(int team, int shard, int tick, const std::vector<VirtualBuffer>& gradients) {
    const int owner = owners_[shard], owned = teams_.group_of(owner), parts = rails(team, owned);
    if (parts == teams_.size(team)) inside(Kind::reduce_scatter, team, -1, shard, tick, {}, gradients);
    else
      for (int i = 0; i < parts; ++i)
        inside(Kind::reduce, team, teams_.rank(team, i), shard, tick, {i, parts}, gradients);
    const VirtualBuffer received = builder_.value(owner, SlotClass::contribution);
    for (int i = 0; i < parts; ++i) {
      const Part part{i, parts};
      const int counterpart = teams_.rank(owned, i);
      const bool direct = counterpart == owner;
      const VirtualBuffer passing = direct ? received : builder_.value(counterpart, SlotClass::contribution);
      builder_.transfer(tick, Phase::give_inter, {Payload::gradient, shard, -1, part},
                        {teams_.rank(team, i), gradients[i]}, {counterpart, passing});
      if (!direct)
        builder_.transfer(tick, Phase::give_last, {Payload::gradient, shard, -1, part},
                          {counterpart, passing}, {owner, received});
      add_to_total(owner, shard, tick, direct ? Phase::give_inter : Phase::give_last, Lane::gradients_in,
                   part, received);
    }
  }

  void add_to_total(int owner, int shard, int tick, Phase phase, Lane lane, Part part,
                    VirtualBuffer gradient) {
    Action add = make_action(Kind::accumulate, tick, Payload::gradient, shard, part);
    add.lane = lane;
    builder_.add(owner, phase, add, {gradient, builder_.accumulator(owner, shard)});
  }

  Builder& builder_;
  const topology::Groups& teams_;
  std::vector<int> owners_;
  RelayTiming timing_;
  int rails_;
};

/// The ranks of a team visit the same shard at the same tick, each with its own micro-batch.
class Team {
public:
  Team(Builder& builder, const topology::Groups& teams, int index, int per_rank, int first_tick)
      : team_(index), members_(teams.members(index)) {
    for (const int rank : members_) {
      computers_.emplace_back(builder, rank);
      visits_.push_back(
          micro_batch_after_micro_batch(builder.shards(), own_micro_batches(rank, per_rank), first_tick));
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
    const std::vector<VirtualBuffer> gradients = relay.gradients(team_, now.shard);
    for (std::size_t r = 0; r < members_.size(); ++r)
      computers_[r].backward(visits_[r][i], weights_[r], gradients[r]);
    relay.return_gradients(team_, now.shard, std::min(now.tick + relay.timing().give, last_tick() + 1),
                           gradients);
  }

  int team_;
  std::vector<int> members_;
  std::vector<Computer> computers_;
  std::vector<std::vector<Visit>> visits_;
  std::vector<VirtualBuffer> weights_;  ///< of the latest visit
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
  Builder builder(request.groups, ranks, request.micro_batches, request.replicas);
  const topology::Groups teams = grouped ? builder.groups() : topology::Groups::equal(ranks, ranks);
  const std::vector<int> owners = round_robin_owners(teams, ranks);
  for (int s = 0; s < ranks; ++s) builder.own(owners[s], s);
  const RelayTiming when = timing(request.spec);
  GroupRelay relay(builder, teams, owners, when, number_of(request.spec, "rails", 1));
  std::vector<Team> all;
  for (int k = 0; k < teams.count(); ++k)
    all.emplace_back(builder, teams, k, request.micro_batches_of_rank(), grouped ? k : 0);
  for (std::size_t i = 0; i < all[0].visits(); ++i)
    for (std::size_t k = 0; k < all.size(); ++k)
      all[k].visit(i, relay, options.contains("dbs") && k > 0 ? &all[k - 1] : nullptr);
  add_epilogue(builder, all.back().last_tick() + std::min(when.give, 1), EmbeddingsUpdate::sliced);
  return std::move(builder).finish(when.give > 0);
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
      .shards_per_rank = 1,
      .check = require,
      .settle = settle};
}

}  // namespace minitaw::schedule
