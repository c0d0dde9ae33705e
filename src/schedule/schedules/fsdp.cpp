#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "schedule/builder.hpp"
#include "schedule/registry.hpp"

namespace minitaw::schedule {
namespace {

/// One leg of a collective over all ranks: who takes part, and which part of the shard it is about.
struct Leg {
  std::string name;
  std::vector<int> ranks;
  Part part;
};

/// How the slices of a shard come together on all ranks, and gradients go apart: every rank keeps one slice.
class Sharding {
public:
  Sharding(Builder& builder, bool hierarchical, int prefetch)
      : builder_(builder), hierarchical_(hierarchical), prefetch_(prefetch) {
    builder.slice_owned(builder.ranks());
    builder.cut_shards(builder.ranks());
    for (int r = 0; r < builder.ranks(); ++r) {
      builder.keep_slice(r, slice_of(r));
      for (int s = 0; s < builder.shards(); ++s) builder.own(r, s);
    }
  }

  /// The whole shard on every rank for `tick`.
  std::vector<VirtualBuffer> gather(int shard, int tick) {
    if (builder_.ranks() == 1) return {builder_.owned(0, shard)};
    std::vector<VirtualBuffer> values;
    for (int r = 0; r < builder_.ranks(); ++r) {
      values.push_back(builder_.value(r, SlotClass::weights));
      local(Kind::load, tick - prefetch_, Phase::fetch_first, r, shard, builder_.owned(r, shard), values[r]);
    }
    for (const Leg& leg : outer())
      call(Kind::all_gather, tick - prefetch_, Phase::fetch_inter, shard, leg, values);
    for (const Leg& leg : inner())
      call(Kind::all_gather, tick - prefetch_, Phase::fetch_intra, shard, leg, values);
    return values;
  }

  /// Where the backward passes of a tick put the shard's gradient.
  std::vector<VirtualBuffer> gradients(int shard) {
    std::vector<VirtualBuffer> values;
    for (int r = 0; r < builder_.ranks(); ++r)
      values.push_back(builder_.ranks() == 1 ? builder_.accumulator(r, shard)
                                             : builder_.value(r, SlotClass::gradient));
    return values;
  }

  /// Adds the sums of those gradients to the totals of the slices.
  void scatter(int shard, int tick, const std::vector<VirtualBuffer>& gradients) {
    if (builder_.ranks() == 1) return;
    for (const Leg& leg : inner())
      call(Kind::reduce_scatter, tick + 1, Phase::give_intra, shard, leg, gradients);
    for (const Leg& leg : outer())
      call(Kind::reduce_scatter, tick + 1, Phase::give_inter, shard, leg, gradients);
    for (int r = 0; r < builder_.ranks(); ++r)
      local(Kind::accumulate, tick + 1, Phase::give_last, r, shard, gradients[r],
            builder_.accumulator(r, shard));
  }

private:
  [[nodiscard]] int members() const { return builder_.groups().size(0); }
  [[nodiscard]] bool two_levels() const {
    return hierarchical_ && builder_.groups().count() > 1 && members() > 1;
  }

  /// Two levels: the ranks with the same place in their groups keep neighbouring slices, so that what they
  /// gather is one run.
  [[nodiscard]] int slice_of(int rank) const {
    if (!two_levels()) return rank;
    return builder_.groups().local(rank) * builder_.groups().count() + builder_.groups().group_of(rank);
  }

  /// Between groups: one copy of each run crosses.
  [[nodiscard]] std::vector<Leg> outer() const {
    std::vector<Leg> legs;
    if (!two_levels()) return legs = {all()};
    for (int l = 0; l < members(); ++l) {
      legs.push_back({"rail" + std::to_string(l), {}, {l, members()}});
      for (int k = 0; k < builder_.groups().count(); ++k)
        legs.back().ranks.push_back(builder_.groups().rank(k, l));
    }
    return legs;
  }

  /// Inside groups: fan-out and reduction.
  [[nodiscard]] std::vector<Leg> inner() const {
    std::vector<Leg> legs;
    if (two_levels())
      for (int k = 0; k < builder_.groups().count(); ++k)
        legs.push_back({"group" + std::to_string(k), builder_.groups().members(k), {}});
    return legs;
  }

