// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <functional>
#include "schedule/registry.hpp"

namespace minitaw::schedule {
/// A buffer without a slot yet: "weights of shard 3 for tick 7". It gets one from its first to its
/// last use.
struct VirtualBuffer {
  int id = -1;
  SlotClass cls = SlotClass::owned;

  [[nodiscard]] bool valid() const { return id >= 0; }

  friend bool operator==(const VirtualBuffer&, const VirtualBuffer&) = default;
};

/// The buffers of one action, in the order of its form.
using VirtualBuffers = std::array<VirtualBuffer, most_operands>;
using RankBuffers = std::vector<VirtualBuffer>;  ///< one of each rank of some

/// Phase of an action inside its tick. Issue order: tick, phase, emission; what later ticks need
/// comes first.
enum class Phase : std::uint8_t {
  fetch_first,  ///< what must be at hand before anything can be fetched
  fetch_inter,
  fetch_intra,
  compute,
  push_intra,
  push_inter,
  push_last,
  epilogue
};

/// Returns an action of this kind; the caller adds operands and peer.
[[nodiscard]] Action make_action(
    Kind kind, int tick, Payload payload, int shard = -1, Part part = {});

struct MessageContent {
  Payload payload = Payload::weights;
  int shard = -1, micro_batch = -1;
  Part part{};
};

/// Update of the embeddings at the end of the step, unless they are split or one rank has all.
enum class EmbeddingsUpdate {
  sliced,      ///< reduce-scatter, each rank updates its slice, all-gather (weight-passing family,
               ///< FSDP)
  replicated,  ///< all-reduce, everyone updates everything (DDP)
};

/// What waits although it needs no data.
enum class Overlap {
  full,            ///< nothing
  not_of_weights,  ///< computation, for messages with weights, and collectives between groups,
                   ///< issued before
  none,            ///< communication for all computation issued before it, and the other way round
};

/// A program under construction: actions over buffers, in any order of emission; finish() sorts,
/// assigns slots, derives waits. Both sides of every transfer are emitted by one call: one order on
/// all ranks, so no deadlock by construction.
///
/// With replicas, rules see one only: its ranks, groups and micro-batches, counted from 0. finish()
/// makes the others.
class Builder {
public:
  /// Begins a program without owned shards, embeddings on every rank. Replicas must be alike
  /// (groups_of_replica()).
  Builder(const Request& request, int shards);

  [[nodiscard]] const topology::Groups& groups() const { return groups_; }

  [[nodiscard]] int ranks() const { return groups_.ranks(); }

  [[nodiscard]] std::vector<int> everyone() const;  ///< 0, 1, ... ranks() - 1

  [[nodiscard]] int shards() const { return program_.shards; }

  [[nodiscard]] int micro_batches() const { return program_.micro_batches / program_.replicas; }

  /// Gives a rank an owned and an accumulator slot for a shard, or for its slice of it.
  void own(int rank, int shard);
  /// Makes ranks keep one of `count` slices of their owned shards; keep_slice() says which.
  void slice_owned(int count);

  void keep_slice(int rank, int slice) { program_.ranks[rank].slice = slice; }

  /// Makes the rank's slots of a class, kept or partial, hold one part of each shard.
  void keep_part(int rank, SlotClass cls, Part part);

  [[nodiscard]] Part part(int rank, SlotClass cls) const { return part_of(program_, rank, cls); }

  /// Pads shards so that `count` parts are equal, besides the counts of earlier calls.
  void cut_shards(int count);
  /// Weights / gradient accumulator of a shard on a rank; invalid if the rank does not own it.
  [[nodiscard]] VirtualBuffer owned(int rank, int shard) const;
  [[nodiscard]] VirtualBuffer accumulator(int r, int shard) const;
  /// Puts the embedding on one rank, final norm and head on another or the same; the others hold
  /// none.
  void place_embeddings(int embedding_rank, int head_rank);

  [[nodiscard]] static constexpr VirtualBuffer embeddings() { return {0, SlotClass::embeddings}; }

  [[nodiscard]] static constexpr VirtualBuffer embeddings_accumulator() {
    return {0, SlotClass::embeddings_accumulator};
  }

  /// A new buffer for a slot of a transit class.
  [[nodiscard]] VirtualBuffer new_buffer(int rank, SlotClass cls);
  /// Index of a communicator with these ranks, made at first use.
  int communicator(const std::string& name, const std::vector<int>& ranks);
  int world();
  int group(int group);

  struct Use {
    Operand operand;
    VirtualBuffer buffer;
  };

