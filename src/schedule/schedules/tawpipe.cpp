// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <fmt/format.h>
#include <ranges>
#include "base/error.hpp"
#include "schedule/keeping.hpp"
#include "schedule/passes.hpp"

namespace minitaw::schedule {
namespace {
/// The owner rank of each shard. Shards go round-robin over the groups that still have a rank with
/// fewer shards than the rest, and inside group k over its ranks, from rank k on. With n equal
/// groups this is rank (s mod D) n + (s div D + s mod D) mod n: TawPipe's device-bound storage, but
/// for the last term, by which no rank receives two shards in a row. With unequal groups too, every
/// rank owns as many shards as any other, give or take one.
Ranks round_robin_owners(const Groups& groups, int shards) {
  Ranks round;  // ranks, in the order in which each gets a shard
  for (int i = 0; std::ssize(round) < groups.ranks(); ++i)
    for (int k = 0; k < groups.count(); ++k)
      if (i < groups.size(k))
        round.push_back(groups.rank(k, (i + k) % groups.size(k)));
  return list_of(std::views::iota(0, shards), [&](int s) { return round[s % groups.ranks()]; });
}

/// Decides who sends each shard to whom, and who returns its gradient.
///
/// The owner broadcasts the weights inside its own group. To another group it sends them to one
/// rank, the group leader for this shard (same local index where it exists), which broadcasts.
/// Gradients go the same way back: reduced to the owner inside its group, else to the leader, which
/// sends the sum; the owner adds it to its accumulator. (arXiv 2511.09741, GWPS and DBS; see
/// docs/schedules.md for the published rule.)
///
/// With rails > 1, a message between groups is divided into so many parts, at most the ranks of
/// the smaller group. Each part passes between ranks with the same local index: the owner scatters
/// the parts in its group, the other group gathers them; gradients come back likewise.
///
/// `groups` share a shard's visit: the topology's groups, or without GWPS one of all ranks. What
/// stays in a group is with its leaders for the shard, spread over its ranks as owned shards are.
class GroupRelay {
public:
  GroupRelay(Builder& builder, const Groups& groups, Ranks owners, const Request& request)
      : builder_(builder),
        groups_(groups),
        owners_(std::move(owners)),
        prefetch_(number_of(request.spec, "prefetch")),
        rails_(number_of(request.spec, "rails")),
        passes_on_(request.spec.options.contains("dbs")),
        keeping_(keeping_of(request)),
        weights_(groups.count()) {
    if (keeping_.weights == Holder::group || keeping_.sums == Holder::group)
      rails_ = std::min(rails_, std::ranges::min(groups.sizes()));
    for (int k = 0; k < groups.count(); ++k) {
      kept_.emplace_back(builder, groups.members(k), keeping_);
      for (int other = 0; other < k; ++other)
        builder.cut_shards(parts(k, other));
      // Copies and sums of a group are divided among as many of its ranks as there are rails.
      for (int i = 0; groups.count() > 1 && i < parts(k, k); ++i)
        kept_[k].divide(groups.rank(k, i), {i, rails_});
    }
  }

  /// Brings the weights of a visit's shard to every member of a group.
  void fetch(int group, const Visit& visit) {
    const int shard = visit.shard, tick = visit.tick - 1;
    RankBuffers& weights = weights_[group];
    RankBuffers& copies = kept_[group].copies_for(visit);
    if (!copies.empty() && keeping_.weights == Holder::rank) {
      weights = copies;
      return;
    }
    weights = list_of(groups_.members(group), [&](int rank) { return weights_on(rank, shard); });
    if (!copies.empty()) {
      for (const int r : leaders_of(group, shard))
        if (const VirtualBuffer copy = copies[groups_.local(r)]; copy.cls == SlotClass::kept)
          load_weights(r, shard, tick, copy, weights[groups_.local(r)]);
        else
          weights[groups_.local(r)] = copy;
    } else {
      if (!owns(group, shard))
        send_to(group, shard, visit.tick - prefetch_);
      if (keeping_.weights != Holder::owner)
        copies = copies_of(group, shard, tick, weights);
    }
    inside(Payload::weights, group, shard, tick, weights);
  }

  /// The weights that a group fetched last, a buffer of each member.
  const RankBuffers& weights(int group) const { return weights_[group]; }

  /// Returns the buffers to which each member's B writes the shard's gradient.
  RankBuffers gradients(int group, int shard) {
    if (sums_on_ranks(group, shard))
      return kept_[group].sums_of(shard);
    if (alone(group) && owns(group, shard))
      return {builder_.accumulator(owners_[shard], shard)};
    return builder_.new_buffers(groups_.members(group), SlotClass::gradient);
  }

