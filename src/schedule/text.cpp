#include "schedule/text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>

namespace minitaw::schedule {
namespace {

std::string slot_text(Slot slot) { return fmt::format("{}{}", letter_of(slot.cls), slot.index); }

/// "+g0": the action adds to the slot instead of writing it.
bool adds_to(const Action& a, Slot slot) {
  if (a.kind == Kind::accumulate && slot == a.slots[0]) return false;
  return a.accumulates && (slot.cls == SlotClass::gradient || slot.cls == SlotClass::total ||
                           slot.cls == SlotClass::ends_total);
}

/// "[1/4]": part 1 of 4.
std::string part_text(const Action& a) { return a.parts == 1 ? "" : fmt::format("[{}/{}]", a.part, a.parts); }

void append_waits(std::string& line, const Action& a) {
  const char* separator = " after ";
  for (int l = 0; l < lanes; ++l) {
    if (a.waits[l] == 0) continue;
    fmt::format_to(std::back_inserter(line), "{}{}:{}", separator, name_of(static_cast<Lane>(l)), a.waits[l]);
    separator = " ";
  }
}

void append_rank(std::string& text, const Program& program, int rank) {
  const RankProgram& r = program.ranks[rank];
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "rank {} slots", rank);
  for (int c = 0; c < slot_classes; ++c)
    if (r.slots[c] > 0) fmt::format_to(out, " {}{}", letter_of(static_cast<SlotClass>(c)), r.slots[c]);
  if (program.home_slices > 1) fmt::format_to(out, " slice {}", r.slice);
  if (r.ends_slice >= 0) fmt::format_to(out, " ends {}", r.ends_slice);
  fmt::format_to(out, " homes{}{}\n", r.homes.empty() ? "" : " ", fmt::join(r.homes, " "));
  for (const Action& a : r.actions) {
    std::string line = fmt::format("{:>4} {:<13} {}", a.tick, name_of(a.lane), to_text(a, program));
    append_waits(line, a);
    fmt::format_to(out, "{}\n", line);
  }
}

/// What is not as in most programs.
std::string cuts_text(const Program& p) {
  std::string text;
  const auto add = [&](std::string_view key, int value) { text += fmt::format("{} {}\n", key, value); };
  if (p.ends_split) add("ends_split", 1);
  if (p.home_slices > 1) add("home_slices", p.home_slices);
  if (p.shard_parts > 1) add("shard_parts", p.shard_parts);
  if (p.copies > 1) add("copies", p.copies);
  return text;
}

}  // namespace

std::string payload_text(Payload payload, int shard) {
  switch (payload) {
  case Payload::weights:
    return fmt::format("W{}", shard);
  case Payload::gradient:
    return fmt::format("G{}", shard);
  case Payload::activation:
    return fmt::format("A{}", shard);
  case Payload::activation_grad:
    return fmt::format("D{}", shard);
  case Payload::ends:
    return shard < 0 ? "E" : fmt::format("E{}", shard);
  case Payload::ends_gradient:
    return "EG";
  case Payload::none:
    break;
  }
  return shard < 0 ? "" : fmt::format("s{}", shard);
}

std::string to_text(const Action& a, const Program& program) {
  std::string line{name_of(a.kind)};
  const auto add = [&](const std::string& word) { line += " " + word; };
  if (const std::string what = payload_text(a.payload, a.shard); !what.empty()) add(what + part_text(a));
  if (a.micro_batch >= 0) add(fmt::format("m{}", a.micro_batch));
  for (const Slot slot : a.slots)
    if (slot.valid()) add((adds_to(a, slot) ? "+" : "") + slot_text(slot));
  if (a.kind == Kind::send) add(fmt::format("-> r{}", a.peer));
  if (a.kind == Kind::recv) add(fmt::format("<- r{}", a.peer));
  if (a.kind == Kind::broadcast || a.kind == Kind::reduce) add(fmt::format("root r{}", a.peer));
  if (a.communicator >= 0) add("@" + program.communicators[a.communicator].name);
  return line;
}

std::string to_text(const Program& program) {
  std::string text =
      fmt::format("program {}\nshards {}\nmicro_batches {}\nends_slices {}\ngroups {}\n", program.schedule,
                  program.shards, program.micro_batches, program.ends_slices, program.groups.text());
  text += cuts_text(program);
  for (const Communicator& c : program.communicators)
    fmt::format_to(std::back_inserter(text), "communicator {} {}\n", c.name, fmt::join(c.ranks, " "));
  for (int r = 0; r < static_cast<int>(program.ranks.size()); ++r) append_rank(text, program, r);
  return text;
}

}  // namespace minitaw::schedule
