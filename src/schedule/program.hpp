// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <array>
#include <ranges>
#include <string_view>
#include "model/layout.hpp"
#include "topology/groups.hpp"

namespace minitaw::schedule {
/// Kind of an action. The text form prints the name in the comment, else that of the enumerator.
enum class Kind : std::uint8_t {
  embed,
  forward,  // F
  loss,
  backward,         // BW   both halves of the backward pass
  backward_input,   // B    towards the input
  backward_weight,  // W    towards the weights
  embed_backward,   // dembed
  square,           // adds the squares of a gradient to those of the whole model
  update,
  zero,
  accumulate,  // add  destination = source, or += with `accumulates`
  load,        // destination = source, rounded to its precision
  join,        // the rank's step ends here
  send,
  recv,
  broadcast,
  reduce,
  all_gather,
  reduce_scatter,
  all_reduce,
};
inline constexpr int kinds = 20;

/// A queue of a rank, in order, of inputs of the computation or gradients. A transfer waits only in
/// its lane: receives, sends and collectives of a group pass each other
/// (docs/decisions/0013-lanes-by-direction.md).
enum class Lane : std::uint8_t {
  compute,
  inputs_group,     ///< collectives inside a group
  inputs_recv,      ///< receives, and collectives that leave a group
  inputs_send,      ///< sends
  gradients_group,  ///< the same for gradients
  gradients_recv,
  gradients_send,
};
inline constexpr int lanes = 7;

enum class Payload : std::uint8_t {
  none,
  weights,              // W3   weights of shard 3
  gradient,             // G3   gradient of shard 3
  activation,           // A3   hidden state at the input of shard 3 (with a micro-batch)
  activation_grad,      // D3   its gradient
  embeddings,           // E    weights of embedding and LM head
  embeddings_gradient,  // EG
  squares,              // N    sum of the squares of all gradients
};
inline constexpr int payloads = 8;

/// Class of a slot: a named buffer of a rank.
enum class SlotClass : std::uint8_t {
  owned,         // h   weights of an owned shard or slice of one, compute precision; permanent
  accumulator,   // t   gradient of an owned shard or slice summed over the step, fp32; permanent
  weights,       // w   weights passing through, or kept whole for later visits
  kept,          // k   a part of a shard's weights, kept for later visits in the group
  gradient,      // g   a gradient contribution passing through, compute precision
  contribution,  // c   one that comes from another rank, at its own time: computing never waits for
                 // its slot
  partial,     // p   gradient of a shard or a part of it, summed here before it goes to its owner,
               // fp32
  saved,       // a   activations: what F saves for the backward pass of one (shard, micro-batch)
  deferred,    // b   inputs of the weight gradient: what B leaves for W of one (shard, micro-batch)
  hidden,      // x   hidden state of a micro-batch, later its gradient
  embeddings,  // e   weights of embedding and LM head, or the slice that the rank holds; permanent
  embeddings_accumulator,  // f   their gradient summed over the step, fp32; permanent
  squares,                 // n   sum of the squares of gradients, a number in fp32 and scratch
};
inline constexpr int slot_classes = 13;

/// Index of a kind, lane, payload or slot class in a table of all of them.
template <class Enum>
[[nodiscard]] constexpr std::size_t index_of(Enum e) {
  return static_cast<std::size_t>(e);
}

/// Names of the values 0 to count - 1 of an enumeration.
template <class Enum>
[[nodiscard]] std::vector<std::string> names_of(int count) {
  return list_of(
      std::views::iota(0, count), [](int i) { return std::string(name_of(static_cast<Enum>(i))); });
}

/// A number of actions for each lane: as lanes finish in order, the ones that are finished, or must
/// be.
using LaneCounts = std::array<std::int32_t, lanes>;
[[nodiscard]] LaneCounts max_of(const LaneCounts& a, const LaneCounts& b);

/// How far a rank has come, as it says itself.
struct RankState {
  /// Grows where a step begins (it is odd then) and where it ends; below 0: the rank does not
  /// answer.
  std::int64_t position = -1;
  LaneCounts begun{}, completed{};  ///< actions of the step

  [[nodiscard]] bool answers() const { return position >= 0; }

