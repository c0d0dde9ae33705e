// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <array>
#include "schedule/execute.hpp"
#include "schedule/pieces.hpp"

namespace minitaw::schedule::detail {
/// What every slot of a program holds, and what an action may ask of it: need...() refuses wrong
/// reads (fresh_reads) and lost or repeated gradients (exact_gradients), leave...() writes. What
/// actions do with it is in contents.cpp.
class SlotContents : protected Check {
protected:
  explicit SlotContents(const Program& program);

  /// Tensors whose gradient gets a contribution from every part of every micro-batch: where they
  /// are in a slot, and the numbers of the contributions.
  struct Tensors {
    Interval parts, numbers;
  };

  [[nodiscard]] Content& content(Place p, Operand operand);
  [[noreturn]] void unexpected(Rule rule, Place p, Operand operand, const Content& wanted);

  // Parts of what slots hold.

  /// All parts of what a slot of this class holds.
  Interval whole(SlotClass cls) const { return {0, parts_of(program_, row_of(cls).data)}; }

  /// Returns the parts that a slot of the rank can hold.
  [[nodiscard]] Interval extent(int rank, SlotClass cls) const;
  [[nodiscard]] Interval moved(const Action& a) const;
  /// Returns slice i of a collective, for each of its members; refuses a part that cannot be
  /// divided.
  [[nodiscard]] Interval slice(Sides calls, std::size_t i) const;

  // Contributions to gradients.

  /// Contributions of one sort: one of each part of each micro-batch.
  std::int32_t contributions() const { return program_.micro_batches * program_.context; }

  /// All tensors of a shard. Where visits have segments, each gives those of its own tensors.
  [[nodiscard]] Tensors shard(std::int32_t number) const;
  [[nodiscard]] Tensors segment_tensors(const Action& a) const;
  [[nodiscard]] Tensors embedding() const;
  [[nodiscard]] Tensors head() const;
  /// All that there is in a slot of this class for gradients of a shard.
  [[nodiscard]] std::vector<Tensors> tensors_of(SlotClass cls, std::int32_t number) const;
  /// "micro-batch 1 of shard 2": a contribution to the gradient that an action is about.
  [[nodiscard]] std::string contribution_text(Place p, std::int32_t number) const;

  // What actions need, and what they leave.

  /// Weights as before the step, or a gradient without contributions, in all that a slot can hold.
  [[nodiscard]] Content blank(int rank, SlotClass cls, std::int32_t shard) const;
  /// What a slot for weights or gradients should hold: of the action's shard, or the embeddings.
  [[nodiscard]] Content wanted(Place p, Operand operand) const;

  // Weights.

  /// Refuses the program unless the slot holds the weights, in all of `range`.
  void need_weights(Place p, Operand operand, Interval range, bool updated_too = false);

  // Activations.

  /// What a rank has of `shard` and the action's micro-batch: its part of the sequences.
  [[nodiscard]] Content activations(
      Place p, std::int32_t shard, bool backward, std::int32_t block) const;
  /// Refuses the program unless the slot holds the data of `shard` and the action's micro-batch;
  /// `block`: as far as the visit has come.
  void need(
      Place p, Operand operand, std::int32_t shard, bool backward = false, std::int32_t block = 0);
  void leave(
      Place p, Operand operand, std::int32_t shard, bool backward = false, std::int32_t block = 0);

  // Keys and values of whole sequences, and their gradient.

  /// Refuses the program unless the slot holds keys of the action's block and micro-batch, in all
  /// of `range`.
  void need_keys(Place p, Operand operand, Interval range);
  /// The same of their gradient; `complete`: summed over the ranks that share the sequences.
  void need_key_gradient(Place p, Operand operand, Interval range, bool complete);
  /// A rank's own chunks, a head and a tail for each part of the heads, among those of all ranks.
  [[nodiscard]] std::vector<std::int32_t> chunks_of(int rank) const;
  void leave_keys(Place p, Operand operand);
  /// A rank's contribution to that of all positions.
  void leave_key_gradient(Place p, Operand operand);

  // Slices. What those of a micro-batch share is followed as a count of visits of blocks, in parts
  // by heads: they fill it in their order, and add to its gradient in the reverse order.

  [[nodiscard]] std::int32_t blocks_of(const Action& a) const;
  [[nodiscard]] std::int32_t visits_of_all_slices(const Action& a) const;
  /// The count before the action.
  [[nodiscard]] std::int32_t before_forward(const Action& a) const;
  [[nodiscard]] std::int32_t before_backward(const Action& a) const;
  [[nodiscard]] Content prefix(Place p, std::int32_t count) const;
  /// Refuses an operand that slices need or whole sequences do not. Returns whether there are
  /// slices.
  [[nodiscard]] bool has_prefix(Place p, Operand operand) const;
  void need_prefix(Place p, Operand operand, std::int32_t count);

  void need_all_slices(Place p) { need_prefix(p, Operand::keys, visits_of_all_slices(at(p))); }

  /// Adds the action's visit to `before` others. A whole visit is one of every block; it reads and
  /// writes all heads.
  void extend(Place p, Operand operand, std::int32_t before);

  // Gradients.

  /// Refuses the program unless the slot holds a gradient, in all of `range`.
  void need_gradient(Place p, Operand operand, Interval range);
  /// Returns whether the gradient of these tensors is one of this step.
  [[nodiscard]] bool written(Place p, Operand operand, const Tensors& tensors);
  /// The action's micro-batch is added to the gradient of these tensors, or replaces it. `begins`:
  /// the visit gives nothing before.
  void contribute(Place p, const Tensors& tensors, bool begins = false);
  /// Adds contributions to pieces of `sum`, which must have their ranges.
  void add(Place p, Pieces& sum, const Pieces& more) const;
  /// The parts of its shard, or the embeddings, whose gradient an action reads; refuses a missing
  /// micro-batch there.
  [[nodiscard]] Interval need_whole_gradient(Place p);

  /// Refuses the program unless the operand holds what the action says that it moves.
  void need_payload(Place p, Operand operand);

  std::vector<std::array<std::vector<Content>, slot_classes>> slots_;  ///< per rank
};
}  // namespace minitaw::schedule::detail
