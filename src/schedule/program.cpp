// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/program.hpp"
#include <algorithm>
#include <fmt/ranges.h>
#include <iterator>
#include <set>
#include "base/error.hpp"

namespace minitaw::schedule {
namespace {
using enum Operand;
using enum Touch;

/// Forms by kind. The slot classes of a transfer follow from its payload.
constexpr std::array<Form, kinds> forms = {{
    {"embed", {{{hidden, "x", write}, {weights, "e", read}}}, false, true},
    {"F", {{{weights, "hw", read}, {saved, "a", write}, {hidden, "x", modify}}}, true, true},
    {"loss",
        {{{hidden, "x", modify}, {weights, "e", read}, {gradient, "f", accumulate}}},
        false,
        true},
    {"BW",
        {{{weights, "hw", read},
            {saved, "a", read},
            {hidden, "x", modify},
            {gradient, "tgp", accumulate}}},
        true,
        true},
    {"B",
        {{{weights, "hw", read},
            {saved, "a", read},
            {hidden, "x", modify},
            {deferred, "b", write}}},
        true,
        true},
    {"W", {{{saved, "a", read}, {deferred, "b", read}, {gradient, "tg", accumulate}}}, true, true},
    {"dembed", {{{hidden, "x", read}, {gradient, "f", accumulate}}}, false, true},
    {"square",
        {{{gradient, "t", read}, {squares, "n", accumulate}}},
        true},  // of the embeddings: f
    {"update",
        {{{weights, "h", modify}, {gradient, "t", read}, {squares, "n", read}}},
        true},  // e f
    {"zero", {{{gradient, "g", write}}}, true},
    {"add", {{{source, "gc", read}, {destination, "tp", accumulate}}}, true},
    {"load", {{{source, "hwkp", read}, {destination, "wkg", write}}}, true},
    {"join"},
    {"send", {{{buffer, "", read}}}},
    {"recv", {{{buffer, "", write}}}},
    {"broadcast", {{{buffer, "", write}}}},  // its root reads
    {"reduce", {{{buffer, "", read}}}},      // its root writes as well
    {"all_gather", {{{buffer, "", modify}}}},
    {"reduce_scatter", {{{buffer, "", modify}}}},
    {"all_reduce", {{{buffer, "", modify}}}},
}};

constexpr std::array<std::string_view, 10> operand_names = {"none",
    "weights",
    "saved",
    "hidden",
    "deferred",
    "gradient",
    "source",
    "destination",
    "buffer",
    "squares"};

/// Name and prefix of a payload, and the classes of its slots.
struct Moves {
  std::string_view name, prefix, classes;
  bool shard = false, micro_batch = false;
};

constexpr std::array<Moves, payloads> moves = {{{"none", "s", ""},
    {"weights", "W", "hwk", true},
    {"gradient", "G", "tgcp", true},
    {"activation", "A", "x", true, true},
    {"activation_grad", "D", "x", true, true},
    {"embeddings", "E", "e"},
    {"embeddings_gradient", "EG", "f"},
    {"squares", "N", "n"}}};

constexpr std::array<std::string_view, lanes> lane_names = {"compute",
    "inputs_group",
    "inputs_recv",
    "inputs_send",
    "gradients_group",
    "gradients_recv",
    "gradients_send"};
constexpr std::array<char, slot_classes> slot_letters = {
    'h', 't', 'w', 'k', 'g', 'c', 'p', 'a', 'b', 'x', 'e', 'f', 'n'};

void append_rank(std::string& text, const Program& program, int rank) {
  const RankProgram& r = program.ranks[rank];
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "rank {} slots", rank);
  for (int c = 0; c < slot_classes; ++c)
    if (r.slots[c] > 0)
      fmt::format_to(out, " {}{}", letter_of(static_cast<SlotClass>(c)), r.slots[c]);
  if (program.owned_slices > 1)
    fmt::format_to(out, " slice {}", r.slice);
  if (r.embeddings_slice >= 0)
    fmt::format_to(out, " embeddings {}", r.embeddings_slice);
  if (r.kept.count > 1)
    fmt::format_to(out, " kept {}/{}", r.kept.index, r.kept.count);
  if (r.partial.count > 1)
    fmt::format_to(out, " partial {}/{}", r.partial.index, r.partial.count);
  fmt::format_to(
      out, " owned{}{}\n", r.owned_shards.empty() ? "" : " ", fmt::join(r.owned_shards, " "));
  for (const Action& a : r.actions) {
    fmt::format_to(out, "{:>4} {:<15} {}", a.tick, name_of(a.lane), to_text(a, program));
    const char* separator = " after ";
    for (int l = 0; l < lanes; ++l)
      if (a.waits[l] > 0) {
        fmt::format_to(out, "{}{}:{}", separator, name_of(static_cast<Lane>(l)), a.waits[l]);
        separator = " ";
      }
    text += "\n";
  }
}
}  // namespace

