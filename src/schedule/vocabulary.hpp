// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>
#include "base/range.hpp"

/// The words that programs are written in: enumerations, each with the one table that says
/// everything about its values.
namespace minitaw::schedule {
/// Index of a value in the table of its enumeration, or in an array with an entry for each value.
template <class Enum>
constexpr std::size_t index_of(Enum value) {
  return static_cast<std::size_t>(value);
}

/// The table of an enumeration: a row for each value, in order. Specialised beside each of them.
template <class Enum>
inline constexpr auto table_of = nullptr;

/// Returns whether the table has a row for each value up to `last`, in order.
template <class Enum>
constexpr bool is_complete(Enum last) {
  std::size_t rows = 0;
  for (const auto& row : table_of<Enum>)
    if (index_of(row.value) != rows++)
      return false;
  return rows == index_of(last) + 1;
}

/// A row of an enumeration of which there is only a name to know.
template <class Enum>
struct Named {
  Enum value;
  std::string_view name;
};

/// The table of such an enumeration, from the names of its values in order.
template <class Enum, std::size_t count>
constexpr auto named(const std::string_view (&names)[count]) {
  std::array<Named<Enum>, count> rows{};
  for (std::size_t i = 0; i < count; ++i)
    rows[i] = {static_cast<Enum>(i), names[i]};
  return rows;
}

/// The row of a value in the table of its enumeration.
template <class Enum>
constexpr const auto& row_of(Enum value) {
  return table_of<Enum>[index_of(value)];
}

template <class Enum>
  requires requires { table_of<Enum>.front().name; }
constexpr std::string_view name_of(Enum value) {
  return row_of(value).name;
}

/// Names of all values of an enumeration, in order.
template <class Enum>
std::vector<std::string> names_of() {
  return list_of(table_of<Enum>, [](const auto& row) { return std::string(row.name); });
}

// ---- Memory and traffic: what slots and payloads are counted as ----

enum class Memory : std::uint8_t {
  weights,
  gradients,
  optimiser,
  activations,
  buffers,
  tokens,
  context,  ///< keys and values of sequences that ranks share, or slices, and their gradients
};

template <>
inline constexpr auto table_of<Memory> = named<Memory>(
    {"weights", "gradients", "optimiser", "activations", "buffers", "tokens", "context"});
static_assert(is_complete(Memory::context));
inline constexpr int memory_kinds = table_of<Memory>.size();

enum class Traffic : std::uint8_t { weights, gradients, activations, embeddings, context };

template <>
inline constexpr auto table_of<Traffic> =
    named<Traffic>({"weights", "gradients", "activations", "embeddings", "context"});
static_assert(is_complete(Traffic::context));
inline constexpr int traffic_kinds = table_of<Traffic>.size();

// ---- Lanes ----

/// A queue of a rank, in order. A transfer waits only in its lane: receives, sends and collectives
/// of a group pass each other (docs/decisions.md, 13).
enum class Lane : std::uint8_t {
  compute,
  inputs_group,  ///< of the computation: collectives inside a group
  inputs_recv,   ///< receives, and collectives that leave a group
  inputs_send,
  gradients_group,  ///< and other results, in three lanes likewise
  gradients_recv,
  gradients_send,
  context_inputs,     ///< keys and values of a context group: messages of other nodes never hold
                      ///< them up
  context_gradients,  ///< their gradients
};

template <>
inline constexpr auto table_of<Lane> = named<Lane>({"compute",
    "inputs_group",
    "inputs_recv",
    "inputs_send",
    "gradients_group",
    "gradients_recv",
    "gradients_send",
    "context_inputs",
    "context_gradients"});
static_assert(is_complete(Lane::context_gradients));
inline constexpr int lanes = table_of<Lane>.size();

// ---- What slots hold and actions move ----

/// The data in a slot or a transfer: all of it or one of its equal parts.
enum class Data : std::uint8_t {
  number,
  shard,        ///< weights of a shard, or their gradient
  embeddings,   ///< weights of embedding and LM head, or their gradient
  micro_batch,  ///< activations of a micro-batch, never a part
  keys,    ///< keys and values of a block for whole sequences of a micro-batch, or their gradient
  prefix,  ///< keys and values of all blocks of a shard, never a part
};

// ---- Classes of slots ----

/// Class of a slot: a named buffer of a rank.
enum class SlotClass : std::uint8_t {
  owned,         ///< weights of an owned shard or slice of one
  accumulator,   ///< gradient of an owned shard or slice, summed over the step
  weights,       ///< weights passing through, or kept whole for later visits
  kept,          ///< a part of a shard's weights, kept for later visits in the group
  gradient,      ///< a gradient contribution passing through
  contribution,  ///< one from another rank, at its own time: computing never waits for its slot
  partial,       ///< gradient of a shard or a part of it, summed here before it goes to its owner
  saved,         ///< saved by F for the backward pass of one (shard, micro-batch)
  deferred,      ///< left by B for W of one (shard, micro-batch)
  hidden,        ///< hidden state of a micro-batch, later its gradient
  keys,          ///< keys and values of a block, for whole sequences that ranks share
  key_gradient,  ///< their gradient
  prefix,  ///< keys and values of a shard's blocks, which slices of a micro-batch fill one by one
  prefix_gradient,         ///< their gradient, which later slices add to
  embeddings,              ///< weights of embedding and LM head, or the slice that the rank has
  embeddings_accumulator,  ///< their gradient, summed over the step
  squares,                 ///< sum of the squares of gradients, a number and scratch
};

/// A set of slot classes.
class SlotClasses {
public:
  constexpr SlotClasses() = default;

