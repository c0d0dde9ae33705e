#include <algorithm>
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
/// If shards are passed on, a team takes them from the team before it, which has just used them.
class GroupRelay {
public:
  GroupRelay(Builder& builder, const topology::Groups& teams, std::vector<int> owners, RelayTiming timing,
             int rails, bool passes_on)
      : builder_(builder), teams_(teams), owners_(std::move(owners)), timing_(timing), rails_(rails),
        passes_on_(passes_on), weights_(teams.count()) {
    for (int a = 0; a < teams.count(); ++a)
      for (int b = 0; b < a; ++b) builder.cut_shards(parts(a, b));
  }

  /// Of the shard that a team fetched last, one buffer per member, in rank order.
  [[nodiscard]] const std::vector<VirtualBuffer>& weights(int team) const { return weights_[team]; }

  /// The shard's weights on every member of a team for `tick`.
  void fetch(int team, int shard, int tick) {
    std::vector<VirtualBuffer>& values = weights_[team];
    values.clear();
    for (const int r : teams_.members(team)) values.push_back(weights_on(r, shard));
    if (!owns(team, shard)) send_to(team, shard, tick - timing_.fetch_inter);
    inside(Payload::weights, team, shard, tick - timing_.fetch_intra, values);
  }

  /// Where each member's B puts the shard's gradient.
  [[nodiscard]] std::vector<VirtualBuffer> gradients(int team, int shard) {
    std::vector<VirtualBuffer> values;
    for (const int r : teams_.members(team))
      values.push_back(alone(team) && owns(team, shard) ? builder_.accumulator(r, shard)
                                                        : builder_.value(r, SlotClass::gradient));
    return values;
  }

  /// Moves those gradients to the owner's total.
  void return_gradients(int team, int shard, int tick, const std::vector<VirtualBuffer>& gradients) {
    const int owner = owners_[shard];
    inside(Payload::gradient, team, shard, tick, gradients);
    if (owns(team, shard)) {
      // Right behind the reduction, in the same lane.
      if (!alone(team))
        add_to_total(shard, tick, Phase::give_intra, Lane::gradients, {}, gradients[teams_.local(owner)]);
      return;
    }
    const std::vector<int> leaders = leaders_of(team, shard);
    const VirtualBuffer received = builder_.value(owner, SlotClass::contribution);
    for (int i = 0; i < static_cast<int>(leaders.size()); ++i) {
      const Cargo cargo{Payload::gradient, shard, -1, {i, static_cast<int>(leaders.size())}};
      const int receiver = counterpart(cargo);
      const bool direct = receiver == owner;
      const VirtualBuffer passing = direct ? received : builder_.value(receiver, SlotClass::contribution);
      builder_.transfer(tick, Phase::give_inter, cargo, {leaders[i], gradients[teams_.local(leaders[i])]},
                        {receiver, passing});
      if (!direct) builder_.transfer(tick, Phase::give_last, cargo, {receiver, passing}, {owner, received});
      add_to_total(shard, tick, direct ? Phase::give_inter : Phase::give_last, Lane::gradients_in, cargo.part,
                   received);
    }
  }

private:
  [[nodiscard]] bool owns(int team, int shard) const { return teams_.group_of(owners_[shard]) == team; }
  [[nodiscard]] bool alone(int team) const { return teams_.size(team) == 1; }

  /// Parts that a message between two teams is cut into.
  [[nodiscard]] int parts(int team, int other) const {
    return std::min({rails_, teams_.size(team), teams_.size(other)});
  }

  /// The ranks of a team that exchange a shard with other teams, one for each part of it: the owner in its
  /// own.
  [[nodiscard]] std::vector<int> leaders_of(int team, int shard) const {
    const int owner = owners_[shard], count = parts(team, teams_.group_of(owner));
    if (owns(team, shard)) return {owner};
    if (count == 1) return {teams_.rank(team, teams_.local(owner) % teams_.size(team))};
    std::vector<int> leaders;
    for (int i = 0; i < count; ++i) leaders.push_back(teams_.rank(team, i));
    return leaders;
  }

  /// The rank of the owner's team through which a part goes.
  [[nodiscard]] int counterpart(const Cargo& cargo) const {
    const int owner = owners_[cargo.shard];
    return cargo.part.count == 1 ? owner : teams_.rank(teams_.group_of(owner), cargo.part.index);
  }

