// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <fmt/format.h>
#include "base/error.hpp"
#include "schedule/keeping.hpp"
#include "schedule/passes.hpp"

namespace minitaw::schedule {
namespace {
/// Gathers the parts of a shard on all ranks and scatters gradients; every rank owns one part of
/// each. On two levels, a rail of ranks, one of each group, exchanges parts first: one copy of
/// each run crosses to a group, where its ranks gather it.
class Sharding {
public:
  Sharding(Builder& builder, const Request& request)
      : builder_(builder),
        prefetch_(number_of(request.spec, "prefetch")),
        two_levels_(request.spec.options.contains("hierarchical") && builder.groups().count() > 1 &&
                    builder.groups().size(0) > 1),
        keeping_(in_groups(keeping_of(request))),
        kept_(builder, builder.everyone(), keeping_) {
    const Groups& groups = builder.groups();
    for (const int r : builder.everyone()) {
      // Ranks of one all-gather own neighbouring parts, so that they gather one run.
      const int part = two_levels_ ? groups.local(r) * groups.count() + groups.group_of(r) : r;
      builder.own_part(r, {part, builder.ranks()});
      for (int s = 0; s < builder.shards(); ++s)
        builder.own(r, s);
    }
    if (two_levels_)
      add_levels(groups);
    else
      outer_.push_back({"world", builder.everyone(), {}});
  }

  /// Returns the weights of a visit on every rank.
  RankBuffers gather(const Visit& visit) {
    const int shard = visit.shard, tick = visit.tick - prefetch_;
    if (builder_.ranks() == 1)
      return {builder_.owned(0, shard)};
    const Action load = make_action(Kind::load, tick, Payload::weights, shard);
    const Action gather = make_action(Kind::all_gather, tick, Payload::weights, shard);
    const bool divided = keeping_.weights == Holder::group;
    RankBuffers& copies = kept_.copies_for(visit);
    if (!copies.empty() && !divided)
      return copies;
    if (copies.empty()) {
      copies = new_buffers(divided ? SlotClass::kept : SlotClass::weights);
      local(Phase::fetch_first, load, builder_.owned(builder_.everyone(), shard), copies);
      call(Phase::fetch_inter, gather, outer_, copies);
    }
    RankBuffers whole = copies;
    if (divided) {
      whole = new_buffers(SlotClass::weights);
      local(Phase::fetch_intra, load, copies, whole);
    }
    call(Phase::fetch_intra, gather, inner_, whole);
    return whole;
  }

  /// Returns the buffers to which every rank's visit writes the shard's gradient.
  RankBuffers gradients(int shard) {
    if (builder_.ranks() == 1)
      return {builder_.accumulator(0, shard)};
    return keeping_.sums == Holder::rank ? kept_.sums_of(shard) : new_buffers(SlotClass::gradient);
  }

  /// Adds the gradient to the accumulators of the parts, or to the sums until the `last`
  /// micro-batch.
  void scatter(const Visit& visit, RankBuffers gradients, bool last) {
    const int shard = visit.shard, tick = visit.tick + 1;
    if (builder_.ranks() == 1 || (keeping_.sums == Holder::rank && !last))
      return;
    if (keeping_.sums == Holder::rank)
      gradients = kept_.load_sums(shard, tick, is_inside(two_levels_));
    const Action scatter = make_action(Kind::reduce_scatter, tick, Payload::gradient, shard);
    call(Phase::push_intra, scatter, inner_, gradients);
    if (keeping_.sums == Holder::group) {
      kept_.add_to_sums(builder_.everyone(), shard, tick, gradients, last);
      if (!last)
        return;
    }
    call(Phase::push_inter, scatter, outer_, gradients);
    local(Phase::push_last,
        make_action(Kind::accumulate, tick, Payload::gradient, shard),
        gradients,
        builder_.accumulators(builder_.everyone(), shard));
  }

private:
  /// A communicator that gathers or reduces a part of the shard.
  struct Leg {
    std::string name;
    Ranks ranks;
    Part part;
  };

  /// A group of one rank shares its copy with no one, a group of all ranks has the owners.
  Keeping in_groups(Keeping keeping) const {
    for (Holder* holder : {&keeping.weights, &keeping.sums})
      if (!two_levels_ && *holder == Holder::group)
        *holder = builder_.groups().count() > 1 ? Holder::rank : Holder::owner;
    return keeping;
  }

