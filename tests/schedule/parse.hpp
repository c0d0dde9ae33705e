// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <cctype>
#include <map>
#include <sstream>
#include <stdexcept>
#include "schedule/program.hpp"

/// Programs from their text, for those that tests write down.
namespace minitaw::schedule {
namespace parsing {
/// The number behind the first letters of a word.
inline int number(const std::string& word, std::size_t letters = 1) {
  return std::stoi(word.substr(letters));
}

/// The value whose row in the table has this name, letter or prefix.
template <class Enum>
Enum named(std::string_view name, const auto& field) {
  for (const auto& row : table_of<Enum>)
    if (row.*field == name)
      return row.value;
  throw std::invalid_argument("nothing has this name: " + std::string(name));
}

/// "w2"; no valid slot if it is none.
inline Slot slot_of(const std::string& word) {
  for (const SlotClassRow& row : table_of<SlotClass>)
    if (word[0] == row.letter && std::isdigit(word[1]) != 0)
      return {row.value, static_cast<std::int16_t>(number(word))};
  return {};
}

/// "W3", "W3[0/2]", "EG", "s3"
inline void read_payload(const std::string& word, Action& a) {
  const std::size_t part = std::min(word.find('['), word.size()),
                    letters = std::min(word.find_first_of("0123456789"), part);
  a.payload = named<Payload>(word.substr(0, letters), &PayloadRow::prefix);
  if (letters < part)
    a.shard = number(word, letters);
  if (part < word.size()) {
    a.part = number(word, part + 1);
    a.parts = number(word, word.find('/') + 1);
  }
}

inline Action action_of(std::istream& words, const Program& program) {
  Action a;
  std::string lane, kind;
  words >> a.tick >> lane >> kind;
  a.lane = named<Lane>(lane, &Named<Lane>::name);
  const std::size_t dot = std::min(kind.find('.'), kind.size());
  a.kind = named<Kind>(kind.substr(0, dot), &KindRow::name);
  if (dot < kind.size())
    a.segment = named<Segment>(kind.substr(dot + 1), &Named<Segment>::name);
  std::size_t slots = 0;
  for (std::string word; words >> word;) {
    const bool adds = word[0] == '+';
    const std::size_t colon = word.find(':');
    if (word == "after")
      continue;
    if (colon != std::string::npos)
      a.waits[index_of(named<Lane>(word.substr(0, colon), &Named<Lane>::name))] =
          number(word, colon + 1);
    else if (word[0] == 'm') {  // "m3"; "m3.1", slice 1 of micro-batch 3
      const std::size_t at = word.find('.');
      a.micro_batch = at == std::string::npos
                          ? number(word)
                          : number(word) * program.slices + number(word, at + 1);
    } else if (word[0] == '#')
      a.block = number(word);
    else if (word == "->" || word == "<-" || word == "root") {
      words >> word;
      a.peer = number(word);
    } else if (word[0] == '@') {
      const auto at = std::ranges::find(program.communicators, word.substr(1), &Communicator::name);
      a.communicator = static_cast<int>(at - program.communicators.begin());
    } else if (const Slot slot = slot_of(word.substr(adds ? 1 : 0)); slot.valid()) {
      // The next operand that may be of this class: an action may do without some.
      const Uses& uses = operands_of(a);
      while (!is_communication(a.kind) && slots + 1 < uses.size() && uses[slots].optional &&
             !uses[slots].classes.contains(slot.cls))
        ++slots;
      const bool extends = uses.at(slots).touch == Touch::extend;
      (extends ? a.extends : a.accumulates) |= adds;
      a.slots.at(slots++) = slot;
    } else
      read_payload(word, a);
  }
  return a;
}

inline RankProgram rank_of(std::istream& words) {
  RankProgram rank;
  std::string word;
  for (words >> word >> word; words >> word && word != "owned";) {
    const Slot slot = slot_of(word);
    char slash = 0;
    if (slot.valid())
      rank.slots[index_of(slot.cls)] = slot.index;
    else if (word == "part")
      words >> rank.part;
    else if (word == "embeddings")
      words >> rank.embeddings_part;
    else if (Part& part = word == "kept" ? rank.kept : rank.partial; true)
      words >> part.index >> slash >> part.count;
  }
  for (int shard = 0; words >> shard;)
    rank.owned_shards.push_back(shard);
  return rank;
}
}  // namespace parsing

/// parse_program(to_text(p)) is p again.
inline Program parse_program(const std::string& text) {
  static const std::map<std::string, int Program::*> numbers = {{"shards", &Program::shards},
      {"micro_batches", &Program::micro_batches},
      {"embeddings_parts", &Program::embeddings_parts},
      {"owned_parts", &Program::owned_parts},
      {"shard_parts", &Program::shard_parts},
      {"replicas", &Program::replicas},
      {"slices", &Program::slices},
      {"context", &Program::context},
      {"key_parts", &Program::key_parts}};
  Program program;
  std::istringstream lines(text);
  for (std::string line, key, word; std::getline(lines, line);) {
    std::istringstream words(line);
    words >> key;
    if (const auto at = numbers.find(key); at != numbers.end())
      words >> program.*at->second;
    else if (key == "program")
      words >> program.schedule;
    else if (key == "clips")
      words >> program.clips;
    else if (key == "even_slices")
      words >> program.even_slices;
    else if (key == "embeddings_split")
      words >> program.embeddings_split;
    else if (key == "tied")
      words >> program.tied;
    else if (key == "blocks")
      for (int blocks = 0; words >> blocks;)
        program.blocks.push_back(blocks);
    else if (key == "rank")
      program.ranks.push_back(parsing::rank_of(words));
    else if (key == "groups") {
      words >> word;
      program.groups = topology::parse_groups(word);
    } else if (key == "communicator") {
      Communicator& c = program.communicators.emplace_back();
      words >> c.name;
      for (int rank = 0; words >> rank;)
        c.ranks.push_back(rank);
    } else {
      words.seekg(0);
      program.ranks.at(program.ranks.size() - 1)
          .actions.push_back(parsing::action_of(words, program));
    }
  }
  return program;
}
}  // namespace minitaw::schedule