  /// Emits an action of one rank; `uses` name all operands. Throws LogicError if its kind has no
  /// such one.
  void add(int rank, Phase phase, const Action& action, std::initializer_list<Use> uses);

  struct Endpoint {
    int rank;
    VirtualBuffer buffer;
  };

  struct Message {
    MessageContent content;
    Endpoint from, to;
  };

  /// Emits a send on one side and a recv on the other.
  void transfer(int tick, Phase phase, const MessageContent& content, Endpoint from, Endpoint to);
  /// Emits the messages of a tick, in one order on all ranks, for a transport that issues all lanes
  /// in sequence (NCCL).
  void exchange(int tick, Phase phase, const std::vector<Message>& messages);
  /// Emits a collective of a communicator; buffers[i] belongs to its i-th rank.
  void collective(Phase phase, int communicator, Action action, const RankBuffers& buffers);
  /// Closes the step at `tick` (gradients of the embeddings combined, all summed over the replicas,
  /// squares for clipping, all updated, join), sorts actions into issue order, assigns slots,
  /// derives waits, makes the replicas.
  [[nodiscard]] Program finish(
      int tick, EmbeddingsUpdate update, Overlap overlap = Overlap::full) &&;

private:
  struct Emitted {
    Action action;
    Phase phase;
    VirtualBuffers buffers{};
  };

  struct Rank {
    std::vector<Emitted> emitted;
    int next_buffer = 0;
    std::vector<int> owned_slot;  ///< by shard; -1: of another rank
  };

  void add_epilogue(int tick, EmbeddingsUpdate update);
  /// Sums the squares of all gradients on every rank; part_of(r): what rank r updates of the
  /// embeddings.
  void square_gradients(int tick, bool together, const std::function<Part(int)>& part_of);
  void sum_over_replicas(int rank, Phase phase, Action action, VirtualBuffer buffer);
  void sum_shards_over_replicas(int rank, int tick);
  void finish_rank(int rank, Overlap overlap);

  topology::Groups groups_;  ///< of one replica
  Program program_;          ///< ranks and communicators of the first replica, until it is finished
  std::vector<Rank> drafts_;
  RankBuffers squares_;  ///< by rank, if gradients are clipped
  std::map<std::string, int> communicators_;
};

/// One visit of a shard with one micro-batch: F, BW, B or W. A schedule first chooses their order.
struct Visit {
  int tick = 0, shard = 0, micro_batch = 0;
  Kind kind = Kind::forward;

  [[nodiscard]] bool backward() const { return kind != Kind::forward; }
};

/// Emits the compute actions of one rank, with embedding and loss. Keeps the buffers that visits
/// hand on.
class ComputeEmitter {
public:
  ComputeEmitter(Builder& builder, int rank) : builder_(builder), rank_(rank) {}

  /// Emits the visit: F after embed on shard 0 and before loss on the last one, BW or B before
  /// dembed on shard 0. W takes no weights; F and B give no gradient. BW and W write the gradient
  /// or add to it, to an accumulator always.
  void visit(const Visit& visit,
      VirtualBuffer of_weights,
      VirtualBuffer of_gradient = {},
      bool accumulate = false);

  /// The hidden state of a micro-batch, or its gradient. Set it if the first visit is not of shard
  /// 0.
  [[nodiscard]] VirtualBuffer& hidden_state(int micro_batch) { return hidden_states_[micro_batch]; }

private:
  /// Buffers that a visit keeps for later ones of the same shard and micro-batch: F, and B for W.
  struct Kept {
    VirtualBuffer saved, deferred;
  };

  Builder& builder_;
  int rank_;
  std::map<int, VirtualBuffer> hidden_states_;  ///< by micro-batch
  std::map<std::pair<int, int>, Kept> kept_;    ///< by micro-batch and shard
};

/// Ranks that visit the same shards in the same ticks, each with its micro-batches: one by one,
/// forward, then backward.
class LockstepRanks {
public:
  LockstepRanks(Builder& builder,
      const std::vector<int>& ranks,
      int micro_batches_per_rank,
      int first_tick = 0);

  /// Visits of the first rank; those of the others differ only in the micro-batch.
  [[nodiscard]] const std::vector<Visit>& visits() const { return visits_; }

  [[nodiscard]] int last_tick() const { return visits_.back().tick; }

  /// Emits visit i of every rank, with one buffer of weights and, backward, one for the gradient of
  /// each.
  void compute(std::size_t i, const RankBuffers& weights, const RankBuffers& gradients);

private:
  int per_rank_;
  std::vector<Visit> visits_;
  std::vector<ComputeEmitter> emitters_;
};
}  // namespace minitaw::schedule
