// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <utility>
#include "schedule/builder.hpp"

/// Visits of shards, and the compute actions that they are made of.
namespace minitaw::schedule {
/// One visit of a shard with one micro-batch: F, BW, B or W. A schedule first chooses their order.
struct Visit {
  int tick = 0, shard = 0;
  int micro_batch = 0;  ///< or a slice of one, as in Action
  Kind kind = Kind::forward;

  bool backward() const { return kind != Kind::forward; }
};

/// Emits the compute actions of a context group, or of one rank, with embedding and loss. Keeps the
/// buffers that visits hand on. Of each kind of buffer there is one for every rank.
class ComputeEmitter {
  using enum Operand;

public:
  ComputeEmitter(Builder& builder, Ranks ranks) : builder_(builder), ranks_(std::move(ranks)) {}

  const Ranks& ranks() const { return ranks_; }

  /// Emits the visit: F after embed on shard 0 and before loss on the last one, BW or B before
  /// dembed on shard 0. W takes no weights; F and B give no gradient. BW and W write the gradient
  /// or add to it, to an accumulator always.
  void visit(const Visit& v,
      const RankBuffers& of_weights,
      const RankBuffers& of_gradient = {},
      bool accumulates = false) {
    const bool begins = v.shard == 0, ends = v.shard == builder_.shards() - 1;
    RankBuffers& state = hidden_states_[v.micro_batch];
    Left& left = left_[{v.micro_batch, v.shard}];
    if (v.kind == Kind::forward && begins)
      state = builder_.new_buffers(ranks_, SlotClass::hidden);
    if (v.kind == Kind::forward)
      left.saved = builder_.new_buffers(ranks_, SlotClass::saved);
    if (v.kind == Kind::backward_input)
      left.deferred = builder_.new_buffers(ranks_, SlotClass::deferred);

    const auto action_of = [&](Kind kind, int shard = -1) {
      Action action = make_action(kind, v.tick, Payload::none, shard);
      action.micro_batch = v.micro_batch;
      return action;
    };
    const auto all = [&](VirtualBuffer each) { return RankBuffers(ranks_.size(), each); };
    const Arguments of_ends = {
        {weights, all(all_embeddings)}, {hidden, state}, {gradient, all(all_embeddings_gradient)}};
    if (v.kind == Kind::forward && begins)
      add(action_of(Kind::embed), of_ends);
    Action visit = action_of(v.kind, v.shard);
    visit.accumulates = accumulates;
    const int slice = v.micro_batch % builder_.slices();
    const int first = v.backward() ? builder_.slices() - 1 : 0;
    visit.extends = v.kind != Kind::backward_weight && slice != first;
    const Prefix prefix = prefix_of(v, slice == first);
    emit(visit,
        {{weights, of_weights},
            {saved, left.saved},
            {hidden, state},
            {deferred, left.deferred},
            {keys, prefix.keys},
            {key_gradient, prefix.gradient},
            {gradient, v.kind == Kind::backward_input ? RankBuffers() : of_gradient}});
    if (v.kind == Kind::forward && ends)
      add(action_of(Kind::loss), of_ends);
    if ((v.kind == Kind::backward || v.kind == Kind::backward_input) && begins)
      add(action_of(Kind::embed_backward), of_ends);
    if (v.kind == Kind::backward || v.kind == Kind::backward_weight)
      left_.erase({v.micro_batch, v.shard});
    if (visit.extends && slice == 0)
      prefixes_.erase({v.micro_batch / builder_.slices(), v.shard});
  }

  /// The hidden state of a micro-batch, or its gradient. Set it if the first visit is not of shard
  /// 0.
  RankBuffers& hidden_state(int micro_batch) { return hidden_states_[micro_batch]; }

private:
  /// Buffers that a visit leaves to later ones of the same shard and micro-batch: F, and B for W.
  struct Left {
    RankBuffers saved, deferred;
  };

  /// Keys and values of all slices of a micro-batch on a shard, and their gradient.
  struct Prefix {
    RankBuffers keys, gradient;
  };

  using Arguments = std::map<Operand, RankBuffers>;  ///< empty ones: none

  /// Emits an action of every rank with those of the arguments that its kind uses.
  void add(const Action& action, const Arguments& arguments) {
    for (const int r : indices(ranks_)) {
      std::vector<Builder::Argument> used;
      for (const Use& use : operands_of(action))
        if (const auto at = arguments.find(use.operand);
            at != arguments.end() && !at->second.empty())
          used.push_back({use.operand, at->second[r]});
      builder_.add(ranks_[r], Phase::compute, action, used);
    }
  }

  /// Gives a visit of a slice its buffers; none without slices. The first slice in its direction
  /// begins them.
  Prefix prefix_of(const Visit& visit, bool begins) {
    if (builder_.slices() == 1 || visit.kind == Kind::backward_weight)
      return {};
    const std::pair<int, int> key{visit.micro_batch / builder_.slices(), visit.shard};
    Prefix& prefix = prefixes_[key];
    if (begins && visit.backward())
      prefix.gradient = builder_.new_buffers(ranks_, SlotClass::prefix_gradient);
    else if (begins)
      prefix.keys = builder_.new_buffers(ranks_, SlotClass::prefix);
    return prefix;
  }

  /// Emits a visit as one action, or where ranks share sequences as segments of each block, with
  /// the collectives between them.
  void emit(const Action& visit, const Arguments& arguments) {
    if (builder_.context() == 1 || visit.kind == Kind::backward_weight)
      add(visit, arguments);
    else if (visit.kind == Kind::forward)
      forward_segments(visit, arguments);
    else
      backward_segments(visit, arguments);
  }

