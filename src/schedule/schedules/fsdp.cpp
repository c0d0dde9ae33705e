// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <fmt/format.h>
#include "base/error.hpp"
#include "schedule/passes.hpp"

namespace minitaw::schedule {
namespace {
using Where = Keeping::Where;

/// Gathers the slices of a shard on all ranks and scatters gradients; every rank owns one. On two
/// levels, ranks with the same place in their groups exchange slices: one copy of each run crosses.
/// Copies are `kept` and `partial`.
class Sharding {
public:
  Sharding(Builder& builder, bool hierarchical, int prefetch, const Keeping& keeping)
      : builder_(builder),
        prefetch_(prefetch),
        keeping_(keeping),
        copies_(builder.shards()),
        sums_(builder.shards()) {
    const topology::Groups& groups = builder.groups();
    const int members = groups.size(0);
    const bool two_levels = hierarchical && groups.count() > 1 && members > 1;
    builder.slice_owned(builder.ranks());
    for (const int r : builder.everyone()) {
      // Ranks of one all-gather keep neighbouring slices, so that they gather one run.
      builder.keep_slice(r, two_levels ? groups.local(r) * groups.count() + groups.group_of(r) : r);
      for (int s = 0; s < builder.shards(); ++s)
        builder.own(r, s);
    }
    if (!two_levels) {
      outer_.push_back({"world", builder.everyone(), {}});
      // A group of one rank shares its copy with nobody, a group of all ranks has the owners.
      const Where alike = groups.count() > 1 ? Where::none : Where::world;
      if (keeping_.weights == Where::group)
        keeping_.weights = alike;
      if (keeping_.gradients == Where::group)
        keeping_.gradients = alike;
      return;
    }
    for (int l = 0; l < members; ++l) {
      outer_.push_back({fmt::format("rail{}", l), {}, {l, members}});
      for (int k = 0; k < groups.count(); ++k)
        outer_.back().ranks.push_back(groups.rank(k, l));
    }
    for (int k = 0; k < groups.count(); ++k)
      inner_.push_back({fmt::format("group{}", k), groups.members(k), {}});
    for (const int r : builder.everyone()) {
      if (keeping_.weights == Where::group)
        builder.keep_part(r, SlotClass::kept, {groups.local(r), members});
      if (keeping_.gradients == Where::group)
        builder.keep_part(r, SlotClass::partial, {groups.local(r), members});
    }
  }

  RankBuffers gather(const Visit& visit) {
    const int shard = visit.shard, tick = visit.tick - prefetch_;
    if (builder_.ranks() == 1)
      return {builder_.owned(0, shard)};
    RankBuffers& copy = copies_[shard];
    if (keeping_.weights == Where::world || (!visit.backward() && !keeping_.all_step))
      copy.clear();
    const bool fetches = copy.empty(), shares = keeping_.weights == Where::group;
    if (fetches) {
      copy = buffers(shares ? SlotClass::kept : SlotClass::weights);
      const RankBuffers owned =
          list_of(builder_.everyone(), [&](int r) { return builder_.owned(r, shard); });
      local(Kind::load, tick, Phase::fetch_first, shard, SlotClass::owned, outer_side, owned, copy);
      call(Kind::all_gather, tick, Phase::fetch_inter, shard, outer_, copy);
    }
    if (!shares && !fetches)
      return copy;
    const RankBuffers whole = shares ? buffers(SlotClass::weights) : copy;
    if (shares)
      local(Kind::load, tick, Phase::fetch_intra, shard, SlotClass::kept, inner_side, copy, whole);
    call(Kind::all_gather, tick, Phase::fetch_intra, shard, inner_, whole);
    return whole;
  }

  RankBuffers gradients(int shard) {
    if (builder_.ranks() == 1)
      return {builder_.accumulator(0, shard)};
    return keeping_.gradients == Where::none ? sum_of(shard) : buffers(SlotClass::gradient);
  }

  /// Adds the gradient to the accumulators of the slices, or to the sums of the last micro-batch's
  /// visit.
  void scatter(const Visit& visit, RankBuffers gradients, bool last) {
    const int shard = visit.shard, tick = visit.tick + 1;
    if (builder_.ranks() == 1 || (keeping_.gradients == Where::none && !last))
      return;
    if (keeping_.gradients == Where::none) {
      gradients = buffers(SlotClass::gradient);
      local(Kind::load,
          tick,
          Phase::push_intra,
          shard,
          SlotClass::partial,
          inner_.empty() ? outer_side : inner_side,
          sum_of(shard),
          gradients);
    }
    call(Kind::reduce_scatter, tick, Phase::push_intra, shard, inner_, gradients);
    if (keeping_.gradients == Where::group) {
      local(Kind::accumulate,
          tick,
          Phase::push_intra,
          shard,
          SlotClass::partial,
          inner_side,
          gradients,
          sum_of(shard));
      if (!last)
        return;
      local(Kind::load,
          tick,
          Phase::push_intra,
          shard,
          SlotClass::partial,
          inner_side,
          sum_of(shard),
          gradients);
    }
    call(Kind::reduce_scatter, tick, Phase::push_inter, shard, outer_, gradients);
    const RankBuffers owned =
        list_of(builder_.everyone(), [&](int r) { return builder_.accumulator(r, shard); });
    local(Kind::accumulate,
        tick,
        Phase::push_last,
        shard,
        SlotClass::owned,
        outer_side,
        gradients,
        owned);
  }

private:
  /// A communicator that gathers or reduces a part of the shard.
  struct Leg {
    std::string name;
    std::vector<int> ranks;
    Part part;
  };