  constexpr SlotClasses(std::initializer_list<SlotClass> classes) {
    for (const SlotClass cls : classes)
      add(cls);
  }

  constexpr void add(SlotClass cls) { bits_ |= bit_of(cls); }

  constexpr bool contains(SlotClass cls) const { return (bits_ & bit_of(cls)) != 0; }

  constexpr bool empty() const { return bits_ == 0; }

private:
  static constexpr std::uint32_t bit_of(SlotClass cls) { return 1U << index_of(cls); }

  std::uint32_t bits_ = 0;
};

/// Type of the values in a slot.
enum class Precision : std::uint8_t {
  compute,  ///< that of the kernels
  transit,  ///< grad_dtype: gradients on their way to a sum
  shared,   ///< context_grad_dtype: gradients of keys and values that ranks or slices share
  sum,      ///< fp32: sums of several micro-batches
};

struct SlotClassRow {
  SlotClass value;
  char letter;            ///< in texts of programs
  std::string_view name;  ///< in sentences
  Memory memory;
  Precision precision = Precision::compute;
  Data data = Data::shard;
  bool permanent = false;  ///< keeps its content from step to step
};

template <>
inline constexpr auto table_of<SlotClass> = [] {
  using enum Memory;
  using enum Precision;
  using enum Data;
  constexpr bool permanent = true;
  return std::to_array<SlotClassRow>({
      {SlotClass::owned, 'h', "owned weights", weights, compute, shard, permanent},
      {SlotClass::accumulator, 't', "accumulator", gradients, sum, shard, permanent},
      {SlotClass::weights, 'w', "weights", weights},
      {SlotClass::kept, 'k', "kept weights", weights},
      {SlotClass::gradient, 'g', "gradient", gradients, transit},
      {SlotClass::contribution, 'c', "contribution", gradients, transit},
      {SlotClass::partial, 'p', "partial sum", gradients, sum},
      {SlotClass::saved, 'a', "saved activations", activations, compute, micro_batch},
      {SlotClass::deferred, 'b', "deferred inputs", activations, compute, micro_batch},
      {SlotClass::hidden, 'x', "hidden state", activations, compute, micro_batch},
      {SlotClass::keys, 'v', "keys and values", Memory::context, compute, Data::keys},
      {SlotClass::key_gradient,
          'd',
          "gradient of keys and values",
          Memory::context,
          Precision::shared,
          Data::keys},
      {SlotClass::prefix, 'y', "keys and values of slices", Memory::context, compute, Data::prefix},
      {SlotClass::prefix_gradient,
          'z',
          "gradient of keys and values of slices",
          Memory::context,
          Precision::shared,
          Data::prefix},
      {SlotClass::embeddings, 'e', "embeddings", weights, compute, embeddings, permanent},
      {SlotClass::embeddings_accumulator,
          'f',
          "embeddings' accumulator",
          gradients,
          sum,
          embeddings,
          permanent},
      {SlotClass::squares, 'n', "squares", buffers, sum, number},
  });
}();
static_assert(is_complete(SlotClass::squares));
inline constexpr int slot_classes = table_of<SlotClass>.size();

// ---- Payloads ----

/// The data that an action moves or updates. In texts, before the number of a shard: "W3".
enum class Payload : std::uint8_t {
  none,
  weights,
  gradient,
  activation,       ///< hidden state of a micro-batch at the input of the shard
  activation_grad,  ///< its gradient
  keys,             ///< keys and values of a block
  key_gradient,     ///< their gradient
  embeddings,       ///< weights of embedding and LM head
  embeddings_gradient,
  squares,  ///< sum of the squares of all gradients
};

struct PayloadRow {
  Payload value;
  std::string_view name, prefix;
  SlotClasses classes;  ///< of the slots that messages move it from and to
  Traffic traffic;
  Data data = Data::number;
  Lane lane = Lane::gradients_group;  ///< of collectives inside a group: lane_of()
};

template <>
inline constexpr auto table_of<Payload> = [] {
  using enum Data;
  using Slots = SlotClass;
  constexpr Lane inputs = Lane::inputs_group;
  constexpr Traffic weights = Traffic::weights, gradients = Traffic::gradients;
  constexpr Traffic activations = Traffic::activations, of_embeddings = Traffic::embeddings;
  constexpr SlotClasses of_weights{Slots::owned, Slots::weights, Slots::kept};
  constexpr SlotClasses of_gradients{
      Slots::accumulator, Slots::gradient, Slots::contribution, Slots::partial};
  return std::to_array<PayloadRow>({
      {Payload::none, "none", "s", {}, weights},
      {Payload::weights, "weights", "W", of_weights, weights, shard, inputs},
      {Payload::gradient, "gradient", "G", of_gradients, gradients, shard},
      {Payload::activation, "activation", "A", {Slots::hidden}, activations, micro_batch, inputs},
      {Payload::activation_grad, "activation_grad", "D", {Slots::hidden}, activations, micro_batch},
      {Payload::keys, "keys", "KV", {Slots::keys}, Traffic::context, keys, Lane::context_inputs},
      {Payload::key_gradient,
          "key_gradient",
          "DKV",
          {Slots::key_gradient},
          Traffic::context,
          keys,
          Lane::context_gradients},
      {Payload::embeddings,
          "embeddings",
          "E",
          {Slots::embeddings},
          of_embeddings,
          embeddings,
          inputs},
      {Payload::embeddings_gradient,
          "embeddings_gradient",
          "EG",
          {Slots::embeddings_accumulator},
          of_embeddings,
          embeddings},
      {Payload::squares, "squares", "N", {Slots::squares}, gradients},
  });
}();
static_assert(is_complete(Payload::squares));

// ---- Reading the tables ----

constexpr char letter_of(SlotClass cls) {
  return row_of(cls).letter;
}

constexpr Memory memory_of(SlotClass cls) {
  return row_of(cls).memory;
}

/// True for slots that sum gradients of several micro-batches, or their squares: fp32.
constexpr bool is_sum(SlotClass cls) {
  return row_of(cls).precision == Precision::sum;
}

/// True for slots that keep their content from step to step.
constexpr bool is_permanent(SlotClass cls) {
  return row_of(cls).permanent;
}

constexpr bool of_embeddings(SlotClass cls) {
  return row_of(cls).data == Data::embeddings;
}

constexpr bool of_embeddings(Payload payload) {
  return row_of(payload).data == Data::embeddings;
}

constexpr Traffic traffic_of(Payload payload) {
  return row_of(payload).traffic;
}
}  // namespace minitaw::schedule
