// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <fmt/format.h>

#include "base/error.hpp"
#include "schedule/builder.hpp"
#include "schedule/passes.hpp"
#include "schedule/registry.hpp"

namespace minitaw::schedule {
namespace {
/// Gathers the slices of a shard on all ranks and scatters gradients; every rank keeps one slice. On two
/// levels, the ranks with the same place in their groups exchange their slices, so that one copy of each run
/// crosses; fan-out and reduction are inside groups.
class Sharding {
public:
  Sharding(Builder& builder, bool hierarchical, int prefetch) : builder_(builder), prefetch_(prefetch) {
    const topology::Groups& groups = builder.groups();
    const int members = groups.size(0);
    const bool two_levels = hierarchical && groups.count() > 1 && members > 1;
    builder.slice_owned(builder.ranks());
    for (const int r : builder.everyone()) {
      // Ranks of one all-gather keep neighbouring slices, so that they gather one run.
      builder.keep_slice(r, two_levels ? groups.local(r) * groups.count() + groups.group_of(r) : r);
      for (int s = 0; s < builder.shards(); ++s) builder.own(r, s);
    }
    if (!two_levels) {
      outer_.push_back({"world", builder.everyone(), {}});
      return;
    }
    for (int l = 0; l < members; ++l) {
      outer_.push_back({fmt::format("rail{}", l), {}, {l, members}});
      for (int k = 0; k < groups.count(); ++k) outer_.back().ranks.push_back(groups.rank(k, l));
    }
    for (int k = 0; k < groups.count(); ++k)
      inner_.push_back({fmt::format("group{}", k), groups.members(k), {}});
  }

  /// The whole shard on every rank for `tick`.
  std::vector<VirtualBuffer> gather(int shard, int tick) {
    if (builder_.ranks() == 1) return {builder_.owned(0, shard)};
    std::vector<VirtualBuffer> buffers;
    for (const int r : builder_.everyone()) {
      buffers.push_back(builder_.new_buffer(r, SlotClass::weights));
      local(Kind::load, tick - prefetch_, Phase::fetch_first, r, shard, builder_.owned(r, shard), buffers[r]);
    }
    call(Kind::all_gather, tick - prefetch_, Phase::fetch_inter, shard, outer_, buffers);
    call(Kind::all_gather, tick - prefetch_, Phase::fetch_intra, shard, inner_, buffers);
    return buffers;
  }

  std::vector<VirtualBuffer> gradients(int shard) {
    std::vector<VirtualBuffer> buffers;
    for (const int r : builder_.everyone())
      buffers.push_back(builder_.ranks() == 1 ? builder_.accumulator(r, shard)
                                              : builder_.new_buffer(r, SlotClass::gradient));
    return buffers;
  }

  /// Adds the sums of the gradients to the accumulators of the slices.
  void scatter(int shard, int tick, const std::vector<VirtualBuffer>& gradients) {
    if (builder_.ranks() == 1) return;
    call(Kind::reduce_scatter, tick + 1, Phase::push_intra, shard, inner_, gradients);
    call(Kind::reduce_scatter, tick + 1, Phase::push_inter, shard, outer_, gradients);
    for (const int r : builder_.everyone())
      local(Kind::accumulate, tick + 1, Phase::push_last, r, shard, gradients[r],
          builder_.accumulator(r, shard));
  }

private:
  /// A communicator that gathers or reduces a part of the shard.
  struct Leg {
    std::string name;
    std::vector<int> ranks;
    Part part;
  };

  void call(Kind kind, int tick, Phase phase, int shard, const std::vector<Leg>& legs,
      const std::vector<VirtualBuffer>& all) {
    const Payload payload = kind == Kind::all_gather ? Payload::weights : Payload::gradient;
    for (const Leg& leg : legs) {
      Action a = make_action(kind, tick, payload, shard, leg.part);
      a.communicator = builder_.communicator(leg.name, leg.ranks);
      std::vector<VirtualBuffer> buffers;
      for (const int r : leg.ranks) buffers.push_back(all[r]);
      builder_.collective(phase, a, buffers);
    }
  }

  /// Beside the outer leg, in its lane: between the slice that a rank keeps and the buffer of the whole.
  void local(Kind kind, int tick, Phase phase, int rank, int shard, VirtualBuffer from, VirtualBuffer to) {
    const bool loads = kind == Kind::load;
    Action a = make_action(
        kind, tick, loads ? Payload::weights : Payload::gradient, shard, builder_.owned_part(rank));
    a.lane =
        lane_of(loads ? Kind::all_gather : Kind::reduce_scatter, a.payload, builder_.groups().count() == 1);
    builder_.add(rank, phase, a, {{Operand::source, from}, {Operand::destination, to}});
  }

  Builder& builder_;
  int prefetch_;
  std::vector<Leg> outer_, inner_;
};

void require(const Request& request) {
  if (!request.spec.options.contains("hierarchical")) return;
  const topology::Groups groups = groups_of_replica(request.groups, request.replicas);
  if (std::ranges::any_of(groups.sizes(), [&](int size) { return size != groups.size(0); }))
    throw InputError(fmt::format("groups: fsdp:hierarchical=on needs groups of equal size, not {}; use "
                                 "fsdp, or equal groups",
        groups.text()));
}

/// Fully sharded data parallelism (ZeRO-3; Rajbhandari et al., SC'20): the unit is a block, gathered for its
/// forward and again for its backward visit, its gradient scattered after each micro-batch.
Program make(const Request& request) {
  Builder builder(request.groups, request.layers, request.micro_batches, request.replicas);
  Sharding sharding(
      builder, request.spec.options.contains("hierarchical"), number_of(request.spec, "prefetch"));
  LockstepRanks lockstep(builder, builder.everyone(), request.micro_batches_of_rank());
  for (std::size_t i = 0; i < lockstep.visits().size(); ++i) {
    const Visit& now = lockstep.visits()[i];
    const std::vector<VirtualBuffer> weights = sharding.gather(now.shard, now.tick);
    const std::vector<VirtualBuffer> gradients =
        now.backward() ? sharding.gradients(now.shard) : std::vector<VirtualBuffer>();
    lockstep.compute(i, weights, gradients);
    if (now.backward()) sharding.scatter(now.shard, now.tick, gradients);
  }
  return std::move(builder).finish(lockstep.last_tick() + 1, EmbeddingsUpdate::sliced);
}
}  // namespace

Entry schedules::fsdp() {
  return {.name = "fsdp",
      .doc = "fully sharded data parallelism (ZeRO-3), a block at a time",
      .options = {{"hierarchical", {"off", "on"},
                      "one copy crosses to each group; fan-out and reduction inside"},
          {"prefetch", {"1", "0..8"}, "blocks ahead that weights are gathered; 0: computing waits for them"}},
      .build = make,
      .check = require};
}
}  // namespace minitaw::schedule