LaneCounts max_of(const LaneCounts& a, const LaneCounts& b) {
  LaneCounts c{};
  for (int l = 0; l < lanes; ++l)
    c[l] = std::max(a[l], b[l]);
  return c;
}

Form form_of(const Action& action) {
  Form form = forms[index_of(action.kind)];
  if (is_communication(action.kind)) {
    const Moves& what = moves[index_of(action.payload)];
    form.uses[0].classes = what.classes;
    form.shard = what.shard;
    form.micro_batch = what.micro_batch;
  } else if (of_embeddings(action.payload)) {  // square, update
    if (action.kind == Kind::update)
      form.uses[0].classes = "e";
    form.uses[action.kind == Kind::update ? 1 : 0].classes = "f";
  }
  // Programs say whether updates clip: the validator holds them to it.
  if (action.kind == Kind::update && !action[squares].valid())
    form.uses[2] = {};
  return form;
}

std::size_t place_of(Kind kind, Operand operand) {
  const auto& uses = forms[index_of(kind)].uses;
  for (std::size_t i = 0; i < uses.size() && uses[i].operand != none; ++i)
    if (uses[i].operand == operand)
      return i;
  throw LogicError(fmt::format("{} has no operand {}", name_of(kind), name_of(operand)));
}

const Slot& Action::operator[](Operand operand) const {
  return slots[place_of(kind, operand)];
}

Slot& Action::operator[](Operand operand) {
  return slots[place_of(kind, operand)];
}

Accesses accesses(const Action& action, int rank) {
  Accesses result;
  const Form& form = forms[index_of(action.kind)];
  for (std::size_t i = 0; i < action.slots.size(); ++i) {
    if (!action.slots[i].valid())
      continue;
    Touch touch = form.uses[i].touch;
    if (is_rooted(action.kind) && action.peer == rank)
      touch = action.kind == Kind::broadcast ? read : modify;
    const bool reads =
        touch == read || touch == modify || (touch == accumulate && action.accumulates);
    result.items[result.count++] = {form.uses[i].operand, action.slots[i], reads, touch != read};
  }
  return result;
}

Lane lane_of(Kind kind, Payload payload, bool inside) {
  const bool input = payload == Payload::weights || payload == Payload::activation ||
                     payload == Payload::embeddings;
  if (kind == Kind::send)
    return input ? Lane::inputs_send : Lane::gradients_send;
  if (kind == Kind::recv || !inside)
    return input ? Lane::inputs_recv : Lane::gradients_recv;
  return input ? Lane::inputs_group : Lane::gradients_group;
}

std::string_view name_of(Kind kind) {
  return forms[index_of(kind)].name;
}

std::string_view name_of(Lane lane) {
  return lane_names[index_of(lane)];
}

std::string_view name_of(Payload payload) {
  return moves[index_of(payload)].name;
}

std::string_view name_of(Operand operand) {
  return operand_names[index_of(operand)];
}

std::string payload_text(Payload payload, int shard) {
  if (payload == Payload::none && shard < 0)
    return "";
  return fmt::format(
      "{}{}", moves[index_of(payload)].prefix, shard < 0 ? "" : std::to_string(shard));
}

char letter_of(SlotClass cls) {
  return slot_letters[index_of(cls)];
}

std::string name_of(Slot slot) {
  return fmt::format("{}{}", letter_of(slot.cls), slot.index);
}

Part part_of(const Program& program, int rank, SlotClass cls) {
  const RankProgram& r = program.ranks[rank];
  switch (cls) {
  case SlotClass::owned:
  case SlotClass::accumulator: return {r.slice, program.owned_slices};
  case SlotClass::kept: return r.kept;
  case SlotClass::partial: return r.partial;
  default: return {};
  }
}

