// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <ranges>
#include "base/error.hpp"
#include "schedule/passes.hpp"

namespace minitaw::schedule {
namespace {
using Where = Keeping::Where;

/// Owner rank of each shard: shards go round-robin over the groups that still have a rank with
/// fewer shards than the rest, and inside group k over its ranks, from rank k on. With n equal
/// groups this is rank (s mod D) n + (s div D + s mod D) mod n: TawPipe's device-bound storage, but
/// for the last term, by which no rank receives two shards in a row. With unequal groups too, every
/// rank owns as many shards as any other, give or take one.
std::vector<int> round_robin_owners(const topology::Groups& groups, int shards) {
  std::vector<int> owners;
  std::vector<int> owned(groups.count(), 0);
  while (static_cast<int>(owners.size()) < shards) {
    // One pass over the groups gives a shard to each that has a rank left in this round of one
    // shard a rank.
    const int round = static_cast<int>(owners.size()) / groups.ranks();
    for (int k = 0; k < groups.count() && static_cast<int>(owners.size()) < shards; ++k) {
      if (owned[k] >= (round + 1) * groups.size(k))
        continue;
      owners.push_back(groups.rank(k, (owned[k]++ + k) % groups.size(k)));
    }
  }
  return owners;
}

/// Ticks at which the group relay moves shards, relative to the tick that computes with them.
struct RelayTiming {
  int fetch_inter;  ///< ticks ahead that a shard is sent to another group (prefetch depth)
  int fetch_intra;  ///< ticks ahead that the group broadcasts
  int grad_ticks;   ///< ticks after B at which its gradient leaves, in the order of issue; as many
                    ///< buffers
};

/// Decides who sends each shard to whom, and returns its gradient.
///
/// Weights: the owner broadcasts inside its own group; for another group it sends to one rank
/// there, the group leader for this shard (same local index where it exists), which broadcasts.
/// Gradients go the same way back: reduced to the owner inside its group, else to the leader, which
/// sends the sum; the owner adds it to its accumulator. (arXiv 2511.09741, GWPS and DBS;
/// docs/schedules.md on the published rule.)
///
/// With rails > 1, a message between groups is divided into as many parts, or as many as both
/// groups have ranks. Each part goes from the rank of one group to the rank of the other with the
/// same local index: the owner scatters the parts in its group, the other group gathers them;
/// gradients come back likewise.
///
/// `groups` are the groups that share a shard's visit: the topology's groups, or without GWPS all
/// ranks or single ones. With dbs=off, a group takes shards from the group before it, which has
/// just used them.
///
/// What stays in a group is with its leaders for the shard, spread over its ranks as owned shards
/// are.
class GroupRelay {
public:
  GroupRelay(Builder& builder,
      const topology::Groups& groups,
      std::vector<int> owners,
      RelayTiming timing,
      int rails,
      bool passes_on,
      const Keeping& keeping)
      : builder_(builder),
        groups_(groups),
        owners_(std::move(owners)),
        timing_(timing),
        rails_(rails),
        passes_on_(passes_on),
        keeping_(keeping),
        weights_(groups.count()),
        copies_(groups.count()),
        sums_(groups.count()) {
    // One number of parts for all that a rank keeps.
    if (keeping.weights == Where::group || keeping.gradients == Where::group)
      for (const int size : groups.sizes())
        rails_ = std::min(rails_, size);
    for (int a = 0; a < groups.count(); ++a) {
      copies_[a].resize(builder.shards());
      sums_[a].resize(builder.shards());
      for (int b = 0; b < a; ++b)
        builder.cut_shards(parts(a, b));
      for (int i = 0; groups.count() > 1 && i < std::min(rails_, groups.size(a)); ++i)
        for (const auto& [where, cls] : {std::pair(keeping.weights, SlotClass::kept),
                 std::pair(keeping.gradients, SlotClass::partial)})
          if (where == Where::group)
            builder.keep_part(groups.rank(a, i), cls, {i, rails_});
    }
  }

  /// Returns the weights of the shard that a group fetched last, one buffer per member, in rank
  /// order.
  [[nodiscard]] const RankBuffers& weights(int group) const { return weights_[group]; }

