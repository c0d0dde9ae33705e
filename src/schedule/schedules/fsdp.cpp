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
  Sharding(Draft& draft, bool hierarchical, int prefetch)
      : draft_(draft), hierarchical_(hierarchical), prefetch_(prefetch) {
    draft.slice_homes(draft.ranks());
    draft.cut_shards(draft.ranks());
    for (int r = 0; r < draft.ranks(); ++r) {
      draft.keep_slice(r, slice_of(r));
      for (int s = 0; s < draft.shards(); ++s) draft.own(r, s);
    }
  }

  /// The whole shard on every rank for `tick`.
  std::vector<Value> gather(int shard, int tick) {
    if (draft_.ranks() == 1) return {draft_.home(0, shard)};
    std::vector<Value> values;
    for (int r = 0; r < draft_.ranks(); ++r) {
      values.push_back(draft_.value(r, SlotClass::weights));
      local(Kind::load, tick - prefetch_, Phase::fetch_first, r, shard, draft_.home(r, shard), values[r]);
    }
    for (const Leg& leg : outer())
      call(Kind::all_gather, tick - prefetch_, Phase::fetch_inter, shard, leg, values);
    for (const Leg& leg : inner())
      call(Kind::all_gather, tick - prefetch_, Phase::fetch_intra, shard, leg, values);
    return values;
  }

  /// Where the backward passes of a tick put the shard's gradient.
  std::vector<Value> gradients(int shard) {
    std::vector<Value> values;
    for (int r = 0; r < draft_.ranks(); ++r)
      values.push_back(draft_.ranks() == 1 ? draft_.total(r, shard) : draft_.value(r, SlotClass::gradient));
    return values;
  }

  /// Adds the sums of those gradients to the totals of the slices.
  void scatter(int shard, int tick, const std::vector<Value>& gradients) {
    if (draft_.ranks() == 1) return;
    for (const Leg& leg : inner())
      call(Kind::reduce_scatter, tick + 1, Phase::give_intra, shard, leg, gradients);
    for (const Leg& leg : outer())
      call(Kind::reduce_scatter, tick + 1, Phase::give_inter, shard, leg, gradients);
    for (int r = 0; r < draft_.ranks(); ++r)
      local(Kind::accumulate, tick + 1, Phase::give_last, r, shard, gradients[r], draft_.total(r, shard));
  }

private:
  [[nodiscard]] int members() const { return draft_.groups().size(0); }
  [[nodiscard]] bool two_levels() const {
    return hierarchical_ && draft_.groups().count() > 1 && members() > 1;
  }

  /// Two levels: the ranks with the same place in their groups keep neighbouring slices, so that what they
  /// gather is one run.
  [[nodiscard]] int slice_of(int rank) const {
    if (!two_levels()) return rank;
    return draft_.groups().local(rank) * draft_.groups().count() + draft_.groups().group_of(rank);
  }

  /// Between groups: one copy of each run crosses.
  [[nodiscard]] std::vector<Leg> outer() const {
    std::vector<Leg> legs;
    if (!two_levels()) return legs = {all()};
    for (int l = 0; l < members(); ++l) {
      legs.push_back({"rail" + std::to_string(l), {}, {l, members()}});
      for (int k = 0; k < draft_.groups().count(); ++k)
        legs.back().ranks.push_back(draft_.groups().rank(k, l));
    }
    return legs;
  }

  /// Inside groups: fan-out and reduction.
  [[nodiscard]] std::vector<Leg> inner() const {
    std::vector<Leg> legs;
    if (two_levels())
      for (int k = 0; k < draft_.groups().count(); ++k)
        legs.push_back({"group" + std::to_string(k), draft_.groups().members(k), {}});
    return legs;
  }

  [[nodiscard]] Leg all() const {
    Leg leg{"world", {}, {}};
    for (int r = 0; r < draft_.ranks(); ++r) leg.ranks.push_back(r);
    return leg;
  }

  [[nodiscard]] static Action action(Kind kind, int tick, int shard, Part part) {
    const bool gathers = kind == Kind::load || kind == Kind::all_gather;
    return make_action(kind, tick, gathers ? Payload::weights : Payload::gradient, shard, part);
  }

  void call(Kind kind, int tick, Phase phase, int shard, const Leg& leg, const std::vector<Value>& all) {
    Action a = action(kind, tick, shard, leg.part);
    a.communicator = draft_.communicator(leg.name, leg.ranks);
    std::vector<Value> values;
    for (const int r : leg.ranks) values.push_back(all[r]);
    draft_.collective(tick, phase, a, values);
  }

  /// Beside the outer leg, in its lane: between the slice that a rank keeps and the buffer of the whole.
  void local(Kind kind, int tick, Phase phase, int rank, int shard, Value from, Value to) {
    Action a = action(kind, tick, shard, draft_.home_part(rank));
    a.lane = lane_of(kind == Kind::load ? Kind::all_gather : Kind::reduce_scatter, a.payload,
                     draft_.groups().count() == 1);
    draft_.add(rank, phase, a, {from, to});
  }

  Draft& draft_;
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
  Draft draft(request.groups, request.layers, request.micro_batches, request.replicas);
  Sharding sharding(draft, request.spec.options.contains("hierarchical"),
                    number_of(request.spec, "prefetch", 1));
  std::vector<Computer> computers;
  std::vector<std::vector<Visit>> visits;
  for (int r = 0; r < draft.ranks(); ++r) {
    computers.emplace_back(draft, r);
    visits.push_back(micro_batch_after_micro_batch(request.layers,
                                                   own_micro_batches(r, request.micro_batches_of_rank()), 0));
  }
  for (std::size_t i = 0; i < visits[0].size(); ++i) {
    const Visit& now = visits[0][i];
    const std::vector<Value> weights = sharding.gather(now.shard, now.tick);
    const std::vector<Value> gradients = now.backward ? sharding.gradients(now.shard) : std::vector<Value>();
    for (int r = 0; r < draft.ranks(); ++r)
      now.backward ? computers[r].backward(visits[r][i], weights[r], gradients[r])
                   : computers[r].forward(visits[r][i], weights[r]);
    if (now.backward) sharding.scatter(now.shard, now.tick, gradients);
  }
  close_step(draft, visits[0].back().tick + 1, EndsUpdate::sliced);
  return std::move(draft).finish();
}

}  // namespace

Entry schedules::fsdp() {
  return {.name = "fsdp",
          .doc = "fully sharded data parallelism (ZeRO-3), a block at a time",
          .options = {{"hierarchical",
                       {"off", "on"},
                       "one copy crosses to each group; fan-out and reduction inside"},
                      prefetch_option("1")},
          .build = make,
          .check = require};
}

}  // namespace minitaw::schedule
