#include "schedule/program.hpp"

#include <algorithm>
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
  case SlotClass::owned:
    return {slot, true, kind == Kind::update};
  case SlotClass::weights:
  case SlotClass::contribution:
    return {slot, true, false};
  case SlotClass::gradient:
    return {slot, action.accumulates, true};
  case SlotClass::accumulator:
  case SlotClass::embeddings_accumulator:
    return {slot, action.accumulates || kind == Kind::update, kind != Kind::update};
  case SlotClass::saved:
    return {slot, kind != Kind::forward, kind == Kind::forward};
  case SlotClass::deferred:
    return {slot, kind != Kind::backward_input, kind == Kind::backward_input};
  case SlotClass::hidden:
    return {slot, kind != Kind::embed, kind != Kind::embed_backward};
  case SlotClass::embeddings:
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

Lane lane_of(Kind kind, Payload payload, bool inside) {
  const bool operand =
      payload == Payload::weights || payload == Payload::activation || payload == Payload::embeddings;
  if (kind == Kind::send) return operand ? Lane::operands_out : Lane::gradients_out;
  if (kind == Kind::recv || !inside) return operand ? Lane::operands_in : Lane::gradients_in;
  return operand ? Lane::operands : Lane::gradients;
}

std::string_view name_of(Kind kind) { return kind_names[static_cast<std::size_t>(kind)]; }
std::string_view name_of(Lane lane) { return lane_names[static_cast<std::size_t>(lane)]; }
char letter_of(SlotClass cls) { return slot_letters[static_cast<std::size_t>(cls)]; }

model::Cut cut_of(const Program& program) {
  return {program.shards, program.embeddings_slices, program.shard_parts, program.embeddings_split};
}

std::vector<int> actions_of(const RankProgram& rank, Lane lane) {
  std::vector<int> result;
  for (int i = 0; i < static_cast<int>(rank.actions.size()); ++i)
    if (rank.actions[i].lane == lane) result.push_back(i);
  return result;
}

std::vector<int> releases(const RankProgram& rank) {
  std::vector<int> ends(rank.actions.size());
  for (int i = static_cast<int>(ends.size()) - 1; i >= 0; --i) {
    ends[i] = i;
    if (i + 1 == static_cast<int>(ends.size())) continue;
    if (const Action &a = rank.actions[i], &b = rank.actions[i + 1];
        is_point_to_point(a.kind) && is_point_to_point(b.kind) && a.tick == b.tick)
      ends[i] = ends[i + 1];
  }
  return ends;
}

std::vector<int> micro_batches_of(const RankProgram& rank) {
  std::vector<int> result;
  for (const Action& action : rank.actions)
    if (action.kind == Kind::forward) result.push_back(action.micro_batch);
  std::ranges::sort(result);
  result.erase(std::ranges::unique(result).begin(), result.end());
  return result;
}

}  // namespace minitaw::schedule
