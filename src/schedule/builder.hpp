#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "base/range.hpp"
#include "schedule/program.hpp"

namespace minitaw::schedule {

/// The content of a slot before it has one: "the weights of shard 3 as fetched for tick 7". Each gets a slot
/// for as long as it lives, from its first to its last use in issue order.
struct VirtualBuffer {
  int id = -1;
  SlotClass cls = SlotClass::owned;

  [[nodiscard]] bool valid() const { return id >= 0; }
  friend bool operator==(const VirtualBuffer&, const VirtualBuffer&) = default;
};

/// Where an action stands inside its tick. Within a rank, actions are issued by (tick, phase, order of
/// emission): transfers for later ticks first, then the tick's compute, then what it leaves for others.
enum class Phase : std::uint8_t {
  fetch_first,  ///< what must be at hand before anything can be fetched
  fetch_inter,
  fetch_intra,
  compute,
  give_intra,
  give_inter,
  give_last,
  finish
};

/// An action of this kind; what it touches and with whom is for the caller to say.
[[nodiscard]] Action make_action(Kind kind, int tick, Payload payload, int shard = -1, Part part = {});

/// What a message carries.
struct Cargo {
  Payload payload = Payload::weights;
  int shard = -1;
  int micro_batch = -1;
  Part part{};
};

/// How the embeddings gradient comes together at the end of the step, unless the embeddings are split or one
/// rank has all.
enum class EmbeddingsUpdate {
  sliced,      ///< reduce-scatter, each rank updates its slice, all-gather (weight-passing family, FSDP)
  replicated,  ///< all-reduce, everyone updates everything (DDP)
};

/// A program under construction: actions over values instead of slots, in any order of emission. Rules append
/// to it; finish() sorts, assigns slots, derives waits. Both sides of every transfer are emitted by one call,
/// which gives all ranks one common order and so rules out deadlock by construction.
///
/// With copies, rules see one copy only: its ranks, groups and micro-batches, counted from 0. finish() makes
/// the others.
class Builder {
public:
  /// Nobody owns a shard yet; every rank holds the embeddings. `groups` and `micro_batches` are those of all
  /// `copies` together, which must be alike (see groups_of_copy()).
  Builder(const topology::Groups& groups, int shards, int micro_batches, int copies = 1);

  [[nodiscard]] const topology::Groups& groups() const { return groups_; }
  [[nodiscard]] int ranks() const { return groups_.ranks(); }
  [[nodiscard]] std::vector<int> everyone() const;  ///< 0, 1, ... ranks() - 1
  [[nodiscard]] int shards() const { return program_.shards; }
  [[nodiscard]] int micro_batches() const { return program_.micro_batches / program_.copies; }

  /// Gives a rank a owned and a total slot for a shard, or for its slice of it.
  void own(int rank, int shard);
  /// Ranks keep one of `count` slices of the shards that they own; each says which.
  void slice_owned(int count);
  void keep_slice(int rank, int slice) { program_.ranks[rank].slice = slice; }
  [[nodiscard]] Part owned_part(int rank) const {
    return {program_.ranks[rank].slice, program_.owned_slices};
  }
  /// Shards are padded so that `count` parts are equal, besides what was asked for before.
  void cut_shards(int count);

  /// Owned / total value of a shard on a rank; invalid if the rank does not own it.
  [[nodiscard]] VirtualBuffer owned(int rank, int shard) const;
  [[nodiscard]] VirtualBuffer accumulator(int rank, int shard) const;

  /// The embedding is on one rank, final norm and head are on another or the same one; the rest hold no
  /// embeddings.
  void place_embeddings(int embedding_rank, int head_rank);
  [[nodiscard]] static VirtualBuffer embeddings() { return {0, SlotClass::embeddings}; }
  [[nodiscard]] static VirtualBuffer embeddings_accumulator() {
    return {0, SlotClass::embeddings_accumulator};
  }

  /// A new value for a slot of a transit class.
  [[nodiscard]] VirtualBuffer value(int rank, SlotClass cls);

  /// Index of a communicator with these ranks, made at first use.
  int communicator(const std::string& name, const std::vector<int>& ranks);
  int world();
  int group(int group);

  /// Emits an action of one rank; `values` become its slots, in order.
  void add(int rank, Phase phase, Action action, std::initializer_list<VirtualBuffer> values);

  struct Endpoint {
    int rank;
    VirtualBuffer value;
  };
  struct Message {
    Cargo cargo;
    Endpoint from, to;
  };
  /// send on one side, recv on the other.
  void transfer(int tick, Phase phase, const Cargo& cargo, Endpoint from, Endpoint to);
  /// Messages of one tick. All ranks have them in one order: who issues all lanes in one sequence, as NCCL
  /// does, never meets another order elsewhere.
  void exchange(int tick, Phase phase, const std::vector<Message>& messages);
  /// A collective of a communicator; values[i] belongs to its i-th rank.
  void collective(Phase phase, Action action, const std::vector<VirtualBuffer>& values);
  /// Closes the step at `tick` (gradients of the embeddings combined, all gradients summed over the copies,
  /// every owned shard and the embeddings updated, join), sorts each rank's actions into issue order, assigns
  /// slots, derives waits, makes the copies. Without overlap, transfers wait for the computation before them
  /// and computation for the transfers before it.
  [[nodiscard]] Program finish(int tick, EmbeddingsUpdate update, bool overlap = true) &&;

private:
  struct Emitted {
    Action action;
    Phase phase;
    std::array<VirtualBuffer, 4> values{};
  };
  struct Rank {
    std::vector<Emitted> emitted;
    int next_value = 0;
    std::vector<int> owned_slot;  ///< by shard; -1: of another rank
  };