  /// Moves the gradients of a visit to the owner, or as far as each micro-batch's go; the `last`
  /// with all before. They leave the group at `tick`; at `owner_tick` the owner's group is as far.
  void return_gradients(
      int group, int shard, int tick, int owner_tick, RankBuffers gradients, bool last) {
    if (sums_on_ranks(group, shard)) {
      if (!last)
        return;
      gradients = kept_[group].load_sums(shard, tick, true);
    }
    inside(Payload::gradient, group, shard, tick, gradients);
    if (owns(group, shard)) {
      // Right after the reduction, in the same lane.
      if (!alone(group))
        add_to_accumulator(
            Phase::push_intra, shard, tick, {}, true, gradients[groups_.local(owners_[shard])]);
      return;
    }
    if (keeping_.sums == Holder::group && !alone(group)) {
      kept_[group].add_to_sums(leaders_of(group, shard), shard, tick, gradients, last);
      if (!last)
        return;
    }
    send_home(group, shard, tick, owner_tick, gradients);
  }

private:
  /// The way of one part of a shard between the owner's group and another.
  struct Rail {
    Part part;
    int leader;   ///< the rank of the other group
    int gateway;  ///< the rank of the owner's group: the owner, or one that passes the part on
  };

  bool owns(int group, int shard) const { return groups_.group_of(owners_[shard]) == group; }

  bool alone(int group) const { return groups_.size(group) == 1; }

  /// Parts that a message between two groups is cut into.
  int parts(int a, int b) const { return std::min({rails_, groups_.size(a), groups_.size(b)}); }

  /// The ways of a shard to and from a group that does not own it.
  std::vector<Rail> rails_of(int group, int shard) const {
    const int owner = owners_[shard], home = groups_.group_of(owner), count = parts(group, home);
    if (count == 1)
      return {{{}, groups_.rank(group, groups_.local(owner) % groups_.size(group)), owner}};
    return list_of(std::views::iota(0, count),
        [&](int i) { return Rail{{i, count}, groups_.rank(group, i), groups_.rank(home, i)}; });
  }

  /// The ranks of a group that exchange a shard with other groups: the owner in its own.
  Ranks leaders_of(int group, int shard) const {
    return owns(group, shard) ? std::vector{owners_[shard]}
                              : list_of(rails_of(group, shard), &Rail::leader);
  }

  /// Returns whether each rank sums its own gradients, where they are not the owner's at once.
  bool sums_on_ranks(int group, int shard) const {
    if (alone(group))
      return keeping_.sums != Holder::owner && !owns(group, shard);
    return keeping_.sums == Holder::rank;
  }

  VirtualBuffer weights_on(int rank, int shard) {
    return rank == owners_[shard] ? builder_.owned(rank, shard)
                                  : builder_.new_buffer(rank, SlotClass::weights);
  }

  /// Returns what stays of the shard in `weights`, on every member or with the leaders. Several
  /// leaders copy their parts once they are there.
  RankBuffers copies_of(int group, int shard, int tick, const RankBuffers& weights) {
    RankBuffers copies = weights;
    const Ranks leaders = leaders_of(group, shard);
    if (keeping_.weights == Holder::group && leaders.size() > 1)
      for (const int r : leaders) {
        VirtualBuffer& copy = copies[groups_.local(r)] = builder_.new_buffer(r, SlotClass::kept);
        load_weights(r, shard, tick, weights[groups_.local(r)], copy);
      }
    return copies;
  }

  void load_weights(int rank, int shard, int tick, VirtualBuffer from, VirtualBuffer to) {
    const Action load = make_action(Kind::load, tick, Payload::weights, shard);
    builder_.local(rank, Phase::fetch_intra, load, true, from, to);
  }

  /// Sends every part of a shard from another group to its leader.
  void send_to(int group, int shard, int tick) {
    const int owner = owners_[shard];
    for (const auto& [part, leader, gateway] : rails_of(group, shard)) {
      const Action send = make_action(Kind::send, tick, Payload::weights, shard, part);
      Builder::Endpoint from;
      if (passes_on_ && group > 0 && !owns(group - 1, shard)) {
        const int sender = leaders_of(group - 1, shard)[0];
        from = {sender, weights_[group - 1][groups_.local(sender)]};
      } else {
        from = {gateway, weights_on(gateway, shard)};
        if (gateway != owner)
          builder_.transfer(Phase::fetch_first, send, {owner, builder_.owned(owner, shard)}, from);
      }
      builder_.transfer(
          Phase::fetch_inter, send, from, {leader, weights_[group][groups_.local(leader)]});
    }
  }

