// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "model/layout.hpp"
#include "schedule/kinds.hpp"
#include "topology/groups.hpp"

namespace minitaw::schedule {
using model::Layout;
using topology::Groups, topology::Ranks;

/// A number of actions of each lane: as lanes finish in order, those that are finished, or must be.
using LaneCounts = std::array<std::int32_t, lanes>;
LaneCounts max_of(const LaneCounts& a, const LaneCounts& b);

struct Slot {
  SlotClass cls = SlotClass::owned;
  std::int16_t index = -1;  ///< -1: no slot

  bool valid() const { return index >= 0; }

  friend bool operator==(const Slot&, const Slot&) = default;
};

/// One action of one rank. At most 92 bytes: programs for a thousand ranks must fit in memory.
/// Ranks and micro-batches are those of a replica, counted from 0.
struct Action {
  Kind kind = Kind::join;
  Lane lane = Lane::compute;
  Payload payload = Payload::none;
  /// loss, BW, W, dembed, add: adds to the same part of its gradient slot instead of writing it.
  bool accumulates = false;
  std::int32_t tick = 0;           ///< of the compute action this belongs to
  std::int32_t shard = -1;         ///< of "update E": the part of the embeddings
  std::int32_t micro_batch = -1;   ///< counted over all ranks of the step, slices each
  std::int32_t peer = -1;          ///< other side of send / recv, root of broadcast / reduce
  std::int32_t communicator = -1;  ///< index into Program::communicators; -1 for send / recv
  std::array<Slot, most_operands> slots{};  ///< of each operand, in the order of KindRow::uses
  /// Part `part` of `parts` equal ones is moved or added. A collective divides it among its
  /// members.
  std::int16_t part = 0, parts = 1;
  std::int16_t block = -1;  ///< of the shard: of a segment, or whose keys move
  /// A slice before, in the same direction, has left its keys and values, or gradients of them.
  bool extends = false;
  Segment segment = Segment::all;  ///< of a visit
  LaneCounts waits{};              ///< actions of other lanes that must be finished first

  /// The slot of an operand. Throws LogicError if the kind has no such operand.
  const Slot& operator[](Operand operand) const;
  Slot& operator[](Operand operand);
  friend bool operator==(const Action&, const Action&) = default;
};

/// The lane of a message or collective, or of a local action beside it; `inside`: all members of
/// the collective are of one group.
Lane lane_of(Kind kind, Payload payload, bool inside);
/// The operands of an action: those of its kind, or of its segment of a visit. Transfers, square
/// and update have further classes.
const Uses& operands_of(const Action& action);
/// The classes that an operand's slot may be of.
SlotClasses classes_of(const Action& action, const Use& use);
/// Index of an operand in Action::slots. Throws LogicError if the action has no such operand.
std::size_t index_of(const Action& action, Operand operand);

/// Whether it is a part of a visit, of one block.
inline bool is_segment(const Action& action) {
  return action.segment != Segment::all;
}

/// Number of a segment that gives gradients, among those of its visit in the order of blocks: two a
/// block, of different tensors; -1 for other actions.
int gradient_number(const Action& action);
inline constexpr int gradients_of_block = 2;

struct Access {
  Operand operand = Operand::none;
  Slot slot;
  bool read = false, write = false;
};

struct Accesses {
  std::array<Access, most_operands> items{};
  int count = 0;

  const Access* begin() const { return items.data(); }

  const Access* end() const { return items.data() + count; }
};

/// `rank` decides the side of rooted collectives: the root of a broadcast reads, the others write.
Accesses accesses(const Action& action, int rank);

/// "F", or "F.keys" of a segment, as in texts of programs.
std::string name_of(const Action& action);
/// "w0"
std::string name_of(Slot slot);
/// "weights w0", for sentences.
std::string describe(Slot slot);

struct Communicator {
  std::string name;  ///< "world", "group2", "replicas"
  Ranks ranks;       ///< in ring order; empty: each rank and those of its number in other replicas

  bool among_replicas() const { return ranks.empty(); }

  /// The place of a rank in the ring; -1: it is no member.
  int index_of(int rank) const;
  friend bool operator==(const Communicator&, const Communicator&) = default;
};

/// One rank's part of a step. `actions` is the issue order: waits refer only to earlier actions,
/// and each lane executes its own actions in order, one at a time. Messages of one direction in a
/// lane only need to begin in order: a transport may have several under way, so that the wire is
/// never idle between two. They count as finished in order.
struct RankProgram {
  std::vector<Action> actions;
  std::array<int, slot_classes> slots{};  ///< how many slots of each class the rank has
  std::vector<int> owned_shards;  ///< owned_shards[k]: shard in owned slot k and accumulator slot k
  int part = 0;  ///< of Program::owned_parts: what it owns of each shard in `owned_shards`
  int embeddings_part = -1;  ///< of Program::embeddings_parts: all that it has; -1: has all
  Part kept{}, partial{};    ///< the part of each shard in its slots of these classes