  /// The shard's weights on every member of a group for a visit.
  void fetch(int group, const Visit& visit) {
    const int shard = visit.shard, tick = visit.tick - timing_.fetch_intra;
    RankBuffers &buffers = weights_[group], &copy = copies_[group][shard];
    if (keeping_.weights == Where::world || (!visit.backward() && !keeping_.all_step))
      copy.clear();
    const bool fetches = copy.empty();
    if (!fetches && keeping_.weights == Where::none) {
      buffers = copy;
      return;
    }
    buffers.clear();
    for (const int r : groups_.members(group)) {
      const VirtualBuffer kept = fetches ? VirtualBuffer{} : copy[groups_.local(r)];
      const bool ready = kept.valid() && kept.cls != SlotClass::kept;
      buffers.push_back(ready ? kept : weights_on(r, shard));
      if (kept.valid() && !ready)
        local(Kind::load, Payload::weights, r, shard, tick, kept, buffers.back());
    }
    if (fetches && !owns(group, shard))
      send_to(group, shard, visit.tick - timing_.fetch_inter);
    if (fetches && keeping_.weights != Where::world)
      copy = copy_of(group, shard, tick, buffers);
    inside(Payload::weights, group, shard, tick, buffers);
  }

  /// Returns the buffers to which each member's B writes the shard's gradient.
  [[nodiscard]] RankBuffers gradients(int group, int shard) {
    if (sums_on_ranks(group, shard))
      return sum_of(group, shard);
    if (alone(group) && owns(group, shard))
      return {builder_.accumulator(owners_[shard], shard)};
    return new_buffers(group, SlotClass::gradient);
  }

  /// Moves the gradients of a visit to the owner, or as far as each micro-batch's go; the `last`
  /// with all before.
  void return_gradients(
      int group, int shard, int tick, int owner_tick, RankBuffers gradients, bool last) {
    const int owner = owners_[shard];
    const std::vector<int> leaders = leaders_of(group, shard);
    if (sums_on_ranks(group, shard)) {
      if (!last)
        return;
      for (const int r : groups_.members(group)) {
        gradients[groups_.local(r)] = builder_.new_buffer(r, SlotClass::gradient);
        local(Kind::load,
            Payload::gradient,
            r,
            shard,
            tick,
            sum_of(group, shard)[groups_.local(r)],
            gradients[groups_.local(r)]);
      }
    }
    inside(Payload::gradient, group, shard, tick, gradients);
    if (owns(group, shard)) {
      // Right behind the reduction, in the same lane.
      if (!alone(group))
        add_to_accumulator(shard,
            tick,
            Phase::push_intra,
            Lane::gradients_group,
            {},
            gradients[groups_.local(owner)]);
      return;
    }
    if (keeping_.gradients == Where::group && !alone(group)) {
      const RankBuffers& sums = sum_of(group, shard);
      for (const int r : leaders)
        local(Kind::accumulate,
            Payload::gradient,
            r,
            shard,
            tick,
            gradients[groups_.local(r)],
            sums[groups_.local(r)]);
      if (!last)
        return;
      for (const int r : leaders)
        local(Kind::load,
            Payload::gradient,
            r,
            shard,
            tick,
            sums[groups_.local(r)],
            gradients[groups_.local(r)]);
    }
    const VirtualBuffer received = builder_.new_buffer(owner, SlotClass::contribution);
    // Behind the own group's sum, which no late message may hold up; not for longer than two ticks,
    // to save slots.
    const int added = owner_tick - tick <= 2 ? std::max(tick, owner_tick) : tick;
    for (int i = 0; i < static_cast<int>(leaders.size()); ++i) {
      const MessageContent content{
          Payload::gradient, shard, -1, {i, static_cast<int>(leaders.size())}};
      const int receiver = counterpart(content);
      const bool direct = receiver == owner;
      const VirtualBuffer passing =
          direct ? received : builder_.new_buffer(receiver, SlotClass::contribution);
      builder_.transfer(tick,
          Phase::push_inter,
          content,
          {leaders[i], gradients[groups_.local(leaders[i])]},
          {receiver, passing});
      if (!direct)
        builder_.transfer(tick, Phase::push_last, content, {receiver, passing}, {owner, received});
      add_to_accumulator(shard,
          added,
          direct ? Phase::push_inter : Phase::push_last,
          Lane::gradients_recv,
          content.part,
          received);
    }
  }

private:
  [[nodiscard]] bool owns(int group, int shard) const {
    return groups_.group_of(owners_[shard]) == group;
  }