  [[nodiscard]] bool in_step() const { return answers() && position % 2 == 1; }
};

enum class Operand : std::uint8_t {
  none,
  weights,      // of a shard, or of embedding and LM head
  saved,        // activations that F saves for the backward pass
  hidden,       // hidden state of a micro-batch, or its gradient; changed in place
  deferred,     // inputs of the weight gradient that B leaves for W
  gradient,     // of a shard, or of embedding and LM head
  source,       // add, load: the buffer that is read
  destination,  // add, load: the buffer that is written
  buffer,       // messages and collectives: the buffer that moves
  squares,      // square; update, where the gradient is clipped
};
inline constexpr int most_operands = 4;  ///< of one action

struct Slot {
  SlotClass cls = SlotClass::owned;
  std::int16_t index = -1;  ///< -1: no slot

  [[nodiscard]] bool valid() const { return index >= 0; }

  friend bool operator==(const Slot&, const Slot&) = default;
};

/// One action of one rank. At most 72 bytes: programs for a thousand ranks must fit in memory.
struct Action {
  Kind kind = Kind::join;
  Lane lane = Lane::compute;
  Payload payload = Payload::none;
  /// loss, BW, W, dembed, add: adds to the same part of its gradient slot instead of writing it.
  bool accumulates = false;
  std::int32_t tick = 0;  ///< of the compute action this belongs to
  std::int32_t shard = -1;
  std::int32_t micro_batch = -1;  ///< counted over all ranks of the step
  std::int32_t peer = -1;  ///< other side of send / recv, root of broadcast / reduce (global rank)
  std::int32_t communicator = -1;  ///< index into Program::communicators; -1 for send / recv
  std::array<Slot, most_operands>
      slots{};  ///< one for each operand of the kind, in the order of its form
  /// What is moved or added: part `part` of `parts` equal ones. A collective divides it among its
  /// members.
  std::int16_t part = 0, parts = 1;
  LaneCounts waits{};  ///< what must be finished first; its own lane is implied

  /// The slot of an operand. Throws LogicError if the kind has no such operand.
  [[nodiscard]] const Slot& operator[](Operand operand) const;
  [[nodiscard]] Slot& operator[](Operand operand);
  friend bool operator==(const Action&, const Action&) = default;
};

[[nodiscard]] constexpr bool is_compute(Kind kind) {
  return kind <= Kind::update;
}

/// F, BW, B or W: the actions that take a tick.
[[nodiscard]] constexpr bool is_visit(Kind kind) {
  return kind == Kind::forward || kind == Kind::backward || kind == Kind::backward_input ||
         kind == Kind::backward_weight;
}

[[nodiscard]] constexpr bool is_point_to_point(Kind kind) {
  return kind == Kind::send || kind == Kind::recv;
}

[[nodiscard]] constexpr bool is_collective(Kind kind) {
  return kind >= Kind::broadcast;
}

[[nodiscard]] constexpr bool is_rooted(Kind kind) {
  return kind == Kind::broadcast || kind == Kind::reduce;
}

[[nodiscard]] constexpr bool is_reducing(Kind kind) {
  return kind == Kind::reduce || kind == Kind::reduce_scatter || kind == Kind::all_reduce;
}

[[nodiscard]] constexpr bool is_communication(Kind kind) {
  return kind >= Kind::send;
}

[[nodiscard]] constexpr bool of_embeddings(Payload payload) {
  return payload == Payload::embeddings || payload == Payload::embeddings_gradient;
}

[[nodiscard]] constexpr bool of_embeddings(SlotClass cls) {
  return cls == SlotClass::embeddings || cls == SlotClass::embeddings_accumulator;
}

/// True for slots that sum gradients of several micro-batches, or their squares: fp32.
[[nodiscard]] constexpr bool is_sum(SlotClass cls) {
  return cls == SlotClass::accumulator || cls == SlotClass::partial ||
         cls == SlotClass::embeddings_accumulator || cls == SlotClass::squares;
}

/// True for slots that keep their content from step to step.
[[nodiscard]] constexpr bool is_permanent(SlotClass cls) {
  return cls == SlotClass::owned || cls == SlotClass::accumulator || of_embeddings(cls);
}

/// The lane of a message or collective; `inside`: all members of the collective are of one group.
[[nodiscard]] Lane lane_of(Kind kind, Payload payload, bool inside);

/// Use of an operand's slot by an action. `accumulate`: written, and read as well if the action
/// accumulates.
enum class Touch : std::uint8_t { read, write, modify, accumulate };

/// The operands of a kind of action: the only place that knows their order.
struct Form {
  struct Use {
    Operand operand = Operand::none;
    std::string_view classes;  ///< letters of the slot classes that it may be of
    Touch touch = Touch::read;
  };

