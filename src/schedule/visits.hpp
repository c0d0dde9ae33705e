// SPDX-License-Identifier: BSD-3-Clause
#pragma once
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
public:
  ComputeEmitter(Builder& builder, std::vector<int> ranks)
      : builder_(builder),
        ranks_(std::move(ranks)) {}

  [[nodiscard]] const std::vector<int>& ranks() const { return ranks_; }

  /// Emits the visit: F after embed on shard 0 and before loss on the last one, BW or B before
  /// dembed on shard 0. W takes no weights; F and B give no gradient. BW and W write the gradient
  /// or add to it, to an accumulator always.
  void visit(const Visit& visit,
      const RankBuffers& of_weights,
      const RankBuffers& of_gradient = {},
      bool accumulates = false);

  /// The hidden state of a micro-batch, or its gradient. Set it if the first visit is not of shard
  /// 0.
  [[nodiscard]] RankBuffers& hidden_state(int micro_batch) { return hidden_states_[micro_batch]; }

private:
  /// Buffers that a visit leaves to later ones of the same shard and micro-batch: F, and B for W.
  struct Left {
    RankBuffers saved, deferred;
  };

  /// Of all slices of a micro-batch on a shard: their keys and values, then the gradient of those.
  struct Prefix {
    RankBuffers keys, gradient;
  };

  struct Argument {
    Operand operand;
    RankBuffers buffers;  ///< empty: none
  };

  using Arguments = std::vector<Argument>;

  /// Gives an operand its buffers, instead of those that it had.
  static void set(Arguments& arguments, Operand operand, const RankBuffers& buffers);
  /// Those of an operand; none if it has none.
  static RankBuffers buffers_of(const Arguments& arguments, Operand operand);
  /// Emits an action of every rank with those of the arguments that its kind uses.
  void add(const Action& action, const Arguments& arguments);
  /// Gives a visit of a slice its buffers; none without slices. The first slice in its direction
  /// begins them.
  Prefix prefix_of(const Visit& visit, bool begins);
  /// A visit as the segments of its blocks, with what passes between the ranks.
  void segments(const Visit& visit, Action action, Arguments arguments);
  void forward_segments(Action action, Arguments& arguments, int blocks);
  void backward_segments(Action action, Arguments& arguments, int blocks);
  /// Emits what the ranks do together with a segment's keys and values, or their gradients.
  void pass(Kind kind, Payload payload, const Action& segment, const RankBuffers& buffers);
  /// Emits a segment that projects to keys and values; they are then gathered, unless they have
  /// stayed, as in the backward visits of slices.
  void project(Kind kind, Action action, Arguments& arguments);

  Builder& builder_;
  std::vector<int> ranks_;
  std::map<int, RankBuffers> hidden_states_;        ///< by micro-batch
  std::map<std::pair<int, int>, Left> left_;        ///< by micro-batch and shard
  std::map<std::pair<int, int>, Prefix> prefixes_;  ///< by micro-batch of slices, and shard
};

/// Ranks that visit the same shards in the same ticks, each context group with its micro-batches:
/// one by one, forward, then backward.
class LockstepRanks {
public:
  LockstepRanks(Builder& builder,
      const std::vector<int>& ranks,
      int micro_batches_per_rank,
      int first_tick = 0);

  /// Visits of the first rank; those of the others differ only in the micro-batch.
  const std::vector<Visit>& visits() const { return visits_; }

  int last_tick() const { return visits_.back().tick; }

  /// Whether a visit is of the last micro-batch of each rank.
  bool is_last(const Visit& visit) const { return visit.micro_batch == visits_.back().micro_batch; }

  /// Emits visit i of every rank, with one buffer of weights and, backward, one for the gradient of
  /// each.
  void compute(std::size_t i, const RankBuffers& weights, const RankBuffers& gradients);

private:
  int per_rank_;
  std::vector<Visit> visits_;
  std::vector<ComputeEmitter> emitters_;
};
}  // namespace minitaw::schedule