  [[nodiscard]] bool alone(int group) const { return groups_.size(group) == 1; }

  /// Parts that a message between two groups is cut into.
  [[nodiscard]] int parts(int a, int b) const {
    return std::min({rails_, groups_.size(a), groups_.size(b)});
  }

  /// The ranks of a group that exchange a shard with other groups, one for each part of it: the
  /// owner in its own.
  [[nodiscard]] std::vector<int> leaders_of(int group, int shard) const {
    const int owner = owners_[shard], count = parts(group, groups_.group_of(owner));
    if (owns(group, shard))
      return {owner};
    if (count == 1)
      return {groups_.rank(group, groups_.local(owner) % groups_.size(group))};
    return list_of(std::views::iota(0, count), [&](int i) { return groups_.rank(group, i); });
  }

  RankBuffers new_buffers(int group, SlotClass cls) {
    return list_of(groups_.members(group), [&](int r) { return builder_.new_buffer(r, cls); });
  }

  /// The rank of the owner's group through which a part goes.
  [[nodiscard]] int counterpart(const MessageContent& content) const {
    const int owner = owners_[content.shard];
    return content.part.count == 1 ? owner
                                   : groups_.rank(groups_.group_of(owner), content.part.index);
  }

  /// Returns whether each rank sums its own gradients, where they are not the owner's at once.
  [[nodiscard]] bool sums_on_ranks(int group, int shard) const {
    return (keeping_.gradients == Where::none ||
               (keeping_.gradients == Where::group && alone(group))) &&
           !(alone(group) && owns(group, shard));
  }

  /// What stays of the shard in `buffers`: on every member, or with the leaders, each one's part
  /// once it is there.
  RankBuffers copy_of(int group, int shard, int tick, const RankBuffers& buffers) {
    if (keeping_.weights == Where::none)
      return buffers;
    RankBuffers copy(buffers.size());
    const std::vector<int> leaders = leaders_of(group, shard);
    for (const int r : leaders) {
      VirtualBuffer& kept = copy[groups_.local(r)] = buffers[groups_.local(r)];
      if (leaders.size() == 1)
        continue;
      kept = builder_.new_buffer(r, SlotClass::kept);
      local(Kind::load, Payload::weights, r, shard, tick, buffers[groups_.local(r)], kept);
    }
    return copy;
  }

  /// Sums of the shard's gradient in a group; those of its leaders, or of all members.
  const RankBuffers& sum_of(int group, int shard) {
    RankBuffers& sums = sums_[group][shard];
    if (sums.empty())
      sums = new_buffers(group, SlotClass::partial);
    return sums;
  }

  /// A copy or addition on a rank of the part that it keeps, beside the collectives of its group.
  void local(Kind kind,
      Payload payload,
      int rank,
      int shard,
      int tick,
      VirtualBuffer from,
      VirtualBuffer to) {
    const bool weights = payload == Payload::weights;
    const Part part = builder_.part(rank, weights ? SlotClass::kept : SlotClass::partial);
    Action a = make_action(kind, tick, payload, shard, part);
    a.lane = weights ? Lane::inputs_group : Lane::gradients_group;
    builder_.add(rank,
        weights ? Phase::fetch_intra : Phase::push_intra,
        a,
        {{Operand::source, from}, {Operand::destination, to}});
  }

  [[nodiscard]] VirtualBuffer weights_on(int rank, int shard) {
    return rank == owners_[shard] ? builder_.owned(rank, shard)
                                  : builder_.new_buffer(rank, SlotClass::weights);
  }