  void add_levels(const Groups& groups) {
    const int members = groups.size(0);
    for (int l = 0; l < members; ++l) {
      outer_.push_back({fmt::format("rail{}", l), {}, {l, members}});
      for (int k = 0; k < groups.count(); ++k)
        outer_.back().ranks.push_back(groups.rank(k, l));
    }
    for (int k = 0; k < groups.count(); ++k)
      inner_.push_back({fmt::format("group{}", k), groups.members(k), {}});
    for (const int r : builder_.everyone())
      kept_.divide(r, {groups.local(r), members});
  }

  void call(Phase phase, Action action, const std::vector<Leg>& legs, const RankBuffers& buffers) {
    for (const auto& [name, ranks, part] : legs) {
      action.part = part.index;
      action.parts = part.count;
      builder_.collective(phase,
          builder_.communicator(name, ranks),
          action,
          list_of(ranks, [&](int r) { return buffers[r]; }));
    }
  }

  /// Returns whether what happens on the inner level, or on the outer one, stays inside a group.
  bool is_inside(bool inner) const { return inner || builder_.groups().count() == 1; }

  /// Emits a load or an addition on every rank.
  void local(Phase phase, const Action& action, const RankBuffers& from, const RankBuffers& to) {
    for (const int r : builder_.everyone())
      builder_.local(r, phase, action, is_inside(phase == Phase::fetch_intra), from[r], to[r]);
  }

  RankBuffers new_buffers(SlotClass cls) { return builder_.new_buffers(builder_.everyone(), cls); }

  Builder& builder_;
  int prefetch_;
  bool two_levels_;
  Keeping keeping_;
  KeptBuffers kept_;
  std::vector<Leg> outer_, inner_;
};

void require_options_of_fsdp(const Request& request) {
  if (!request.spec.options.contains("hierarchical")) {
    for (const char* option : {"reshard", "reduce"})
      if (request.spec.value(option) == "group")
        throw InputError("schedule: fsdp:{}=group keeps a copy in each group, so it needs "
                         "hierarchical=on; or use {}=none",
            option,
            option);
    return;
  }
  const Groups groups = request.groups_of_replica();
  if (std::ranges::any_of(groups.sizes(), [&](int size) { return size != groups.size(0); }))
    throw InputError("groups: fsdp:hierarchical=on needs groups of equal size, not {}; "
                     "use fsdp, or equal groups",
        request.groups_text());
}

std::string has_one_level(const Request& request) {
  const bool alone = request.groups_of_replica().size(0) == 1;
  const bool keeps =
      request.spec.value("reshard") == "group" || request.spec.value("reduce") == "group";
  return alone && !keeps ? "each group is one rank" : one_group(request);
}

std::string has_one_layer(const Request& request) {
  return request.layers == 1 ? "there is one layer" : "";
}

/// Fully sharded data parallelism (ZeRO-3; Rajbhandari et al., SC'20): a block or some, gathered
/// for its forward and again for its backward visit, gradients scattered after each micro-batch,
/// but for what keeping_of() says.
Program make_fsdp(const Request& request) {
  const int unit = number_of(request.spec, "unit"), units = (request.layers + unit - 1) / unit;
  Builder builder(request, units);
  Sharding sharding(builder, request);
  LockstepRanks lockstep(builder, builder.everyone(), request.micro_batches_of_rank());
  for (const int i : indices(lockstep.visits())) {
    const Visit& now = lockstep.visits()[i];
    const RankBuffers weights = sharding.gather(now);
    const RankBuffers gradients = now.backward() ? sharding.gradients(now.shard) : RankBuffers();
    lockstep.compute(i, weights, gradients);
    if (now.backward())
      sharding.scatter(now, gradients, lockstep.is_last(now));
  }
  return std::move(builder).finish(lockstep.last_tick() + 1);
}
}  // namespace

namespace schedules {
Entry fsdp() {
  return {.name = "fsdp",
      .doc = "fully sharded data parallelism (ZeRO-3), a block at a time",
      .options = with_keeping({{"hierarchical",
                                   {"off", "on"},
                                   "weights cross once to each group and spread inside it; "
                                   "gradients take the same way back",
                                   has_one_level},
          {"prefetch",
              {"1", "0..8"},
              "units whose weights are gathered ahead; 0: computation waits for them",
              one_rank},
          {"unit",
              {"1", "1..64"},
              "blocks that are gathered and reduced together; units are of nearly equal cost: 16 "
              "blocks by 3 are four units of 3 and two of 2",
              has_one_layer}}),
      .build = make_fsdp,
      .check = require_options_of_fsdp};
}
}  // namespace schedules
}  // namespace minitaw::schedule