  /// Sends every part of a gradient from its leader to the owner, which adds it.
  void send_home(int group, int shard, int tick, int owner_tick, const RankBuffers& gradients) {
    const int owner = owners_[shard];
    const VirtualBuffer received = builder_.new_buffer(owner, SlotClass::contribution);
    // After the sum of the owner's group, which no late message may hold up; not for longer than
    // two ticks, to save slots.
    const int added = owner_tick - tick <= 2 ? std::max(tick, owner_tick) : tick;
    for (const auto& [part, leader, gateway] : rails_of(group, shard)) {
      const Action send = make_action(Kind::send, tick, Payload::gradient, shard, part);
      const bool direct = gateway == owner;
      const VirtualBuffer passing =
          direct ? received : builder_.new_buffer(gateway, SlotClass::contribution);
      builder_.transfer(
          Phase::push_inter, send, {leader, gradients[groups_.local(leader)]}, {gateway, passing});
      if (!direct)
        builder_.transfer(Phase::push_last, send, {gateway, passing}, {owner, received});
      add_to_accumulator(
          direct ? Phase::push_inter : Phase::push_last, shard, added, part, false, received);
    }
  }

  /// Moves weights from the leaders of a group to all its members, or the sums of their gradients
  /// to the leaders.
  void inside(Payload payload, int group, int shard, int tick, const RankBuffers& buffers) {
    if (alone(group))
      return;
    const bool weights = payload == Payload::weights;
    const Phase phase = weights ? Phase::fetch_intra : Phase::push_intra;
    const int communicator =
        groups_.count() == 1
            ? builder_.world()
            : builder_.communicator(fmt::format("group{}", group), groups_.members(group));
    Action action =
        make_action(weights ? Kind::all_gather : Kind::reduce_scatter, tick, payload, shard);
    const Ranks leaders = leaders_of(group, shard);
    if (std::ssize(leaders) == groups_.size(group))
      return builder_.collective(phase, communicator, action, buffers);
    action.kind = weights ? Kind::broadcast : Kind::reduce;
    action.parts = std::ssize(leaders);
    for (action.part = 0; action.part < action.parts; ++action.part) {
      action.peer = leaders[action.part];
      builder_.collective(phase, communicator, action, buffers);
    }
  }

  void add_to_accumulator(
      Phase phase, int shard, int tick, Part part, bool inside, VirtualBuffer gradient) {
    const int owner = owners_[shard];
    builder_.local(owner,
        phase,
        make_action(Kind::accumulate, tick, Payload::gradient, shard, part),
        inside,
        gradient,
        builder_.accumulator(owner, shard));
  }