  /// Every part of a shard from another group to the leader for it.
  void send_to(int group, int shard, int tick) {
    const int owner = owners_[shard];
    const std::vector<int> leaders = leaders_of(group, shard);
    for (int i = 0; i < static_cast<int>(leaders.size()); ++i) {
      const MessageContent content{
          Payload::weights, shard, -1, {i, static_cast<int>(leaders.size())}};
      Builder::Endpoint from;
      if (passes_on_ && group > 0 && !owns(group - 1, shard)) {
        const int leader = leaders_of(group - 1, shard)[0];
        from = {leader, weights_[group - 1][groups_.local(leader)]};
      } else {
        const int sender = counterpart(content);
        from = {sender, weights_on(sender, shard)};
        if (sender != owner)
          builder_.transfer(
              tick, Phase::fetch_first, content, {owner, builder_.owned(owner, shard)}, from);
      }
      builder_.transfer(tick,
          Phase::fetch_inter,
          content,
          from,
          {leaders[i], weights_[group][groups_.local(leaders[i])]});
    }
  }

  /// Weights from the leaders of a group to all its members, or the sums of their gradients to the
  /// leaders.
  void inside(Payload payload, int group, int shard, int tick, const RankBuffers& buffers) {
    if (alone(group))
      return;
    const bool weights = payload == Payload::weights;
    const std::vector<int> leaders = leaders_of(group, shard);
    const int parts = static_cast<int>(leaders.size());
    const bool all_lead = parts == groups_.size(group);
    for (int i = 0; i < (all_lead ? 1 : parts); ++i) {
      Action a =
          make_action(weights ? Kind::broadcast : Kind::reduce, tick, payload, shard, {i, parts});
      a.peer = leaders[i];
      if (all_lead)
        a = make_action(weights ? Kind::all_gather : Kind::reduce_scatter, tick, payload, shard);
      builder_.collective(weights ? Phase::fetch_intra : Phase::push_intra,
          groups_.count() == 1 ? builder_.world() : builder_.group(group),
          a,
          buffers);
    }
  }

  void add_to_accumulator(
      int shard, int tick, Phase phase, Lane lane, Part part, VirtualBuffer gradient) {
    Action add = make_action(Kind::accumulate, tick, Payload::gradient, shard, part);
    add.lane = lane;
    builder_.add(owners_[shard],
        phase,
        add,
        {{Operand::source, gradient},
            {Operand::destination, builder_.accumulator(owners_[shard], shard)}});
  }

