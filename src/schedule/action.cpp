#include "schedule/action.hpp"

#include <array>

namespace minitaw::schedule {
namespace {

constexpr std::array<std::string_view, 19> kind_names = {
    "embed",     "F",    "loss", "BW",   "B",    "W",         "dembed", "update",     "zero",
    "add",       "load", "join", "send", "recv", "broadcast", "reduce", "all_gather", "reduce_scatter",
    "all_reduce"};
constexpr std::array<std::string_view, lanes> lane_names = {
    "compute", "operands", "operands_in", "operands_out", "gradients", "gradients_in", "gradients_out"};
constexpr std::array<char, slot_classes> slot_letters = {'h', 't', 'w', 'g', 'c', 'a', 'b', 'x', 'e', 'f'};

/// The slots of a compute action; class and kind decide how each is touched.
Access access_of(const Action& action, Slot slot) {
  const Kind kind = action.kind;
  switch (slot.cls) {
  case SlotClass::home:
    return {slot, true, kind == Kind::update};
  case SlotClass::weights:
  case SlotClass::contribution:
    return {slot, true, false};
  case SlotClass::gradient:
    return {slot, action.accumulates, true};
  case SlotClass::total:
  case SlotClass::ends_total:
    return {slot, action.accumulates || kind == Kind::update, kind != Kind::update};
  case SlotClass::kept:
    return {slot, kind != Kind::forward, kind == Kind::forward};
  case SlotClass::stash:
    return {slot, kind != Kind::backward_input, kind == Kind::backward_input};
  case SlotClass::flow:
    return {slot, kind != Kind::embed, kind != Kind::embed_backward};
  case SlotClass::ends:
    return {slot, true, kind == Kind::update};
  }
  return {};
}

/// Whether the rank's buffer is read and written by a communication action.
Access transfer_access(const Action& action, int rank) {
  const bool root = action.peer == rank;
  switch (action.kind) {
  case Kind::send:
    return {action.slots[0], true, false};
  case Kind::recv:
    return {action.slots[0], false, true};
  case Kind::broadcast:
    return {action.slots[0], root, !root};
  case Kind::reduce:
    return {action.slots[0], true, root};
  default:
    return {action.slots[0], true, true};
  }
}

}  // namespace

bool is_compute(Kind kind) { return kind <= Kind::update; }
bool is_point_to_point(Kind kind) { return kind == Kind::send || kind == Kind::recv; }
bool is_collective(Kind kind) { return kind >= Kind::broadcast; }
bool is_communication(Kind kind) { return kind >= Kind::send; }

Accesses accesses(const Action& action, int rank) {
  Accesses result;
  const auto push = [&](Access access) { result.items[result.count++] = access; };
  if (is_communication(action.kind)) {
    push(transfer_access(action, rank));
  } else if (action.kind == Kind::zero) {
    push({action.slots[0], false, true});
  } else if (action.kind == Kind::accumulate) {
    push({action.slots[0], true, false});
    push({action.slots[1], action.accumulates, true});
  } else if (action.kind == Kind::load) {
    push({action.slots[0], true, false});
    push({action.slots[1], false, true});
  } else {
    for (const Slot slot : action.slots)
      if (slot.valid()) push(access_of(action, slot));
  }
  return result;
}

std::string_view name_of(Kind kind) { return kind_names[static_cast<std::size_t>(kind)]; }
Lane lane_of(Kind kind, Payload payload, bool inside) {
  const bool operand =
      payload == Payload::weights || payload == Payload::activation || payload == Payload::ends;
  if (kind == Kind::send) return operand ? Lane::operands_out : Lane::gradients_out;
  if (kind == Kind::recv || !inside) return operand ? Lane::operands_in : Lane::gradients_in;
  return operand ? Lane::operands : Lane::gradients;
}

std::string_view name_of(Lane lane) { return lane_names[static_cast<std::size_t>(lane)]; }
char letter_of(SlotClass cls) { return slot_letters[static_cast<std::size_t>(cls)]; }

}  // namespace minitaw::schedule
