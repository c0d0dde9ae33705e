// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "model/shard_pass.hpp"
#include "schedule/vocabulary.hpp"

/// Kinds of actions, and the slots that each reads and writes.
namespace minitaw::schedule {
enum class Operand : std::uint8_t {
  none,
  weights,   ///< of a shard, or of embedding and LM head
  saved,     ///< activations that F saves for the backward pass
  hidden,    ///< hidden state of a micro-batch, or its gradient; changed in place
  deferred,  ///< inputs of the weight gradient that B leaves for W
  keys,      ///< keys and values of a block, or of all of a shard's, for whole sequences
  key_gradient,
  gradient,     ///< of a shard, or of embedding and LM head
  source,       ///< add, load: the buffer that is read
  destination,  ///< add, load: the buffer that is written
  buffer,       ///< messages and collectives: the buffer that moves
  squares,      ///< square; update, where the gradient is clipped
};

/// Use of an operand's slot by an action.
enum class Touch : std::uint8_t {
  read,
  write,
  modify,      ///< both
  accumulate,  ///< written, and read as well if the action accumulates
  extend,      ///< written, and read as well if the action extends
};

struct Use {
  Operand operand = Operand::none;
  SlotClasses classes{};  ///< that its slot may be of
  Touch touch = Touch::read;
  bool optional = false;  ///< an action may do without
};

inline constexpr int most_operands = 6;  ///< of one action

/// The operands of an action, in the order of Action::slots: only the tables below know it.
using Uses = std::array<Use, most_operands>;

/// Kind of an action.
enum class Kind : std::uint8_t {
  embed,
  forward,
  loss,
  backward,         ///< both halves of the backward pass
  backward_input,   ///< towards the input
  backward_weight,  ///< towards the weights
  embed_backward,
  square,  ///< adds the squares of a gradient to those of the whole model
  update,
  zero,
  accumulate,  ///< destination = source, or += if the action accumulates
  load,        ///< destination = source, rounded to its precision
  join,        ///< the rank's step ends here
  send,
  recv,
  broadcast,
  reduce,
  all_gather,
  reduce_scatter,
  all_reduce,
};

/// Sort of work.
enum class Work : std::uint8_t {
  visit,       ///< computation of a tick, of a shard and a micro-batch: F, BW, B or W
  end,         ///< computation of a micro-batch beside it: the model's embedding or its loss
  compute,     ///< other computation, of its payload
  local,       ///< copy or addition on one rank
  join,        ///< none
  message,     ///< from one rank to another
  collective,  ///< of all ranks of a communicator
};

struct KindRow {
  Kind value;
  std::string_view name;  ///< in texts of programs
  Work work;
  Uses uses = {};         ///< of a visit: of all its segments in one
  bool rooted = false;    ///< a collective from or to one rank
  bool reducing = false;  ///< a collective that adds up
};

/// Operands that visits have in common.
namespace use {
using enum Touch;
inline constexpr bool maybe = true;
inline constexpr Use weights{Operand::weights, {SlotClass::owned, SlotClass::weights}};
inline constexpr Use saved{Operand::saved, {SlotClass::saved}};
inline constexpr Use state{Operand::hidden, {SlotClass::hidden}, modify};
inline constexpr Use state_before{Operand::hidden, {SlotClass::hidden}};
inline constexpr Use left_by_b{Operand::deferred, {SlotClass::deferred}};
inline constexpr Use deferred{Operand::deferred, {SlotClass::deferred}, write};
inline constexpr Use more_deferred{Operand::deferred, {SlotClass::deferred}, modify};
inline constexpr Use gradient{Operand::gradient,
    {SlotClass::accumulator, SlotClass::gradient, SlotClass::partial},
    accumulate};
inline constexpr Use own_keys{Operand::keys, {SlotClass::keys}, write};
inline constexpr Use all_keys{Operand::keys, {SlotClass::keys, SlotClass::prefix}};
inline constexpr Use keys_of_slices{Operand::keys, {SlotClass::prefix}, read, maybe};
inline constexpr Use sums_of_slices{
    Operand::key_gradient, {SlotClass::prefix_gradient}, extend, maybe};
inline constexpr Use sums_of_keys{
    Operand::key_gradient, {SlotClass::key_gradient, SlotClass::prefix_gradient}, extend};
inline constexpr Use summed_keys{Operand::key_gradient, {SlotClass::key_gradient}};
}  // namespace use

/// The slot classes of a transfer follow from its payload; of square and update, those of its data.
template <>
inline constexpr auto table_of<Kind> = [] {
  using enum Operand;
  using enum Touch;
  using enum Work;
  using Slots = SlotClass;
  constexpr bool rooted = true, reducing = true;
  constexpr Use weights_of_end{weights, {Slots::embeddings}};
  constexpr Use gradient_of_end{gradient, {Slots::embeddings_accumulator}, accumulate};
  constexpr Use complete{gradient, {Slots::accumulator, Slots::embeddings_accumulator}};
  constexpr Use input{buffer}, output{buffer, {}, write}, both{buffer, {}, modify};
  return std::to_array<KindRow>({
      {Kind::embed, "embed", end, {{{hidden, {Slots::hidden}, write}, weights_of_end}}},
      {Kind::forward,
          "F",
          visit,
          {{use::weights,
              {saved, {Slots::saved}, write},
              use::state,
              {keys, {Slots::prefix}, extend, use::maybe}}}},
      {Kind::loss, "loss", end, {{use::state, weights_of_end, gradient_of_end}}},
      {Kind::backward,
          "BW",
          visit,
          {{use::weights,
              use::saved,
              use::state,
              use::gradient,
              use::keys_of_slices,
              use::sums_of_slices}}},
      {Kind::backward_input,
          "B",
          visit,
          {{use::weights,
              use::saved,
              use::state,
              use::deferred,
              use::keys_of_slices,
              use::sums_of_slices}}},
      {Kind::backward_weight,
          "W",
          visit,
          {{use::saved,
              use::left_by_b,
              {gradient, {Slots::accumulator, Slots::gradient}, accumulate}}}},
      {Kind::embed_backward, "dembed", end, {{use::state_before, gradient_of_end}}},
      {Kind::square, "square", compute, {{complete, {squares, {Slots::squares}, accumulate}}}},
      {Kind::update,
          "update",
          compute,
          {{{weights, {Slots::owned, Slots::embeddings}, modify},
              complete,
              {squares, {Slots::squares}, read, use::maybe}}}},
      {Kind::zero, "zero", local, {{{gradient, {Slots::gradient}, write}}}},
      {Kind::accumulate,
          "add",
          local,
          {{{source, {Slots::gradient, Slots::contribution}},
              {destination, {Slots::accumulator, Slots::partial}, accumulate}}}},
      {Kind::load,
          "load",
          local,
          {{{source, {Slots::owned, Slots::weights, Slots::kept, Slots::partial}},
              {destination, {Slots::weights, Slots::kept, Slots::gradient}, write}}}},
      {Kind::join, "join", join},
      {Kind::send, "send", message, {{input}}},
      {Kind::recv, "recv", message, {{output}}},
      // The root of a broadcast reads, that of a reduction writes as well.
      {Kind::broadcast, "broadcast", collective, {{output}}, rooted},
      {Kind::reduce, "reduce", collective, {{input}}, rooted, reducing},
      {Kind::all_gather, "all_gather", collective, {{both}}},
      {Kind::reduce_scatter, "reduce_scatter", collective, {{both}}, !rooted, reducing},
      {Kind::all_reduce, "all_reduce", collective, {{both}}, !rooted, reducing},
  });
}();
static_assert(is_complete(Kind::all_reduce));

// ---- Segments of visits, each of one block, where ranks share sequences ----

using model::Segment;

template <>
inline constexpr auto table_of<Segment> =
    named<Segment>({"all", "keys", "extend", "attend", "share", "weights", "finish"});
static_assert(is_complete(Segment::finish));

struct SegmentRow {
  Kind visit;
  Segment segment;
  Uses uses;
};

inline constexpr auto segments_of_visits = [] {
  using namespace use;
  constexpr Use more_saved{Operand::saved, {SlotClass::saved}, modify};
  constexpr Use gathered{Operand::source, {SlotClass::keys}};
  constexpr Use grown{Operand::keys, {SlotClass::prefix}, extend};
  constexpr Use keys_again{Operand::keys, {SlotClass::keys}, write, maybe};
  constexpr Uses shares{{{Operand::key_gradient, {SlotClass::prefix_gradient}},
      {Operand::destination, {SlotClass::key_gradient}, write}}};
  using enum Kind;
  return std::to_array<SegmentRow>({
      {forward, Segment::keys, {{weights, more_saved, state_before, own_keys}}},
      {forward, Segment::extend, {{gathered, grown}}},
      {forward, Segment::attend, {{weights, more_saved, state, all_keys}}},
      {backward, Segment::keys, {{weights, saved, keys_again}}},
      {backward, Segment::attend, {{weights, saved, state_before, all_keys, sums_of_keys}}},
      {backward, Segment::share, shares},
      {backward, Segment::weights, {{weights, saved, state_before, gradient}}},
      {backward, Segment::finish, {{weights, saved, state, summed_keys, gradient}}},
      {backward_input, Segment::keys, {{weights, saved, keys_again, deferred}}},
      {backward_input,
          Segment::attend,
          {{weights, saved, state_before, all_keys, sums_of_keys, more_deferred}}},
      {backward_input, Segment::share, shares},
      {backward_input, Segment::finish, {{weights, saved, state, summed_keys, more_deferred}}},
  });
}();

// ---- Reading the tables ----

/// F, BW, B, W: all of a visit, or a segment. They take a tick.
constexpr bool is_visit(Kind kind) {
  return row_of(kind).work == Work::visit;
}

/// The embedding or the loss of a micro-batch.
constexpr bool is_end(Kind kind) {
  return row_of(kind).work == Work::end;
}

constexpr bool is_compute(Kind kind) {
  return is_visit(kind) || is_end(kind) || row_of(kind).work == Work::compute;
}

constexpr bool is_point_to_point(Kind kind) {
  return row_of(kind).work == Work::message;
}

constexpr bool is_collective(Kind kind) {
  return row_of(kind).work == Work::collective;
}

constexpr bool is_communication(Kind kind) {
  return is_point_to_point(kind) || is_collective(kind);
}

constexpr bool is_rooted(Kind kind) {
  return row_of(kind).rooted;
}

constexpr bool is_reducing(Kind kind) {
  return row_of(kind).reducing;
}
}  // namespace minitaw::schedule