  Builder& builder_;
  const topology::Groups& groups_;
  std::vector<int> owners_;
  RelayTiming timing_;
  int rails_;
  bool passes_on_;
  Keeping keeping_;
  std::vector<RankBuffers> weights_;                     ///< by group and member
  std::vector<std::vector<RankBuffers>> copies_, sums_;  ///< by group, shard and member
};

RelayTiming timing(const Spec& spec) {
  return spec.value("cco") == "serial"
             ? RelayTiming{0, 0, 0}
             : RelayTiming{number_of(spec, "prefetch"), 1, number_of(spec, "grad_ticks")};
}

/// Returns whether a message between groups may be divided: only if the owner sends it, and to a
/// group.
bool may_share(const Spec& spec) {
  return !spec.options.contains("dbs") && !spec.options.contains("gwps");
}

/// rails=auto: a message uses as many adapters as a node has, and no more ranks than two groups
/// have both.
void settle(Request& request, int adapters) {
  auto& options = request.spec.options;
  if (!options.contains("rails") && may_share(request.spec)) {
    std::vector<int> sizes = groups_of_replica(request.groups, request.replicas).sizes();
    std::ranges::sort(sizes, std::ranges::greater());
    options["rails"] = std::to_string(sizes.size() < 2 ? 1 : std::clamp(adapters, 1, sizes[1]));
  }
  if (options.contains("rails") && options["rails"] == "1")
    options.erase("rails");
}

void require(const Request& request) {
  const auto& options = request.spec.options;
  if (options.contains("dbs") && options.contains("gwps"))
    throw InputError(
        "schedule: tawpipe:dbs=off passes shards from group to group, so it needs gwps=on");
  if (number_of(request.spec, "rails") > 1 && !may_share(request.spec))
    throw InputError("schedule: tawpipe with rails sends from the owner's group, so it needs "
                     "dbs=on and gwps=on");
}

/// TawPipe (arXiv 2511.09741): group k runs one tick behind group k-1, so that each group sends and
/// receives at most one weight shard per tick. Options away from their defaults: gwps=off (one
/// group of all ranks), gwps=direct (single ranks instead of groups, no stagger), dbs=off (a group
/// gets a shard from the group that has just used it), cco=off (a rank waits for its messages with
/// weights), cco=serial (no overlap of communication and computation), prefetch (ticks ahead
/// between groups), grad_ticks (ticks after which gradients leave their group), rails (see
/// GroupRelay).
Program make(const Request& request) {
  const auto& options = request.spec.options;
  const bool direct = request.spec.value("gwps") == "direct";
  const int ranks = request.ranks_of_replica();
  Builder builder(request, ranks);
  const topology::Groups groups = !options.contains("gwps")
                                      ? builder.groups()
                                      : topology::Groups::equal(ranks, direct ? ranks : 1);
  const std::vector<int> owners = round_robin_owners(groups, ranks);
  for (int s = 0; s < ranks; ++s)
    builder.own(owners[s], s);
  const RelayTiming when = timing(request.spec);
  GroupRelay relay(builder,
      groups,
      owners,
      when,
      number_of(request.spec, "rails"),
      options.contains("dbs"),
      keeping_of(request));
  std::vector<LockstepRanks> all;
  for (int k = 0; k < groups.count(); ++k)
    all.emplace_back(builder, groups.members(k), request.micro_batches_of_rank(), direct ? 0 : k);
  for (std::size_t i = 0; i < all[0].visits().size(); ++i)
    for (int k = 0; k < groups.count(); ++k) {
      const Visit& now = all[k].visits()[i];
      // At the turn from forward to backward, and back, the shard at hand is the one needed next.
      if (i == 0 || now.shard != all[k].visits()[i - 1].shard)
        relay.fetch(k, now);
      const RankBuffers gradients = now.backward() ? relay.gradients(k, now.shard) : RankBuffers();
      all[k].compute(i, relay.weights(k), gradients);
      const auto leaves = [&](int group) {
        return std::min(all[group].visits()[i].tick + when.grad_ticks, all[group].last_tick() + 1);
      };
      if (now.backward())
        relay.return_gradients(k,
            now.shard,
            leaves(k),
            leaves(groups.group_of(owners[now.shard])),
            gradients,
            i + 2 * static_cast<std::size_t>(ranks) >= all[k].visits().size());
    }
  return std::move(builder).finish(all.back().last_tick() + std::min(when.grad_ticks, 1),
      EmbeddingsUpdate::sliced,
      when.grad_ticks == 0      ? Overlap::none
      : options.contains("cco") ? Overlap::not_of_weights
                                : Overlap::full);
}
}  // namespace

namespace schedules {
Entry tawpipe() {
  return {.name = "tawpipe",
      .doc = "topology-aware grouped weight pipelining (arXiv 2511.09741)",
      .options = with_keeping(
          {{"gwps",
               {"on", "off", "direct"},
               "group-based weight pipelining; off: all ranks are one group; direct: every rank "
               "gets shards from their owners"},
              {"dbs",
                  {"on", "off"},
                  "device-bound storage; off: shards travel on from group to group"},
              {"cco",
                  {"on", "off", "serial"},
                  "communication-computation overlap; off: a rank waits for weights that it sends "
                  "to, or gets from, "
                  "another group; serial: transfers and computation take turns"},
              {"prefetch",
                  {"2", "1..8"},
                  "ticks ahead that a shard is sent to another group; cco=serial: none"},
              {"grad_ticks",
                  {"3", "1..8"},
                  "ticks that a gradient has to leave its group before computing needs its buffer "
                  "again"},
              {"rails",
                  {"auto", "1..64"},
                  "ranks of a group that share a message to another group; auto: as many as each "
                  "node has network "
                  "adapters"}}),
      .build = make,
      .shards_per_rank = 1,
      .check = require,
      .settle = settle};
}
}  // namespace schedules
}  // namespace minitaw::schedule