  void call(Kind kind,
      int tick,
      Phase phase,
      int shard,
      const std::vector<Leg>& legs,
      const RankBuffers& all) {
    const Payload payload = kind == Kind::all_gather ? Payload::weights : Payload::gradient;
    for (const Leg& leg : legs)
      builder_.collective(phase,
          builder_.communicator(leg.name, leg.ranks),
          make_action(kind, tick, payload, shard, leg.part),
          list_of(leg.ranks, [&](int r) { return all[r]; }));
  }

  enum Side { outer_side, inner_side };

  /// A copy or addition on every rank of what its slots of `cls` hold, in the lane of the leg
  /// beside it.
  void local(Kind kind,
      int tick,
      Phase phase,
      int shard,
      SlotClass cls,
      Side side,
      const RankBuffers& from,
      const RankBuffers& to) {
    const bool weights = from[0].cls == SlotClass::owned || from[0].cls == SlotClass::kept;
    const bool inside = side == inner_side || builder_.groups().count() == 1;
    for (const int r : builder_.everyone()) {
      Action a = make_action(
          kind, tick, weights ? Payload::weights : Payload::gradient, shard, builder_.part(r, cls));
      a.lane = lane_of(weights ? Kind::all_gather : Kind::reduce_scatter, a.payload, inside);
      builder_.add(r, phase, a, {{Operand::source, from[r]}, {Operand::destination, to[r]}});
    }
  }

  RankBuffers buffers(SlotClass cls) {
    return list_of(builder_.everyone(), [&](int r) { return builder_.new_buffer(r, cls); });
  }

  const RankBuffers& sum_of(int shard) {
    if (sums_[shard].empty())
      sums_[shard] = buffers(SlotClass::partial);
    return sums_[shard];
  }

  Builder& builder_;
  int prefetch_;
  Keeping keeping_;
  std::vector<Leg> outer_, inner_;
  std::vector<RankBuffers> copies_, sums_;  ///< by shard and rank, while they are there
};

void require(const Request& request) {
  if (!request.spec.options.contains("hierarchical")) {
    for (const char* option : {"reshard", "reduce"})
      if (request.spec.value(option) == "group")
        throw InputError(
            fmt::format("schedule: fsdp:{}=group keeps a copy in each group, so it needs "
                        "hierarchical=on; or use {}=none",
                option,
                option));
    return;
  }
  const topology::Groups groups = groups_of_replica(request.groups, request.replicas);
  if (std::ranges::any_of(groups.sizes(), [&](int size) { return size != groups.size(0); }))
    throw InputError(fmt::format("groups: fsdp:hierarchical=on needs groups of equal size, not {}; "
                                 "use fsdp, or equal groups",
        groups.text()));
}

/// Fully sharded data parallelism (ZeRO-3; Rajbhandari et al., SC'20): a block or some, gathered
/// for its forward and again for its backward visit, gradients scattered after each micro-batch,
/// but for what keeping_of() says.
Program make(const Request& request) {
  const int unit = number_of(request.spec, "unit"), units = (request.layers + unit - 1) / unit;
  Builder builder(request, units);
  Sharding sharding(builder,
      request.spec.options.contains("hierarchical"),
      number_of(request.spec, "prefetch"),
      keeping_of(request));
  LockstepRanks lockstep(builder, builder.everyone(), request.micro_batches_of_rank());
  for (std::size_t i = 0; i < lockstep.visits().size(); ++i) {
    const Visit& now = lockstep.visits()[i];
    const bool last = i + 2 * static_cast<std::size_t>(units) >=
                      lockstep.visits().size();  // micro-batch of the step
    const RankBuffers weights = sharding.gather(now);
    const RankBuffers gradients = now.backward() ? sharding.gradients(now.shard) : RankBuffers();
    lockstep.compute(i, weights, gradients);
    if (now.backward())
      sharding.scatter(now, gradients, last);
  }
  return std::move(builder).finish(lockstep.last_tick() + 1, EmbeddingsUpdate::sliced);
}
}  // namespace

namespace schedules {
Entry fsdp() {
  return {.name = "fsdp",
      .doc = "fully sharded data parallelism (ZeRO-3), a block at a time",
      .options = with_keeping({{"hierarchical",
                                   {"off", "on"},
                                   "one copy crosses to each group; fan-out and reduction inside"},
          {"prefetch",
              {"1", "0..8"},
              "units ahead that weights are gathered; 0: computing waits for them"},
          {"unit",
              {"1", "1..64"},
              "blocks that are gathered and reduced together; units cost alike: 16 by 3 are four "
              "of 3 and two of 2"}}),
      .build = make,
      .check = require};
}
}  // namespace schedules
}  // namespace minitaw::schedule