model::Cut cut_of(const Program& program) {
  // Whoever has the head computes it for all micro-batches, unless everybody has it.
  const bool head_counts = std::ranges::any_of(program.ranks, [](const RankProgram& rank) {
    return rank.embeddings_slice >= 0 || rank.slots[index_of(SlotClass::embeddings)] == 0;
  });
  return {program.shards,
      program.embeddings_slices,
      program.shard_parts,
      program.embeddings_split,
      head_counts};
}

std::vector<int> actions_of(const RankProgram& rank, Lane lane) {
  std::vector<int> result;
  for (int i = 0; i < static_cast<int>(rank.actions.size()); ++i)
    if (rank.actions[i].lane == lane)
      result.push_back(i);
  return result;
}

std::vector<int> releases(const RankProgram& rank) {
  std::vector<int> ends(rank.actions.size());
  for (int i = static_cast<int>(ends.size()) - 1; i >= 0; --i) {
    ends[i] = i;
    if (i + 1 == static_cast<int>(ends.size()))
      continue;
    if (const Action &a = rank.actions[i], &b = rank.actions[i + 1];
        is_point_to_point(a.kind) && is_point_to_point(b.kind) && a.tick == b.tick)
      ends[i] = ends[i + 1];
  }
  return ends;
}

bool may_overlap(const Action& earlier, const Action& later) {
  return is_point_to_point(later.kind) && earlier.kind == later.kind &&
         (later.kind == Kind::send || earlier[buffer] != later[buffer]);
}

std::vector<int> token_batches_of(const RankProgram& rank) {
  std::set<int> batches;
  for (const Action& a : rank.actions) {
    const bool reads =
        a.kind == Kind::embed || a.kind == Kind::loss || a.kind == Kind::embed_backward;
    if (reads)
      batches.insert(a.micro_batch);
  }
  return {batches.begin(), batches.end()};
}

std::string to_text(const Action& a, const Program& program) {
  std::string line{name_of(a.kind)};
  const auto add = [&](const std::string& word) { line += " " + word; };
  const std::string part = a.parts == 1 ? "" : fmt::format("[{}/{}]", a.part, a.parts);
  if (const std::string what = payload_text(a.payload, a.shard); !what.empty())
    add(what + part);
  if (a.micro_batch >= 0)
    add(fmt::format("m{}", a.micro_batch));
  for (std::size_t i = 0; i < a.slots.size(); ++i)  // "+g0": adds to the slot instead of writing it
    if (a.slots[i].valid())
      add((a.accumulates && form_of(a).uses[i].touch == accumulate ? "+" : "") +
          name_of(a.slots[i]));
  if (a.kind == Kind::send)
    add(fmt::format("-> r{}", a.peer));
  if (a.kind == Kind::recv)
    add(fmt::format("<- r{}", a.peer));
  if (is_rooted(a.kind))
    add(fmt::format("root r{}", a.peer));
  if (a.communicator >= 0)
    add("@" + program.communicators[a.communicator].name);
  return line;
}

std::string to_text(const Program& program) {
  std::string text =
      fmt::format("program {}\nshards {}\nmicro_batches {}\nembeddings_slices {}\ngroups {}\n",
          program.schedule,
          program.shards,
          program.micro_batches,
          program.embeddings_slices,
          program.groups.text());
  if (program.embeddings_split)
    text += "embeddings_split 1\n";
  if (program.owned_slices > 1)
    text += fmt::format("owned_slices {}\n", program.owned_slices);
  if (program.shard_parts > 1)
    text += fmt::format("shard_parts {}\n", program.shard_parts);
  if (program.replicas > 1)
    text += fmt::format("replicas {}\n", program.replicas);
  if (program.clips)
    text += "clips 1\n";
  for (const Communicator& c : program.communicators)
    fmt::format_to(
        std::back_inserter(text), "communicator {} {}\n", c.name, fmt::join(c.ranks, " "));
  for (int r = 0; r < static_cast<int>(program.ranks.size()); ++r)
    append_rank(text, program, r);
  return text;
}
}  // namespace minitaw::schedule
