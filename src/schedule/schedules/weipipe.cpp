// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/visits.hpp"

namespace minitaw::schedule {
namespace {
int wrapped(int value, int ranks) {
  return ((value % ranks) + ranks) % ranks;
}

/// One buffer of each rank, which goes from rank r to rank r + 1.
struct Ring {
  Builder& builder;
  Payload payload;
  SlotClass cls;
  RankBuffers at = RankBuffers(builder.ranks());

  /// Every rank sends the shard shard_of(rank) to the next rank.
  void turn(int tick, Phase phase, const auto& shard_of) {
    move(tick, phase, shard_of, [&](int r) { return (r + 1) % builder.ranks(); });
  }

  /// Every rank sends the shard shard_of(rank) to the rank to_of(rank).
  void move(int tick, Phase phase, const auto& shard_of, const auto& to_of) {
    const RankBuffers sent = at;
    for (const int r : builder.everyone()) {
      const int to = to_of(r);
      at[to] = to == r ? sent[r] : builder.new_buffer(to, cls);
      if (to != r)
        builder.transfer(
            phase, make_action(Kind::send, tick, payload, shard_of(r)), {r, sent[r]}, {to, at[to]});
    }
  }
};

/// Position i of the forward ring puts shard (i - r) mod P on rank r, j of the backward ring (P - 1
/// - j + r) mod P.
class WeiPipe {
public:
  WeiPipe(Builder& builder, int per_rank)
      : builder_(builder),
        ranks_(builder.ranks()),
        per_rank_(per_rank),
        forward_{builder, Payload::weights, SlotClass::weights},
        backward_{builder, Payload::weights, SlotClass::weights},
        gradients_{builder, Payload::gradient, SlotClass::gradient} {
    for (int r = 0; r < ranks_; ++r) {
      builder.own(r, owned_by(r));
      emitters_.emplace_back(builder, std::vector{r});
    }
  }

  /// Emits all turns, one a tick; returns the last tick. The rings turn by turns once the first
  /// rank has been through all shards: its backward visit of the last one follows the forward
  /// visit.
  int run() {
    const int turns = (per_rank_ + 1) * ranks_ - 1;
    int tick = -1;
    for (int i = 0; i < turns + ranks_ - 1; ++i) {
      if (i < turns)
        turn_forward(i, ++tick, i + 1 == turns);
      if (const int j = i - ranks_ + 1; j >= 0)
        turn_backward(j, ++tick, j + 1 == turns);
    }
    return tick;
  }

private:
  int owned_by(int rank) const { return wrapped(-rank, ranks_); }

  int forward_shard(int rank, int i) const { return wrapped(i - rank, ranks_); }

  int backward_shard(int rank, int j) const { return wrapped(ranks_ - 1 - j + rank, ranks_); }

  /// Emits the visit of a rank that is `since` positions into its work; nothing while the ring
  /// turns for others.
  void visit(int rank,
      int since,
      int tick,
      int shard,
      Kind kind,
      VirtualBuffer weights,
      VirtualBuffer gradient) {
    const int micro_batch = rank * per_rank_ + since / ranks_;
    const bool adds = kind == Kind::backward;  // the ring brings the gradient of other ranks
    if (since >= 0 && since < per_rank_ * ranks_)
      emitters_[rank].visit({tick, shard, micro_batch, kind}, {weights}, {gradient}, adds);
  }

  /// Positions of the forward ring that are multiples of P find every shard with its owner.
  void turn_forward(int i, int tick, bool last) {
    for (int r = 0; r < ranks_; ++r) {
      const int shard = forward_shard(r, i);
      if (i % ranks_ == 0)
        forward_.at[r] = builder_.owned(r, shard);
      visit(r, i - r, tick, shard, Kind::forward, forward_.at[r], {});
    }
    if (i == ranks_ - 1)
      fork(tick);
    if (!last && i % ranks_ != ranks_ - 1)
      forward_.turn(tick, Phase::fetch_inter, [&](int r) { return forward_shard(r, i); });
  }

  /// The backward ring starts with what the forward ring holds, after one swap of r and P - r.
  void fork(int tick) {
    for (int r = 0; r < ranks_; ++r) {
      backward_.at[r] = forward_.at[r];
      gradients_.at[r] = builder_.new_buffer(r, SlotClass::gradient);
      builder_.add(r,
          Phase::push_intra,
          make_action(Kind::zero, tick, Payload::gradient, backward_shard(r, 0)),
          {{Operand::gradient, gradients_.at[r]}});
    }
    backward_.move(
        tick,
        Phase::fetch_inter,
        [&](int r) { return forward_shard(r, ranks_ - 1); },
        [&](int r) { return (ranks_ - r) % ranks_; });
  }

  void turn_backward(int j, int tick, bool last) {
    const auto shard_of = [&](int r) { return backward_shard(r, j); };
    for (int r = 0; r < ranks_; ++r)
      visit(r, j - r, tick, shard_of(r), Kind::backward, backward_.at[r], gradients_.at[r]);
    if (last)
      return return_gradients(tick, shard_of);
    backward_.turn(tick, Phase::fetch_inter, shard_of);
    gradients_.turn(tick, Phase::push_inter, shard_of);
  }

  /// The last hop takes every gradient to its owner.
  void return_gradients(int tick, const auto& shard_of) {
    gradients_.move(
        tick, Phase::push_inter, shard_of, [&](int r) { return wrapped(-shard_of(r), ranks_); });
    for (int r = 0; r < ranks_; ++r) {
      const Action add = make_action(Kind::accumulate, tick, Payload::gradient, owned_by(r));
      builder_.local(
          r, Phase::push_last, add, false, gradients_.at[r], builder_.accumulator(r, add.shard));
    }
  }

  Builder& builder_;
  int ranks_, per_rank_;
  Ring forward_, backward_, gradients_;
  std::vector<ComputeEmitter> emitters_;
};

/// WeiPipe (Lin et al., PPoPP 2025, DOI 10.1145/3710848.3710869): rank r owns shard -r mod P;
/// weights for forward and for backward visits go round in two rings and gradients in a third, a
/// rank per tick. Interleaved: backward visits of a micro-batch alternate with forward visits of
/// the next. Corrected: docs/schedules.md.
Program make_weipipe(const Request& request) {
  Builder builder(request, request.ranks_of_replica());
  const int last_tick = WeiPipe(builder, request.micro_batches_of_rank()).run();
  return std::move(builder).finish(last_tick + 1);
}
}  // namespace

namespace schedules {
Entry weipipe() {
  return {.name = "weipipe",
      .doc = "weights and gradients in rings over all ranks (WeiPipe, PPoPP 2025)",
      .build = make_weipipe,
      .shards_per_rank = 1,
      .refuses_context =
          "weipipe passes each shard from rank to rank, a tick later each, and ranks "
          "that share a sequence need it at once"};
}
}  // namespace schedules
}  // namespace minitaw::schedule
