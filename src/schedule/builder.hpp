// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "schedule/registry.hpp"

namespace minitaw::schedule {
/// A buffer without a slot yet: "weights of shard 3 for tick 7". It gets one from its first to its
/// last use.
struct VirtualBuffer {
  int id = -1;
  SlotClass cls = SlotClass::owned;

  bool valid() const { return id >= 0; }
};

inline constexpr VirtualBuffer all_embeddings{0, SlotClass::embeddings};
inline constexpr VirtualBuffer all_embeddings_gradient{0, SlotClass::embeddings_accumulator};

/// The buffers of one action, in the order of its form.
using VirtualBuffers = std::array<VirtualBuffer, most_operands>;
using RankBuffers = std::vector<VirtualBuffer>;  ///< one of each rank of some

/// Phase of an action inside its tick. Issue order: tick, phase, emission; what later ticks need
/// comes first.
enum class Phase : std::uint8_t {
  fetch_first,  ///< before anything can be fetched
  fetch_inter,
  fetch_intra,
  compute,
  push_intra,
  push_inter,
  push_last,
  epilogue,
};

/// Returns an action of this kind; the caller adds operands and peer.
Action make_action(Kind kind, int tick, Payload payload, int shard = -1, Part part = {});

/// Whether actions wait although they need no data of each other.
enum class Overlap {
  full,            ///< none does
  not_of_weights,  ///< computation waits for messages with weights, and collectives between groups,
                   ///< that are issued before it
  none,            ///< communication and computation wait for all of each other issued before
};

/// A program under construction: actions over buffers, in any order of emission; finish() sorts,
/// assigns slots, derives waits. All sides of a transfer are emitted by one call: one order on all
/// ranks, so no deadlock by construction.
///
/// With replicas, rules see one only: its ranks, groups and micro-batches, counted from 0.
class Builder {
public:
  /// Begins a program without owned shards, embeddings on every rank. Replicas must be alike
  /// (Request::groups_of_replica()).
  Builder(const Request& request, int shards);

  const Groups& groups() const { return program_.groups; }

  int ranks() const { return groups().ranks(); }

  Ranks everyone() const;  ///< 0, 1, ... ranks() - 1

  int shards() const { return program_.shards; }

  /// n: ranks that share each sequence.
  int context() const { return program_.context; }

  /// k: slices of each micro-batch.
  int slices() const { return program_.slices; }

  /// Parts by heads in which keys of a block are gathered.
  int key_parts() const { return program_.key_parts; }

  /// The ranks of each context group; of each rank, where sequences are not shared.
  std::vector<Ranks> context_groups() const;
  /// Blocks of a shard, where sequences are shared. Once it is known who has the embeddings.
  int blocks(int shard);

  /// Gives a rank an owned and an accumulator slot for a shard, or for its part of it. In
  /// ascending order of the shards.
  void own(int rank, int shard);
  /// Makes the rank own one part of each of its shards. All ranks have as many parts.
  void own_part(int rank, Part part);
  /// Makes the rank's slots of a class, kept or partial, hold one part of each shard.
  void keep_part(int rank, SlotClass cls, Part part);
  /// Pads shards so that `count` parts are equal, besides the counts of earlier calls.
  void cut_shards(int count);
  /// Puts the embedding on some ranks, final norm and head on others or the same; the rest has none
  /// of them. Tied, either has all.
  void split_embeddings(const Ranks& embedding, const Ranks& head);

  /// Weights / gradient accumulator of a shard on a rank; invalid if the rank does not own it.
  VirtualBuffer owned(int rank, int shard) const;
  VirtualBuffer accumulator(int rank, int shard) const;
  /// The same of each of some ranks, which all own the shard, or its parts.
  RankBuffers owned(const Ranks& ranks, int shard) const;
  RankBuffers accumulators(const Ranks& ranks, int shard) const;
  /// A new buffer for a slot of a class in transit.
  VirtualBuffer new_buffer(int rank, SlotClass cls);
  RankBuffers new_buffers(const Ranks& ranks, SlotClass cls);