  [[nodiscard]] VirtualBuffer weights_on(int rank, int shard) {
    return rank == owners_[shard] ? builder_.owned(rank, shard) : builder_.value(rank, SlotClass::weights);
  }

  /// Every part of a shard from another team to the leader for it.
  void send_to(int team, int shard, int tick) {
    const int owner = owners_[shard];
    const std::vector<int> leaders = leaders_of(team, shard);
    for (int i = 0; i < static_cast<int>(leaders.size()); ++i) {
      const Cargo cargo{Payload::weights, shard, -1, {i, static_cast<int>(leaders.size())}};
      Builder::Endpoint from;
      if (passes_on_ && team > 0 && !owns(team - 1, shard)) {
        const int leader = leaders_of(team - 1, shard)[0];
        from = {leader, weights_[team - 1][teams_.local(leader)]};
      } else {
        const int sender = counterpart(cargo);
        from = {sender, weights_on(sender, shard)};
        if (sender != owner)
          builder_.transfer(tick, Phase::fetch_first, cargo, {owner, builder_.owned(owner, shard)}, from);
      }
      builder_.transfer(tick, Phase::fetch_inter, cargo, from,
                        {leaders[i], weights_[team][teams_.local(leaders[i])]});
    }
  }

  /// Weights from the leaders of a team to all its members, or the sums of their gradients to the leaders.
  void inside(Payload payload, int team, int shard, int tick, const std::vector<VirtualBuffer>& values) {
    if (alone(team)) return;
    const bool weights = payload == Payload::weights;
    const std::vector<int> leaders = leaders_of(team, shard);
    const int parts = static_cast<int>(leaders.size());
    const bool all_lead = parts == teams_.size(team);
    for (int i = 0; i < (all_lead ? 1 : parts); ++i) {
      Action a = make_action(weights ? Kind::broadcast : Kind::reduce, tick, payload, shard, {i, parts});
      a.peer = leaders[i];
      if (all_lead) a = make_action(weights ? Kind::all_gather : Kind::reduce_scatter, tick, payload, shard);
      a.communicator = builder_.group(team);
      builder_.collective(weights ? Phase::fetch_intra : Phase::give_intra, a, values);
    }
  }

  void add_to_total(int shard, int tick, Phase phase, Lane lane, Part part, VirtualBuffer gradient) {
    Action add = make_action(Kind::accumulate, tick, Payload::gradient, shard, part);
    add.lane = lane;
    builder_.add(owners_[shard], phase, add, {gradient, builder_.accumulator(owners_[shard], shard)});
  }

  Builder& builder_;
  const topology::Groups& teams_;
  std::vector<int> owners_;
  RelayTiming timing_;
  int rails_;
  bool passes_on_;
  std::vector<std::vector<VirtualBuffer>> weights_;  ///< by team
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
  GroupRelay relay(builder, teams, owners, when, number_of(request.spec, "rails", 1),
                   options.contains("dbs"));
  std::vector<Team> all;
  for (int k = 0; k < teams.count(); ++k)
    all.emplace_back(builder, teams.members(k), request.micro_batches_of_rank(), grouped ? k : 0);
  for (std::size_t i = 0; i < all[0].visits().size(); ++i)
    for (int k = 0; k < teams.count(); ++k) {
      const Visit& now = all[k].visits()[i];
      // At the turn from forward to backward, and back, the shard at hand is the one needed next.
      if (i == 0 || now.shard != all[k].visits()[i - 1].shard) relay.fetch(k, now.shard, now.tick);
      const std::vector<VirtualBuffer> gradients =
          now.backward() ? relay.gradients(k, now.shard) : std::vector<VirtualBuffer>();
      all[k].compute(i, relay.weights(k), gradients);
      if (now.backward())
        relay.return_gradients(k, now.shard, std::min(now.tick + when.give, all[k].last_tick() + 1),
                               gradients);
    }
  return std::move(builder).finish(all.back().last_tick() + std::min(when.give, 1), EmbeddingsUpdate::sliced,
                                   when.give > 0);
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
                  {"prefetch",
                   {"2", "1..8"},
                   "ticks ahead that a shard is sent to another group; cco=off: none"},
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