  std::string_view name;
  std::array<Use, most_operands> uses{};
  bool shard = false, micro_batch = false;  ///< whether the action names one
};

[[nodiscard]] Form form_of(const Action& action);
/// Place of an operand in Action::slots. Throws LogicError if the kind has no such operand.
[[nodiscard]] std::size_t place_of(Kind kind, Operand operand);

struct Access {
  Operand operand = Operand::none;
  Slot slot;
  bool read = false, write = false;
};

struct Accesses {
  std::array<Access, most_operands> items{};
  int count = 0;

  [[nodiscard]] const Access* begin() const { return items.data(); }

  [[nodiscard]] const Access* end() const { return items.data() + count; }
};

/// `rank` decides the side of rooted collectives: the root of a broadcast reads, the others write.
[[nodiscard]] Accesses accesses(const Action& action, int rank);

/// Last uses of a slot: places in each lane, counted from 1.
struct SlotHistory {
  LaneCounts written{};
  LaneCounts read{};  ///< since the last write

  void touch(const Access& access, Lane lane, std::int32_t place) {
    if (access.write)
      *this = {};
    (access.write ? written : read)[index_of(lane)] = place;
  }
};

[[nodiscard]] std::string_view name_of(Kind kind);
[[nodiscard]] std::string_view name_of(Lane lane);
[[nodiscard]] std::string_view name_of(Payload payload);
[[nodiscard]] std::string_view name_of(Operand operand);
[[nodiscard]] char letter_of(SlotClass cls);
[[nodiscard]] std::string name_of(Slot slot);

struct Communicator {
  std::string name;  ///< "world", "group2"
  std::vector<int> ranks;
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
  int slice = 0;  ///< of Program::owned_slices: what the rank holds of each shard in `owned_shards`
  int embeddings_slice =
      -1;  ///< the only slice of the embeddings that it holds, if any; -1: all of them
  Part kept{}, partial{};  ///< of each shard, what the rank's slots of these classes hold
  friend bool operator==(const RankProgram&, const RankProgram&) = default;
};

/// One training step of all ranks: the only description of a schedule, which all parts of miniTaw
/// read.
struct Program {
  std::string schedule;   ///< name with options, as in the deck: "tawpipe:cco=off"
  int shards = 0;         ///< shards the blocks are split into
  int micro_batches = 0;  ///< M, of all ranks together
  int embeddings_slices =
      1;  ///< equal slices of the embeddings, updated by one rank of each replica each
  bool embeddings_split = false;  ///< two slices: the embedding; final norm and head
  int owned_slices = 1;  ///< equal slices of each shard, kept by one rank of each replica each
  int shard_parts = 1;   ///< every shard is padded so that this many parts are equal
  int replicas = 1;    ///< ranks r, r + P / replicas, ... do the same with their own micro-batches
  bool clips = false;  ///< updates read the squares of all gradients
  topology::Groups groups{{1}};
  std::vector<Communicator> communicators;
  std::vector<RankProgram> ranks;
  friend bool operator==(const Program&, const Program&) = default;
};

/// Returns the part of each shard that the rank's slots of a class hold. Not for those of the
/// embeddings.
[[nodiscard]] Part part_of(const Program& program, int rank, SlotClass cls);
/// Returns the division of the model among the program's ranks.
[[nodiscard]] model::Cut cut_of(const Program& program);
/// Indices into RankProgram::actions of a lane's actions, in order.
[[nodiscard]] std::vector<int> actions_of(const RankProgram& rank, Lane lane);
/// Returns for each action the action after which its buffers are free: itself, or for messages the
/// last one of the messages of the same tick that follow each other in the program, in any lanes:
/// they shall not wait for each other.
[[nodiscard]] std::vector<int> releases(const RankProgram& rank);
/// Returns whether a message may begin before an earlier one of its lane ends: one direction, no
/// slot in common.
[[nodiscard]] bool may_overlap(const Action& earlier, const Action& later);
/// Micro-batches whose tokens a rank reads, in ascending order: those that it embeds or has a loss
/// of.
[[nodiscard]] std::vector<int> token_batches_of(const RankProgram& rank);
/// "W3", "G3", "A3", "D3", "E", "E3", "EG", or "s3" where nothing moves; empty without a shard.
[[nodiscard]] std::string payload_text(Payload payload, int shard);
/// One action as a line: "F s3 m1 w0 a0 x0", "send W3 w1 -> r5", "reduce G3 g0 root r2 @group0".
[[nodiscard]] std::string to_text(const Action& action, const Program& program);
/// The whole program. Lines of a rank: <tick> <lane> <action> [after <lane>:<count> ...]
[[nodiscard]] std::string to_text(const Program& program);
}  // namespace minitaw::schedule
