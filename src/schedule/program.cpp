// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/program.hpp"
#include <algorithm>
#include <fmt/ranges.h>
#include <iterator>
#include <ranges>
#include <set>
#include <utility>
#include "base/error.hpp"

namespace minitaw::schedule {
namespace {
void append_rank(std::string& text, const Program& program, int rank) {
  const RankProgram& r = program.ranks[rank];
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "rank {} slots", rank);
  for (const SlotClassRow& row : table_of<SlotClass>)
    if (const int count = r.slots[index_of(row.value)]; count > 0)
      fmt::format_to(out, " {}{}", row.letter, count);
  if (program.owned_parts > 1)
    fmt::format_to(out, " part {}", r.part);
  if (r.embeddings_part >= 0)
    fmt::format_to(out, " embeddings {}", r.embeddings_part);
  for (const auto& [name, part] : {std::pair("kept", r.kept), std::pair("partial", r.partial)})
    if (part.count > 1)
      fmt::format_to(out, " {} {}/{}", name, part.index, part.count);
  fmt::format_to(
      out, " owned{}{}\n", r.owned_shards.empty() ? "" : " ", fmt::join(r.owned_shards, " "));
  for (const Action& a : r.actions) {
    fmt::format_to(out, "{:>4} {:<15} {}", a.tick, name_of(a.lane), to_text(a, program));
    const char* separator = " after ";
    for (const auto& lane : table_of<Lane>)
      if (const int count = a.waits[index_of(lane.value)]; count > 0)
        fmt::format_to(out, "{}{}:{}", std::exchange(separator, " "), lane.name, count);
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

const Uses& operands_of(const Action& action) {
  static constexpr Uses none{};
  if (!is_segment(action))
    return row_of(action.kind).uses;
  for (const SegmentRow& row : segments_of_visits)
    if (row.visit == action.kind && row.segment == action.segment)
      return row.uses;
  return none;
}

SlotClasses classes_of(const Action& action, const Use& use) {
  if (is_communication(action.kind))
    return use.operand == Operand::buffer ? row_of(action.payload).classes : SlotClasses();
  const bool of_payload_data = row_of(action.kind).work == Work::compute &&
                               action.payload != Payload::none && use.operand != Operand::squares;
  if (!of_payload_data)
    return use.classes;
  SlotClasses of_payload;
  for (const SlotClassRow& row : table_of<SlotClass>)
    if (use.classes.contains(row.value) && row.data == row_of(action.payload).data)
      of_payload.add(row.value);
  return of_payload;
}

std::size_t index_of(const Action& action, Operand operand) {
  const Uses& uses = operands_of(action);
  const auto at = std::ranges::find(uses, operand, &Use::operand);
  if (operand == Operand::none || at == uses.end())
    throw LogicError("{} has no operand number {}", name_of(action), index_of(operand));
  return at - uses.begin();
}

const Slot& Action::operator[](Operand operand) const {
  return slots[index_of(*this, operand)];
}

Slot& Action::operator[](Operand operand) {
  return slots[index_of(*this, operand)];
}

int gradient_number(const Action& action) {
  if (!is_segment(action))
    return -1;
  return gradients_of_block * action.block + (action.segment == Segment::finish ? 1 : 0);
}

Accesses accesses(const Action& action, int rank) {
  using enum Touch;
  Accesses result;
  for (const int i : indices(action.slots)) {
    if (!action.slots[i].valid())
      continue;
    const Use& use = operands_of(action)[i];
    Touch touch = use.touch;
    if (is_rooted(action.kind) && action.peer == rank)
      touch = action.kind == Kind::broadcast ? read : modify;
    const bool reads = touch == read || touch == modify ||
                       (touch == accumulate && action.accumulates) ||
                       (touch == extend && action.extends);
    result.items[result.count++] = {use.operand, action.slots[i], reads, touch != read};
  }
  return result;
}

Lane lane_of(Kind kind, Payload payload, bool inside) {
  const bool receives = kind == Kind::recv || (kind != Kind::send && !inside);
  const std::size_t further = kind == Kind::send ? 2 : receives ? 1 : 0;
  return static_cast<Lane>(index_of(row_of(payload).lane) + further);
}

int Communicator::index_of(int rank) const {
  if (ranks.empty())
    return -1;
  const auto guess = static_cast<std::size_t>(rank - ranks.front());  // most are consecutive
  if (guess < ranks.size() && ranks[guess] == rank)
    return rank - ranks.front();
  const auto at = std::ranges::find(ranks, rank);
  return at == ranks.end() ? -1 : at - ranks.begin();
}

Ranks members_of(const Program& program, int communicator, int job_rank) {
  const Communicator& c = program.communicators[communicator];
  const int rank = program.rank_of(job_rank), replica = program.replica_of(job_rank);
  if (c.among_replicas())
    return list_of(std::views::iota(0, program.replicas),
        [&](int other) { return program.job_rank(other, rank); });
  return list_of(c.ranks, [&](int member) { return program.job_rank(replica, member); });
}

Action in_job(const Program& program, Action action, int replica) {
  if (action.peer >= 0)
    action.peer = program.job_rank(replica, action.peer);
  if (action.micro_batch >= 0)
    action.micro_batch += replica * program.micro_batches;
  return action;
}

std::string name_of(Slot slot) {
  return fmt::format("{}{}", letter_of(slot.cls), slot.index);
}

std::string name_of(const Action& action) {
  std::string name{name_of(action.kind)};
  return is_segment(action) ? fmt::format("{}.{}", name, name_of(action.segment)) : name;
}

std::string describe(Slot slot) {
  return fmt::format("{} {}", name_of(slot.cls), name_of(slot));
}

Part part_of(const Program& program, int rank, SlotClass cls) {
  const RankProgram& r = program.ranks[rank];
  switch (cls) {
  case SlotClass::owned:
  case SlotClass::accumulator: return {r.part, program.owned_parts};
  case SlotClass::kept: return r.kept;
  case SlotClass::partial: return r.partial;
  case SlotClass::embeddings:
  case SlotClass::embeddings_accumulator:
    return r.embeddings_part < 0 ? Part{} : Part{r.embeddings_part, program.embeddings_parts};
  default: return {};
  }
}

int parts_of(const Program& program, Data data) {
  switch (data) {
  case Data::shard: return program.shard_parts;
  case Data::embeddings: return program.embeddings_parts;
  case Data::keys: return 2 * program.context * program.key_parts;
  default: return 1;
  }
}

model::Cut cut_of(const Program& program) {
  // Whoever has the head computes it for all micro-batches, unless every rank has it.
  const bool head_counts = std::ranges::any_of(program.ranks,
      [](const RankProgram& rank) { return rank.embeddings_part >= 0 || !rank.has_embeddings(); });
  return {program.shards,
      program.embeddings_parts,
      program.shard_parts,
      program.embeddings_split,
      head_counts};
}

std::vector<int> actions_of(const RankProgram& rank, Lane lane) {
  std::vector<int> result;
  for (const int i : indices(rank.actions))
    if (rank.actions[i].lane == lane)
      result.push_back(i);
  return result;
}

std::vector<int> releases(const RankProgram& rank) {
  const std::vector<Action>& actions = rank.actions;
  std::vector<int> ends(actions.size());
  for (int i = std::ssize(ends) - 1; i >= 0; --i) {
    const bool last = i + 1 == std::ssize(ends);
    const bool continues = !last && is_point_to_point(actions[i].kind) &&
                           is_point_to_point(actions[i + 1].kind) &&
                           actions[i].tick == actions[i + 1].tick;
    ends[i] = continues ? ends[i + 1] : i;
  }
  return ends;
}

bool may_overlap(const Action& earlier, const Action& later) {
  return is_point_to_point(later.kind) && earlier.kind == later.kind &&
         (later.kind == Kind::send || earlier[Operand::buffer] != later[Operand::buffer]);
}

std::vector<int> token_batches_of(const RankProgram& rank) {
  std::set<int> batches;
  for (const Action& a : rank.actions)
    if (is_end(a.kind))
      batches.insert(a.micro_batch);
  return {batches.begin(), batches.end()};
}

std::string to_text(const Action& a, const Program& program) {
  std::string line = name_of(a);
  const auto add = [&](const std::string& word) { line += " " + word; };
  const std::string part = a.parts == 1 ? "" : fmt::format("[{}/{}]", a.part, a.parts);
  if (a.payload != Payload::none || a.shard >= 0)
    add(fmt::format(
        "{}{}{}", row_of(a.payload).prefix, a.shard < 0 ? "" : std::to_string(a.shard), part));
  if (a.micro_batch >= 0)
    add(program.slices == 1
            ? fmt::format("m{}", a.micro_batch)
            : fmt::format(
                  "m{}.{}", a.micro_batch / program.slices, slice_of(program, a.micro_batch)));
  if (a.block >= 0)
    add(fmt::format("#{}", a.block));
  for (const int i : indices(a.slots))  // "+g0": adds to the slot instead of writing it
    if (a.slots[i].valid()) {
      const Touch touch = operands_of(a)[i].touch;
      const bool adds =
          (a.accumulates && touch == Touch::accumulate) || (a.extends && touch == Touch::extend);
      add((adds ? "+" : "") + name_of(a.slots[i]));
    }
  if (is_point_to_point(a.kind))
    add(fmt::format("{} r{}", a.kind == Kind::send ? "->" : "<-", a.peer));
  if (is_rooted(a.kind))
    add(fmt::format("root r{}", a.peer));
  if (a.communicator >= 0)
    add("@" + program.communicators[a.communicator].name);
  return line;
}

std::string to_text(const Program& program) {
  std::string text =
      fmt::format("program {}\nshards {}\nmicro_batches {}\nembeddings_parts {}\ngroups {}\n",
          program.schedule,
          program.shards,
          program.micro_batches,
          program.embeddings_parts,
          program.groups.text());

  struct Number {
    std::string_view name;
    int usual, value;
  };

  for (const auto& [name, usual, value] : {Number{"embeddings_split", 0, program.embeddings_split},
           {"tied", 0, program.tied},
           {"owned_parts", 1, program.owned_parts},
           {"shard_parts", 1, program.shard_parts},
           {"replicas", 1, program.replicas},
           {"clips", 0, program.clips},
           {"slices", 1, program.slices},
           {"even_slices", 0, program.even_slices},
           {"context", 1, program.context},
           {"key_parts", 1, program.key_parts}})
    if (value != usual)
      text += fmt::format("{} {}\n", name, value);
  if (!program.blocks.empty())
    text += fmt::format("blocks {}\n", fmt::join(program.blocks, " "));
  for (const Communicator& c : program.communicators)
    text += fmt::format(
        "communicator {}{}{}\n", c.name, c.ranks.empty() ? "" : " ", fmt::join(c.ranks, " "));
  for (const int r : indices(program.ranks))
    append_rank(text, program, r);
  return text;
}
}  // namespace minitaw::schedule