  /// Index of a communicator, made at first use. Throws LogicError if the name means other ranks.
  int communicator(const std::string& name, const Ranks& ranks);
  int world();

  struct Argument {
    Operand operand;
    VirtualBuffer buffer;
  };

  /// Emits an action of one rank with a buffer for every operand. Throws LogicError if its kind has
  /// no such one.
  void add(int rank, Phase phase, const Action& action, const std::vector<Argument>& arguments);
  /// Emits a load or an addition on a rank, in the lane of the payload's collectives: those inside
  /// a group, or those that leave it. Unless the action names a part, it is of all that both
  /// buffers hold.
  void local(int rank,
      Phase phase,
      Action action,
      bool inside,
      VirtualBuffer source,
      VirtualBuffer destination);

  struct Endpoint {
    int rank;
    VirtualBuffer buffer;
  };

  /// Emits a message: `send`, an action of this kind, on one side and its recv on the other.
  void transfer(Phase phase, Action send, Endpoint from, Endpoint to);
  /// Emits a collective of a communicator; buffers[i] belongs to its i-th rank.
  void collective(Phase phase, int communicator, Action action, const RankBuffers& buffers);
  /// Emits collectives that the ranks of a context group make with keys and values of a block, or
  /// their gradients: for each part of the attention's heads one of the heads of sequences, and one
  /// of the tails, whose chunks belong to the ranks in reverse order. `action` names shard,
  /// micro-batch and block; a buffer of each rank.
  void collective_of_sequence(const Ranks& ranks, Action action, const RankBuffers& buffers);
  /// Sums over a context group, each of whose ranks owns the same, the gradients of its shards and
  /// of its embeddings, unless all ranks have those.
  void sum_over_context(const Ranks& ranks, int tick);
  /// Closes the step at `tick`, which no action's tick exceeds: combines gradients of the
  /// embeddings, sums over replicas, squares for clipping, updates, joins. Sorts actions into issue
  /// order, assigns slots, derives waits.
  Program finish(int tick, Overlap overlap = Overlap::full) &&;

private:
  struct Emitted {
    Action action;
    Phase phase;
    VirtualBuffers buffers{};
  };

  struct Draft {
    std::vector<Emitted> emitted;
    int next_buffer = 0;
  };

  /// A shard that a rank updates at the end of the step, or a part of a shard or of the embeddings.
  struct Updated {
    Payload weights, gradient;
    int number;  ///< of the shard, or of the part of the embeddings
    Part part;
    VirtualBuffer weights_buffer, gradient_buffer;
  };

  std::vector<Updated> updated_by(int rank) const;
  /// Returns an all-reduce of the gradient.
  static Action sum_of(const Updated& updated, int tick);
  /// Part of the embeddings that a rank updates.
  Part embeddings_part(int rank) const;
  void add_epilogue(int tick);
  /// Whether every rank, of several, has all of the embeddings.
  bool embeddings_shared() const;
  /// Emits a collective of all ranks on the same buffer of each.
  void epilogue_of_all(Kind kind, int tick, Payload payload, VirtualBuffer buffer);
  void sum_over_replicas(int rank, int tick);
  /// Sums the gradients of both copies of tied embeddings.
  void sum_copies(int tick);
  /// Whether squares of a rank's embeddings are those of another copy.
  bool is_second_copy(int rank) const;
  /// Sums the squares of all gradients on every rank; `together`: over the ranks.
  void square_gradients(int tick, bool together);

  Program program_;
  int layers_;
  model::BlockCosts costs_;
  bool replicas_in_group_;            ///< all of them are in one group
  std::vector<Draft> drafts_;         ///< by rank
  RankBuffers squares_;               ///< by rank; invalid unless gradients are clipped
  bool summed_over_context_ = false;  ///< the ranks of a context group own the same
  std::vector<Ranks> copies_;         ///< pairs of ranks that have the same tied embeddings
  std::map<std::string, int> communicators_;
};
}  // namespace minitaw::schedule