  bool has_embeddings() const { return slots[index_of(SlotClass::embeddings)] > 0; }

  friend bool operator==(const RankProgram&, const RankProgram&) = default;
};

/// One training step of all ranks of a replica: the only description of a schedule, which all parts
/// of miniTaw read. Other replicas do the same with other micro-batches: ranks q P .. (q + 1) P - 1
/// of a job are replica q of a program of P ranks. Nothing here grows with their number.
struct Program {
  std::string schedule;  ///< name with options, as in the deck: "tawpipe:cco=off"
  int shards = 0;        ///< shards the blocks are split into
  /// M, of a replica. A pipeline may pass them in slices, consecutive runs of the tokens of their
  /// sequences, k of each: then all k M of them count, those of a micro-batch in a row.
  int micro_batches = 0;
  int slices = 1;            ///< k
  bool even_slices = false;  ///< of equal length, not of equal cost
  /// Equal parts of the embeddings, each updated by one rank.
  int embeddings_parts = 1;
  bool embeddings_split = false;  ///< two parts: the embedding; final norm and head
  /// One matrix is embedding and head. Where both ends of a pipeline are apart, each has a copy of
  /// it and of the final norm, and both sum their gradients.
  bool tied = false;
  int owned_parts = 1;  ///< equal parts of each shard, each owned by one rank
  int shard_parts = 1;  ///< every shard is padded so that this many parts are equal
  int replicas = 1;     ///< that sum their gradients
  bool clips = false;   ///< updates read the squares of all gradients
  /// n: ranks c n .. c n + n - 1 share the sequences of their micro-batches.
  int context = 1;
  int key_parts = 1;          ///< parts by heads in which keys of a block are gathered
  std::vector<int> blocks{};  ///< of each shard, if ranks share sequences
  Groups groups{{1}};
  std::vector<Communicator> communicators;
  std::vector<RankProgram> ranks;

  /// Ranks of all replicas.
  int job_ranks() const { return replicas * std::ssize(ranks); }

  /// The number in its replica of a rank of the job.
  int rank_of(int job_rank) const { return job_rank % std::ssize(ranks); }

  int replica_of(int job_rank) const { return job_rank / std::ssize(ranks); }

  /// A rank of the job: the one of this number in a replica.
  int job_rank(int replica, int rank) const { return replica * std::ssize(ranks) + rank; }

  friend bool operator==(const Program&, const Program&) = default;
};

/// The ranks of the job that meet a rank of it in a communicator that it calls, in ring order.
Ranks members_of(const Program& program, int communicator, int job_rank);
/// The action of a rank of the program with ranks and micro-batch as they are counted in the job.
Action in_job(const Program& program, Action action, int replica);

/// Returns the place of a slice among those of its micro-batch, from 0; 0 for an action of none.
inline int slice_of(const Program& program, int micro_batch) {
  return micro_batch < 0 ? 0 : micro_batch % program.slices;
}

/// Returns which part of each of its sequences a rank computes.
inline Part context_part(const Program& program, int rank) {
  return {rank % program.context, program.context};
}

/// Returns the part of each shard, or of the embeddings, that the rank's slots of a class hold.
Part part_of(const Program& program, int rank, SlotClass cls);
/// Returns the number of equal parts that such data may be divided into.
int parts_of(const Program& program, Data data);
/// Returns the division of the model among the program's ranks.
model::Cut cut_of(const Program& program);
/// Indices into RankProgram::actions of a lane's actions, in order.
std::vector<int> actions_of(const RankProgram& rank, Lane lane);
/// Returns for each action the index of the one at whose end its buffers are free. This is the
/// action itself, but for messages of one tick that follow each other in the program, in whatever
/// lanes: their buffers are free after the last of them, so that none waits for another.
std::vector<int> releases(const RankProgram& rank);
/// Returns whether a message may begin before an earlier one of its lane ends: both have the same
/// direction and, if they are received, different slots.
bool may_overlap(const Action& earlier, const Action& later);
/// Micro-batches whose tokens a rank reads, in ascending order: those that it embeds or has a loss
/// of.
std::vector<int> token_batches_of(const RankProgram& rank);
/// One action as a line: "F s3 m1 w0 a0 x0", "send W3 w1 -> r5", "reduce G3 g0 root r2 @group0".
std::string to_text(const Action& action, const Program& program);
/// The whole program. Lines of a rank: <tick> <lane> <action> [after <lane>:<count> ...]
std::string to_text(const Program& program);
}  // namespace minitaw::schedule
