#include "schedule/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace minitaw::schedule {

namespace {

/// By kind. What moves is of a class that its payload allows.
constexpr std::array<Form, kinds> forms = {{
    {"embed", {{{"x", '='}, {"e", '-'}}}, false, true},
    {"F", {{{"hw", '-'}, {"a", '='}, {"x", '+'}}}, true, true},
    {"loss", {{{"x", '+'}, {"e", '-'}, {"f", '~'}}}, false, true},
    {"BW", {{{"hw", '-'}, {"a", '-'}, {"x", '+'}, {"tg", '~'}}}, true, true},
    {"B", {{{"hw", '-'}, {"a", '-'}, {"x", '+'}, {"b", '='}}}, true, true},
    {"W", {{{"a", '-'}, {"b", '-'}, {"tg", '~'}}}, true, true},
    {"dembed", {{{"x", '-'}, {"f", '~'}}}, false, true},
    {"update", {{{"h", '+'}, {"t", '-'}}}, true},  // of the embeddings: e f
    {"zero", {{{"g", '='}}}, true},
    {"add", {{{"gc", '-'}, {"t", '~'}}}, true},
    {"load", {{{"h", '-'}, {"w", '='}}}, true},
    {"join"},
    {"send", {{{"", '-'}}}},
    {"recv", {{{"", '='}}}},
    {"broadcast", {{{"", '='}}}},  // its root reads
    {"reduce", {{{"", '-'}}}},     // its root writes as well
    {"all_gather", {{{"", '+'}}}},
    {"reduce_scatter", {{{"", '+'}}}},
    {"all_reduce", {{{"", '+'}}}},
}};

struct Moves {
  std::string_view classes;
  bool shard, micro_batch;
};
/// By payload.
constexpr std::array<Moves, 7> moves = {{{"", false, false},
                                         {"hw", true, false},
                                         {"tgc", true, false},
                                         {"x", true, true},
                                         {"x", true, true},
                                         {"e", false, false},
                                         {"f", false, false}}};

constexpr std::array<std::string_view, lanes> lane_names = {
    "compute", "operands", "operands_in", "operands_out", "gradients", "gradients_in", "gradients_out"};
constexpr std::array<char, slot_classes> slot_letters = {'h', 't', 'w', 'g', 'c', 'a', 'b', 'x', 'e', 'f'};

}  // namespace

Form form_of(const Action& action) {
  Form form = forms[index_of(action.kind)];
  if (is_communication(action.kind)) {
    const Moves& what = moves[index_of(action.payload)];
    form.uses[0].classes = what.classes;
    form.shard = what.shard;
    form.micro_batch = what.micro_batch;
  } else if (action.kind == Kind::update && of_embeddings(action.payload)) {
    form.uses[0].classes = "e";
    form.uses[1].classes = "f";
  }
  return form;
}

Accesses accesses(const Action& action, int rank) {
  Accesses result;
  const Form& form = forms[index_of(action.kind)];
  for (std::size_t i = 0; i < action.slots.size(); ++i) {
    if (!action.slots[i].valid()) continue;
    char how = form.uses[i].how;
    if (is_rooted(action.kind) && action.peer == rank) how = action.kind == Kind::broadcast ? '-' : '+';
    const bool reads = how == '-' || how == '+' || (how == '~' && action.accumulates);
    result.items[result.count++] = {action.slots[i], reads, how != '-'};
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

std::string_view name_of(Kind kind) { return forms[index_of(kind)].name; }
std::string_view name_of(Lane lane) { return lane_names[index_of(lane)]; }
char letter_of(SlotClass cls) { return slot_letters[index_of(cls)]; }
std::string name_of(Slot slot) { return fmt::format("{}{}", letter_of(slot.cls), slot.index); }

model::Cut cut_of(const Program& program) {
  // Whoever has the head computes it for all micro-batches, unless everybody has it.
  const bool head_counts = std::ranges::any_of(program.ranks, [](const RankProgram& rank) {
    return rank.embeddings_slice >= 0 || rank.slots[index_of(SlotClass::embeddings)] == 0;
  });
  return {program.shards, program.embeddings_slices, program.shard_parts, program.embeddings_split,
          head_counts};
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