  void add_epilogue(int tick, EmbeddingsUpdate update);
  /// An all-reduce over the copies of this rank.
  void sum_over_copies(int rank, Phase phase, Action action, VirtualBuffer value);
  void sum_shards_over_copies(int rank, int tick);
  void finish_rank(int rank, bool overlap);

  topology::Groups groups_;  ///< of one copy
  Program program_;          ///< ranks and communicators of the first copy, until it is finished
  std::vector<Rank> drafts_;
  std::map<std::string, int> communicators_;
};

/// The groups of each of `copies` runs of consecutive ranks. Throws InputError if they are not alike.
[[nodiscard]] topology::Groups groups_of_copy(const topology::Groups& groups, int copies);

/// First choice of a schedule: what is computed when. One visit of a shard with one micro-batch: F, BW, B or
/// W.
struct Visit {
  int tick = 0;
  int shard = 0;
  int micro_batch = 0;
  Kind kind = Kind::forward;

  [[nodiscard]] bool backward() const { return kind != Kind::forward; }
};

/// Emits the compute actions of one rank, embedding and loss included, and carries hidden states and what
/// visits leave for later ones from visit to visit.
class Computer {
public:
  Computer(Builder& builder, int rank) : builder_(builder), rank_(rank) {}

  /// Emits the visit: F after embed on shard 0 and before loss on the last one, BW or B before dembed on
  /// shard 0. W takes no weights; F and B leave no gradient. BW and W write it, or add to it; that of an
  /// owned shard is added to.
  void visit(const Visit& visit, VirtualBuffer weights, VirtualBuffer gradient = {}, bool accumulate = false);

  /// The hidden state of a micro-batch, or its gradient, as it is passed on; it comes from elsewhere if its
  /// first visit here is not of shard 0.
  [[nodiscard]] VirtualBuffer& hidden_state(int micro_batch) { return hidden_states_[micro_batch]; }

private:
  /// What visits leave for later ones of the same shard and micro-batch: F, and B for W.
  struct Left {
    VirtualBuffer saved, deferred;
  };

  Builder& builder_;
  int rank_;
  std::map<int, VirtualBuffer> hidden_states_;  ///< by micro-batch
  std::map<std::pair<int, int>, Left> left_;    ///< by micro-batch and shard
};

/// Ranks that visit the same shards in the same ticks, each with its own run of consecutive micro-batches:
/// for one after the other, all shards forward and then backward, a tick each.
class Team {
public:
  Team(Builder& builder, const std::vector<int>& ranks, int micro_batches_per_rank, int first_tick = 0);

  /// Of the first rank; those of the others differ in the micro-batch only.
  [[nodiscard]] const std::vector<Visit>& visits() const { return visits_; }
  [[nodiscard]] int last_tick() const { return visits_.back().tick; }

  /// Emits visit i of every rank, with one buffer of weights and, backward, one for the gradient of each.
  void compute(std::size_t i, const std::vector<VirtualBuffer>& weights,
               const std::vector<VirtualBuffer>& gradients);

private:
  int per_rank_;
  std::vector<Visit> visits_;
  std::vector<Computer> computers_;
};

/// Gives every value of a rank a slot of its class that is free from the value's first to its last use in
/// issue order, out of as few slots as there can be, and counts them. values[i] belong to actions[i]; transit
/// values are numbered below `count`. Owned shards, totals and embeddings keep the index that they were made
/// with.
void assign_slots(RankProgram& rank, const std::vector<std::array<VirtualBuffer, 4>>& values, int count);

/// The first contribution of a step to a gradient that lasts from step to step writes it, the others add:
/// nothing needs to be cleared. Needs slots.
void write_first_contributions(RankProgram& rank, int shard_parts);

/// Derives the waits of every action from the slots it touches: a read waits for the last write, a write for
/// the last write and the reads since. Waits that others imply are left out; join waits for everything.
/// Without overlap, communication also waits for all computation issued before it and the other way round.
void assign_waits(RankProgram& program, int rank, bool overlap);

/// Communicator of an action that all copies of a rank take part in, until make_copies().
inline constexpr int among_copies = -2;

/// Appends Program::copies - 1 further copies of the ranks and communicators that are there, each with ranks
/// and micro-batches of its own, and gives every rank's copies a communicator.
void make_copies(Program& program);

}  // namespace minitaw::schedule