  void forward_segments(Action action, Arguments arguments) {
    const RankBuffers prefix = arguments[keys];
    bool extends = std::exchange(action.extends, false);
    const int blocks = builder_.blocks(action.shard);
    for (action.block = 0; action.block < blocks; ++action.block) {
      project(action, arguments);
      const RankBuffers gathered = arguments[keys];
      if (!prefix.empty())
        arguments[keys] = prefix;
      Action part = action;
      part.parts = builder_.key_parts();
      for (part.part = 0; part.part < part.parts; ++part.part) {
        if (!prefix.empty()) {
          part.segment = Segment::extend;
          part.extends = std::exchange(extends, true);
          add(part, {{source, gathered}, {keys, prefix}});
          part.extends = false;
        }
        part.segment = Segment::attend;
        add(part, arguments);
      }
    }
  }

  /// Gradients of weights and `finish` run while gradients of keys are added up, and while keys of
  /// the next block are gathered. Keys of slices are at hand, with the gradients of later slices.
  void backward_segments(Action action, Arguments arguments) {
    const RankBuffers of_slices = arguments[key_gradient];
    bool extends = std::exchange(action.extends, false);
    action.block = builder_.blocks(action.shard) - 1;
    project(action, arguments);
    for (; action.block >= 0; --action.block) {
      const RankBuffers sums = builder_.new_buffers(ranks_, SlotClass::key_gradient);
      arguments[key_gradient] = of_slices.empty() ? sums : of_slices;
      action.segment = Segment::attend;
      if (!of_slices.empty())
        action.extends = std::exchange(extends, true);
      add(action, arguments);
      action.extends = false;
      if (!of_slices.empty()) {
        action.segment = Segment::share;
        add(action, {{key_gradient, of_slices}, {destination, sums}});
        arguments[key_gradient] = sums;
      }
      pass(Kind::reduce_scatter, Payload::key_gradient, action, sums);
      action.segment = Segment::weights;
      if (action.kind == Kind::backward)
        add(action, arguments);
      if (Action before = action; before.block-- > 0)
        project(before, arguments);
      action.segment = Segment::finish;
      add(action, arguments);
    }
  }

  /// Emits what the ranks do together with a segment's keys and values, or their gradients.
  void pass(Kind kind, Payload payload, const Action& segment, const RankBuffers& buffers) {
    Action action = make_action(kind, segment.tick, payload, segment.shard);
    action.micro_batch = segment.micro_batch;
    action.block = segment.block;
    builder_.collective_of_sequence(ranks_, action, buffers);
  }

  /// Emits the segment that projects to keys and values; they are then gathered, unless they have
  /// stayed, as in the backward visits of slices.
  void project(Action action, Arguments& arguments) {
    action.segment = Segment::keys;
    if (action.kind != Kind::forward && builder_.slices() > 1) {
      Arguments without = arguments;
      without[keys] = {};
      return add(action, without);
    }
    const RankBuffers buffers = builder_.new_buffers(ranks_, SlotClass::keys);
    arguments[keys] = buffers;
    add(action, arguments);
    pass(Kind::all_gather, Payload::keys, action, buffers);
  }

  Builder& builder_;
  Ranks ranks_;
  std::map<int, RankBuffers> hidden_states_;        ///< by micro-batch
  std::map<std::pair<int, int>, Left> left_;        ///< by micro-batch and shard
  std::map<std::pair<int, int>, Prefix> prefixes_;  ///< by micro-batch of slices, and shard
};

/// Ranks that visit the same shards in the same ticks, each context group with its micro-batches:
/// one by one, forward, then backward.
class LockstepRanks {
public:
  LockstepRanks(
      Builder& builder, const Ranks& ranks, int micro_batches_per_rank, int first_tick = 0)
      : per_rank_(micro_batches_per_rank) {
    for (auto first = ranks.begin(); first != ranks.end(); first += builder.context())
      emitters_.emplace_back(builder, Ranks(first, first + builder.context()));
    const int first = ranks[0] / builder.context() * per_rank_;
    for (int m = first; m < first + per_rank_; ++m) {
      for (int s = 0; s < builder.shards(); ++s)
        visits_.push_back({first_tick++, s, m, Kind::forward});
      for (int s = builder.shards() - 1; s >= 0; --s)
        visits_.push_back({first_tick++, s, m, Kind::backward});
    }
  }

  /// Visits of the first rank; those of the others differ only in the micro-batch.
  const std::vector<Visit>& visits() const { return visits_; }

  int last_tick() const { return visits_.back().tick; }

  /// Whether a visit is of the last micro-batch of each rank.
  bool is_last(const Visit& visit) const { return visit.micro_batch == visits_.back().micro_batch; }

  /// Emits visit i of every rank, with one buffer of weights and, backward, one for the gradient of
  /// each.
  void compute(std::size_t i, const RankBuffers& weights, const RankBuffers& gradients) {
    Visit visit = visits_[i];
    std::size_t first = 0;
    for (ComputeEmitter& emitter : emitters_) {
      const std::size_t count = emitter.ranks().size();
      const auto of_group = [&](const RankBuffers& all) {
        return all.empty() ? all : RankBuffers(all.begin() + first, all.begin() + first + count);
      };
      emitter.visit(visit, of_group(weights), of_group(gradients));
      visit.micro_batch += per_rank_;
      first += count;
    }
  }

private:
  int per_rank_;
  std::vector<Visit> visits_;
  std::vector<ComputeEmitter> emitters_;
};
}  // namespace minitaw::schedule