  [[nodiscard]] Leg all() const {
    Leg leg{"world", {}, {}};
    for (int r = 0; r < builder_.ranks(); ++r) leg.ranks.push_back(r);
    return leg;
  }

  [[nodiscard]] static Action action(Kind kind, int tick, int shard, Part part) {
    const bool gathers = kind == Kind::load || kind == Kind::all_gather;
    return make_action(kind, tick, gathers ? Payload::weights : Payload::gradient, shard, part);
  }

  void call(Kind kind, int tick, Phase phase, int shard, const Leg& leg,
            const std::vector<VirtualBuffer>& all) {
    Action a = action(kind, tick, shard, leg.part);
    a.communicator = builder_.communicator(leg.name, leg.ranks);
    std::vector<VirtualBuffer> values;
    for (const int r : leg.ranks) values.push_back(all[r]);
    builder_.collective(tick, phase, a, values);
  }

  /// Beside the outer leg, in its lane: between the slice that a rank keeps and the buffer of the whole.
  void local(Kind kind, int tick, Phase phase, int rank, int shard, VirtualBuffer from, VirtualBuffer to) {
    Action a = action(kind, tick, shard, builder_.owned_part(rank));
    a.lane = lane_of(kind == Kind::load ? Kind::all_gather : Kind::reduce_scatter, a.payload,
                     builder_.groups().count() == 1);
    builder_.add(rank, phase, a, {from, to});
  }

  Builder& builder_;
  bool hierarchical_;
  int prefetch_;
};

void require(const Request& request) {
  if (!request.spec.options.contains("hierarchical")) return;
  const topology::Groups groups = groups_of_copy(request.groups, request.replicas);
  if (std::ranges::any_of(groups.sizes(), [&](int size) { return size != groups.size(0); }))
    throw InputError(fmt::format("groups: fsdp:hierarchical=on needs groups of equal size, not {}; use "
                                 "fsdp, or equal groups",
                                 groups.text()));
}

/// Fully sharded data parallelism (ZeRO-3; Rajbhandari et al., SC'20): the unit is a block, gathered for its
/// forward and again for its backward visit, its gradient scattered after each micro-batch.
Program make(const Request& request) {
  Builder builder(request.groups, request.layers, request.micro_batches, request.replicas);
  Sharding sharding(builder, request.spec.options.contains("hierarchical"),
                    number_of(request.spec, "prefetch", 1));
  std::vector<Computer> computers;
  std::vector<std::vector<Visit>> visits;
  for (int r = 0; r < builder.ranks(); ++r) {
    computers.emplace_back(builder, r);
    visits.push_back(micro_batch_after_micro_batch(request.layers,
                                                   own_micro_batches(r, request.micro_batches_of_rank()), 0));
  }
  for (std::size_t i = 0; i < visits[0].size(); ++i) {
    const Visit& now = visits[0][i];
    const std::vector<VirtualBuffer> weights = sharding.gather(now.shard, now.tick);
    const std::vector<VirtualBuffer> gradients =
        now.backward ? sharding.gradients(now.shard) : std::vector<VirtualBuffer>();
    for (int r = 0; r < builder.ranks(); ++r)
      now.backward ? computers[r].backward(visits[r][i], weights[r], gradients[r])
                   : computers[r].forward(visits[r][i], weights[r]);
    if (now.backward) sharding.scatter(now.shard, now.tick, gradients);
  }
  add_epilogue(builder, visits[0].back().tick + 1, EmbeddingsUpdate::sliced);
  return std::move(builder).finish();
}

}  // namespace

Entry schedules::fsdp() {
  return {.name = "fsdp",
          .doc = "fully sharded data parallelism (ZeRO-3), a block at a time",
          .options = {{"hierarchical",
                       {"off", "on"},
                       "one copy crosses to each group; fan-out and reduction inside"},
                      {"prefetch",
                       {"1", "0..8"},
                       "blocks ahead that weights are gathered; 0: computing waits for them"}},
          .build = make,
          .check = require};
}

}  // namespace minitaw::schedule
