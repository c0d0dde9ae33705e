#include "schedule/program.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <span>

#include "base/error.hpp"
#include "schedule/validate.hpp"

namespace minitaw::schedule {

namespace {

/// Of what an action is about, by payload.
constexpr std::array<std::string_view, 7> prefixes = {"s", "W", "G", "A", "D", "E", "EG"};

/// Lines "key number"; the first three are always there.
constexpr std::array<std::pair<std::string_view, int Program::*>, 6> numbers = {
    {{"shards", &Program::shards},
     {"micro_batches", &Program::micro_batches},
     {"embeddings_slices", &Program::embeddings_slices},
     {"owned_slices", &Program::owned_slices},
     {"shard_parts", &Program::shard_parts},
     {"copies", &Program::copies}}};

/// "+g0": the action adds to the slot instead of writing it.
bool adds_to(const Action& a, Slot slot) {
  if (a.kind == Kind::accumulate && slot == a.slots[0]) return false;
  return a.accumulates && (slot.cls == SlotClass::gradient || slot.cls == SlotClass::accumulator ||
                           slot.cls == SlotClass::embeddings_accumulator);
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
  if (program.owned_slices > 1) fmt::format_to(out, " slice {}", r.slice);
  if (r.embeddings_slice >= 0) fmt::format_to(out, " embeddings {}", r.embeddings_slice);
  fmt::format_to(out, " owned{}{}\n", r.owned_shards.empty() ? "" : " ", fmt::join(r.owned_shards, " "));
  for (const Action& a : r.actions) {
    std::string line = fmt::format("{:>4} {:<13} {}", a.tick, name_of(a.lane), to_text(a, program));
    append_waits(line, a);
    fmt::format_to(out, "{}\n", line);
  }
}

}  // namespace

std::string payload_text(Payload payload, int shard) {
  if (payload == Payload::none && shard < 0) return "";
  return fmt::format("{}{}", prefixes[index_of(payload)], shard < 0 ? "" : std::to_string(shard));
}

std::string to_text(const Action& a, const Program& program) {
  std::string line{name_of(a.kind)};
  const auto add = [&](const std::string& word) { line += " " + word; };
  if (const std::string what = payload_text(a.payload, a.shard); !what.empty()) add(what + part_text(a));
  if (a.micro_batch >= 0) add(fmt::format("m{}", a.micro_batch));
  for (const Slot slot : a.slots)
    if (slot.valid()) add((adds_to(a, slot) ? "+" : "") + name_of(slot));
  if (a.kind == Kind::send) add(fmt::format("-> r{}", a.peer));
  if (a.kind == Kind::recv) add(fmt::format("<- r{}", a.peer));
  if (is_rooted(a.kind)) add(fmt::format("root r{}", a.peer));
  if (a.communicator >= 0) add("@" + program.communicators[a.communicator].name);
  return line;
}

std::string to_text(const Program& program) {
  std::string text = fmt::format("program {}\n", program.schedule);
  const auto add = [&](std::size_t i) {
    text += fmt::format("{} {}\n", numbers[i].first, program.*numbers[i].second);
  };
  for (std::size_t i = 0; i < 3; ++i) add(i);
  text += fmt::format("groups {}\n{}", program.groups.text(),
                      program.embeddings_split ? "embeddings_split 1\n" : "");
  for (std::size_t i = 3; i < numbers.size(); ++i)
    if (program.*numbers[i].second > 1) add(i);
  for (const Communicator& c : program.communicators)
    fmt::format_to(std::back_inserter(text), "communicator {} {}\n", c.name, fmt::join(c.ranks, " "));
  for (int r = 0; r < static_cast<int>(program.ranks.size()); ++r) append_rank(text, program, r);
  return text;
}

namespace {

using Words = std::vector<std::string_view>;

Words split(std::string_view line) {
  Words words;
  for (std::size_t at = 0; (at = line.find_first_not_of(' ', at)) != std::string_view::npos;) {
    const std::size_t end = std::min(line.find(' ', at), line.size());
    words.push_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

class Parser {
public:
  Program parse(std::string_view text) {
    while (!text.empty()) {
      ++line_;
      const std::size_t end = std::min(text.find('\n'), text.size());
      words_ = split(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
      if (!words_.empty()) parse_line();
    }
    return std::move(program_);
  }

private:
  [[noreturn]] void fail(std::string_view expected) const {
    std::string line;
    for (const auto word : words_) line += fmt::format("{}{}", line.empty() ? "" : " ", word);
    throw InputError(fmt::format("program text, line {}: \"{}\": expected {}", line_, line, expected));
  }

  int number(std::string_view word, std::string_view expected) const {
    int value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size()) fail(expected);
    return value;
  }

  std::string_view word(std::size_t i, std::string_view expected) const {
    if (i >= words_.size()) fail(expected);
    return words_[i];
  }

  void parse_line() {
    const std::string_view key = words_[0];
    if (const auto at = std::ranges::find(numbers, key, [](const auto& n) { return n.first; });
        at != numbers.end()) {
      program_.*at->second = number(word(1, "a count"), "a count");
    } else if (key == "program") {
      program_.schedule = word(1, "a schedule name");
    } else if (key == "embeddings_split") {
      program_.embeddings_split = number(word(1, "0 or 1"), "0 or 1") != 0;
    } else if (key == "groups") {
      program_.groups = topology::parse_groups(std::string(word(1, "group sizes")));
    } else if (key == "communicator") {
      parse_communicator();
    } else if (key == "rank") {
      parse_rank();
    } else {
      parse_action();
    }
  }

  void parse_communicator() {
    Communicator c{std::string(word(1, "a name")), {}};
    for (const auto rank : std::span(words_).subspan(2)) c.ranks.push_back(number(rank, "a rank"));
    program_.communicators.push_back(std::move(c));
  }

  void parse_rank() {
    if (number(word(1, "a rank"), "a rank") != static_cast<int>(program_.ranks.size())) fail("the next rank");
    RankProgram& rank = program_.ranks.emplace_back();
    if (word(2, "\"slots\"") != "slots") fail("\"slots\"");
    std::size_t i = 3;
    for (; word(i, "\"owned\"") != "owned"; ++i) {
      if (words_[i] == "slice" || words_[i] == "embeddings") {
        int& which = words_[i] == "slice" ? rank.slice : rank.embeddings_slice;
        which = number(word(++i, "a slice"), "a slice");
        continue;
      }
      const Slot slot = slot_of(words_[i]).value_or(Slot{});
      if (!slot.valid()) fail("slot counts such as w2");
      rank.slots[index_of(slot.cls)] = slot.index;
    }
    for (++i; i < words_.size(); ++i) rank.owned_shards.push_back(number(words_[i], "a shard"));
  }

  static std::optional<Slot> slot_of(std::string_view word) {
    for (int c = 0; c < slot_classes; ++c) {
      const auto cls = static_cast<SlotClass>(c);
      if (word.size() < 2 || word[0] != letter_of(cls)) continue;
      std::int16_t index = 0;
      const auto [end, error] = std::from_chars(word.data() + 1, word.data() + word.size(), index);
      if (error == std::errc() && end == word.data() + word.size() && index >= 0) return Slot{cls, index};
    }
    return std::nullopt;
  }

  void parse_action() {
    if (program_.ranks.empty()) fail("a rank line before actions");
    Action a;
    a.tick = number(words_[0], "a keyword or a tick");
    a.lane = named<Lane>(word(1, "a lane"), lanes, "a lane");
    a.kind = named<Kind>(word(2, "an action"), kinds, "an action");
    int slots = 0;
    for (at_ = 3; at_ < words_.size(); ++at_) parse_operand(a, slots);
    program_.ranks.back().actions.push_back(a);
  }

  template <class Enum>
  Enum named(std::string_view text, int count, std::string_view expected) const {
    for (int i = 0; i < count; ++i)
      if (name_of(static_cast<Enum>(i)) == text) return static_cast<Enum>(i);
    fail(expected);
  }

  void parse_operand(Action& a, int& slots) {
    const std::string_view text = words_[at_];
    if (text == "->" || text == "<-" || text == "root") {
      a.peer = rank_word();
    } else if (text == "after") {
      parse_waits(a);
    } else if (text[0] == '@') {
      a.communicator = communicator(text.substr(1));
    } else if (const auto slot = slot_of(text[0] == '+' ? text.substr(1) : text)) {
      if (slots == static_cast<int>(a.slots.size())) fail("at most four slots");
      a.accumulates = a.accumulates || text[0] == '+';
      a.slots[slots++] = *slot;
    } else {
      parse_payload(a, text);
    }
  }

  int rank_word() {
    const std::string_view text = word(++at_, "a rank such as r5");
    if (text[0] != 'r') fail("a rank such as r5");
    const int rank = number(text.substr(1), "a rank such as r5");
    if (rank < 0 || rank >= program_.groups.ranks()) fail("a rank of the program");
    return rank;
  }

  void parse_waits(Action& a) {
    for (++at_; at_ < words_.size(); ++at_) {
      const std::size_t colon = words_[at_].find(':');
      if (colon == std::string_view::npos) fail("waits such as gradients:3");
      const Lane lane = named<Lane>(words_[at_].substr(0, colon), lanes, "a lane");
      a.waits[index_of(lane)] = number(words_[at_].substr(colon + 1), "a count of actions");
    }
  }

  int communicator(std::string_view name) const {
    for (std::size_t i = 0; i < program_.communicators.size(); ++i)
      if (program_.communicators[i].name == name) return static_cast<int>(i);
    fail("a communicator of the program");
  }

  /// Takes "[1/4]" off the end.
  std::string_view parse_part(Action& a, std::string_view text) const {
    const std::size_t open = text.find('[');
    if (open == std::string_view::npos) return text;
    const std::size_t slash = text.find('/', open);
    if (slash == std::string_view::npos || !text.ends_with(']')) fail("a part such as [1/4]");
    a.part = static_cast<std::int16_t>(number(text.substr(open + 1, slash - open - 1), "a part"));
    a.parts = static_cast<std::int16_t>(
        number(text.substr(slash + 1, text.size() - slash - 2), "a number of parts"));
    return text.substr(0, open);
  }

  void parse_payload(Action& a, std::string_view operand) {
    const std::string_view text = parse_part(a, operand);
    if (text[0] == 'm') {
      a.micro_batch = number(text.substr(1), "a micro-batch such as m3");
      return;
    }
    for (std::size_t i = prefixes.size(); i-- > 0;) {  // "EG" before "E"
      if (!text.starts_with(prefixes[i])) continue;
      a.payload = static_cast<Payload>(i);
      if (text.size() > prefixes[i].size())
        a.shard = number(text.substr(prefixes[i].size()), "a shard number");
      return;
    }
    fail("an operand");
  }

  Program program_;
  Words words_;
  std::size_t at_ = 0;
  int line_ = 0;
};

}  // namespace

Program parse_program(std::string_view text) { return Parser().parse(text); }

namespace {

// A failure in a large program shows its surroundings only.
constexpr int most_ranks = 12;
constexpr int most_ticks = 8;

/// [first, second): at most `most` numbers of [begin, end), with `centre` in the middle where possible.
std::pair<int, int> around(int begin, int end, int centre, int most) {
  if (end - begin <= most) return {begin, end};
  const int first = std::clamp(centre - most / 2, begin, end - most);
  return {first, first + most};
}

}  // namespace

std::string grid(const Program& program, const std::optional<Violation>& mark) {
  const auto marked = [&](int rank, int action) {
    return mark && mark->rank == rank && mark->action == action;
  };
  std::pair<int, int> ranks{0, static_cast<int>(program.ranks.size())}, ticks{0, 0};
  for (const RankProgram& rank : program.ranks)
    for (const Action& a : rank.actions)
      ticks = {std::min(ticks.first, a.tick), std::max(ticks.second, a.tick + 1)};
  if (mark) {
    const bool at_action = mark->rank >= 0 && mark->action >= 0;
    const int tick = at_action ? program.ranks[mark->rank].actions[mark->action].tick : 0;
    ranks = around(ranks.first, ranks.second, std::max(mark->rank, 0), most_ranks);
    ticks = around(ticks.first, ticks.second, tick, most_ticks);
  }
  std::vector<std::vector<std::string>> rows = {{"tick"}};
  for (int t = ticks.first; t < ticks.second; ++t) rows[0].push_back(std::to_string(t));
  for (int r = ranks.first; r < ranks.second; ++r) {
    std::vector<std::string>& row = rows.emplace_back(rows[0].size());
    row[0] = fmt::format("r{}{}", r, marked(r, -1) ? " <--" : "");
    const auto& actions = program.ranks[r].actions;
    for (int i = 0; i < static_cast<int>(actions.size()); ++i) {
      const Action& a = actions[i];
      if (a.tick < ticks.first || a.tick >= ticks.second || (!is_visit(a.kind) && !marked(r, i))) continue;
      std::string& cell = row[a.tick - ticks.first + 1];
      cell += fmt::format("{}{}", cell.empty() ? "" : " ", name_of(a.kind));
      if (a.shard >= 0) cell += fmt::format(" s{}", a.shard);
      if (a.micro_batch >= 0) cell += fmt::format(" m{}", a.micro_batch);
      if (marked(r, i)) cell += " <--";
    }
  }
  std::vector<std::size_t> widths(rows[0].size());
  for (const auto& row : rows)
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  std::string text;
  for (const auto& row : rows) {
    text += fmt::format("{:<8}", row[0]);
    for (std::size_t c = 1; c < row.size(); ++c) text += fmt::format("| {:<{}} ", row[c], widths[c]);
    text += "\n";
  }
  return text;
}

}  // namespace minitaw::schedule