  Builder& builder_;
  const Groups& groups_;
  Ranks owners_;
  int prefetch_;    ///< ticks ahead that a shard is sent to another group, which broadcasts it one
                    ///< tick ahead
  int rails_;       ///< ranks of a group that share a message to another group
  bool passes_on_;  ///< a group takes shards from the group before it, which has just used them
  Keeping keeping_;
  std::vector<RankBuffers> weights_;  ///< by group and member
  std::vector<KeptBuffers> kept_;     ///< by group
};

/// Returns whether a message between groups may be divided: only if its owner sends it to a group.
bool may_share(const Spec& spec) {
  return !spec.options.contains("dbs") && !spec.options.contains("gwps");
}

/// The most ranks that can share a message: that two groups both have, or all groups that keep
/// something.
int most_rails(const Request& request) {
  std::vector<int> sizes = request.groups_of_replica().sizes();
  std::ranges::sort(sizes, std::ranges::greater());
  const Keeping keeping = keeping_of(request);
  const bool keeps = keeping.weights == Holder::group || keeping.sums == Holder::group;
  return sizes.size() < 2 ? 1 : keeps ? sizes.back() : sizes[1];
}

/// Gives rails=auto a value, the adapters of a node, but no more than there can be.
void settle(Request& request, int adapters) {
  auto& options = request.spec.options;
  if (!may_share(request.spec))
    return;
  const int most = most_rails(request);
  const bool given = options.contains("rails");
  const int rails = std::clamp(given ? number_of(request.spec, "rails") : adapters, 1, most);
  if (!given || most > 1)  // else without effect
    options["rails"] = std::to_string(rails);
  if (options["rails"] == "1")
    options.erase("rails");
}

void require_options_of_tawpipe(const Request& request) {
  const auto& options = request.spec.options;
  if (options.contains("dbs") && options.contains("gwps"))
    throw InputError(
        "schedule: tawpipe:dbs=off passes shards from group to group, so it needs gwps=on");
  if (number_of(request.spec, "rails") > 1 && !may_share(request.spec))
    throw InputError("schedule: tawpipe with rails sends from the owner's group, so it needs "
                     "dbs=on and gwps=on");
}

constexpr int usual_grad_ticks = 3;

std::string has_one_node(const Request& request) {
  return request.groups_of_replica().count() == 1 ? "all ranks are one group" : "";
}

std::string passes_to_one_group(const Request& request) {
  return request.groups_of_replica().count() == 2 ? "each shard goes to one other group"
                                                  : has_one_node(request);
}

/// Gradients that would leave later leave at the end.
std::string ends_too_soon(const Request& request) {
  const bool by_block = request.spec.options.contains("shards");
  const int shards = by_block ? request.layers : request.ranks_of_replica();
  const int ticks = std::min(number_of(request.spec, "grad_ticks"), usual_grad_ticks);
  return shards * request.micro_batches_of_rank() <= ticks ? "gradients leave at the step's end"
                                                           : one_rank(request);
}

std::string shares_no_message(const Request& request) {
  const std::string one = one_group(request);
  return one.empty() && most_rails(request) == 1 ? "a group has one rank" : one;
}

std::string has_a_block_each(const Request& request) {
  return request.layers == request.ranks_of_replica() ? "each rank has one block" : "";
}

/// TawPipe (arXiv 2511.09741): group k runs one tick behind group k-1, so that each group sends and
/// receives at most one weight shard per tick. Options away from their defaults: gwps=off (one
/// group of all ranks), dbs=off (a group gets a shard from the group that has just used it),
/// cco=off (a rank waits for its messages with weights), prefetch (ticks ahead between groups),
/// shards (as many as ranks, or as blocks), grad_ticks (ticks after which gradients leave their
/// group), rails (see GroupRelay).
Program make_tawpipe(const Request& request) {
  const auto& options = request.spec.options;
  // Shards of blocks take equally long, also where blocks do not divide evenly among ranks.
  const int shards = options.contains("shards") ? request.layers : request.ranks_of_replica();
  Builder builder(request, shards);
  const Groups groups =
      options.contains("gwps") ? Groups::equal(builder.ranks(), 1) : builder.groups();
  const Ranks owners = round_robin_owners(groups, shards);
  for (int s = 0; s < shards; ++s)
    builder.own(owners[s], s);
  GroupRelay relay(builder, groups, owners, request);
  std::vector<LockstepRanks> all;
  for (int k = 0; k < groups.count(); ++k)
    all.emplace_back(builder, groups.members(k), request.micro_batches_of_rank(), k);

  const int grad_ticks = number_of(request.spec, "grad_ticks");
  for (const int i : indices(all[0].visits())) {
    // The tick in which a group's gradient leaves.
    const auto leaves = [&](int group) {
      return std::min(all[group].visits()[i].tick + grad_ticks, all[group].last_tick() + 1);
    };
    for (int k = 0; k < groups.count(); ++k) {
      const Visit& now = all[k].visits()[i];
      // At the turn from forward to backward, and back, the shard at hand is the one needed next.
      if (i == 0 || now.shard != all[k].visits()[i - 1].shard)
        relay.fetch(k, now);
      const RankBuffers gradients = now.backward() ? relay.gradients(k, now.shard) : RankBuffers();
      all[k].compute(i, relay.weights(k), gradients);
      if (now.backward())
        relay.return_gradients(k,
            now.shard,
            leaves(k),
            leaves(groups.group_of(owners[now.shard])),
            gradients,
            all[k].is_last(now));
    }
  }
  return std::move(builder).finish(all.back().last_tick() + 1,
      options.contains("cco") ? Overlap::not_of_weights : Overlap::full);
}
}  // namespace

namespace schedules {
Entry tawpipe() {
  return {.name = "tawpipe",
      .doc = "topology-aware grouped weight pipelining (arXiv 2511.09741)",
      .options = with_keeping({{"gwps",
                                   {"on", "off"},
                                   "group-based weight pipelining; off: all ranks are one group",
                                   has_one_node},
          {"dbs",
              {"on", "off"},
              "device-bound storage; off: shards travel on from group to group",
              passes_to_one_group},
          {"cco",
              {"on", "off"},
              "communication-computation overlap; off: a rank waits for weights that it sends "
              "to, or gets from, another group",
              has_one_node},
          {"prefetch",
              {"2", "1..8"},
              "ticks that a shard is sent ahead to another group",
              one_group},
          {"grad_ticks",
              {std::to_string(usual_grad_ticks), "1..8"},
              "ticks that a gradient has to leave its group, until computation needs its buffer "
              "again",
              ends_too_soon},
          {"shards",
              {"rank", "block"},
              "what is a shard: rank: all blocks of a rank, as published; block: each block, "
              "which is faster where blocks do not divide evenly among ranks",
              has_a_block_each},
          {"rails",
              {"auto", "1..64"},
              "ranks of a group that share a message to another group; auto: as many as each "
              "node has network "
              "adapters",
              shares_no_message}}),
      .build = make_tawpipe,
      .shards_per_rank = 1,
      .check = require_options_of_tawpipe,
      .settle = settle};
}
}  // namespace schedules
}  // namespace minitaw::schedule
