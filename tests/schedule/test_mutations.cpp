// SPDX-License-Identifier: BSD-3-Clause
// Any single defect of a valid program is either refused or harmless. Harmless is what the
// reference simulator says, which runs the program on numbers and knows nothing of the validator.
#include <gtest/gtest.h>
#include <random>
#include <utility>
#include "schedule/hand_written.hpp"
#include "schedule/shapes.hpp"
#include "schedule/validate.hpp"
#include "this_run.hpp"

namespace minitaw::schedule {
[[nodiscard]] std::string simulate_on_numbers(const Program& program, std::uint64_t seed);

namespace {
/// How many actions of the lane of action `i` come before it.
int position(const RankProgram& rank, int i) {
  int count = 0;
  for (int k = 0; k < i; ++k)
    count += rank.actions[k].lane == rank.actions[i].lane ? 1 : 0;
  return count;
}

int draw(std::mt19937& random, int count) {
  return static_cast<int>(random() % static_cast<unsigned>(count));
}

template <class Number>
bool change(Number& value, int range, std::mt19937& random) {
  if (value < 0 || range < 2)
    return false;
  value = static_cast<Number>((value + 1 + draw(random, range - 1)) % range);
  return true;
}

bool change_wait(Action& a, bool drop, std::mt19937& random) {
  int& wait = a.waits[draw(random, lanes)];
  if (wait == 0)
    return false;
  wait = drop ? 0 : wait - 1;
  return true;
}

bool change_slot(const RankProgram& rank, Action& a, std::mt19937& random) {
  Slot& slot = a.slots[draw(random, most_operands)];
  return slot.valid() && change(slot.index, rank.slots[index_of(slot.cls)], random);
}

/// Swaps with the next action of the same lane; each keeps its waits.
bool swap_in_lane(RankProgram& rank, int i) {
  for (int k = i + 1; k < static_cast<int>(rank.actions.size()); ++k)
    if (rank.actions[k].lane == rank.actions[i].lane) {
      std::swap(rank.actions[i], rank.actions[k]);
      return true;
    }
  return false;
}

bool change_accumulates(Action& a) {
  bool contributes = false;
  for (std::size_t i = 0; i < most_operands; ++i)
    contributes |= a.slots[i].valid() && operands_of(a)[i].touch == Touch::accumulate;
  if (contributes)
    a.accumulates = !a.accumulates;
  return contributes;
}

/// Removes action `i` of a rank; waits for it become waits for the action before it.
void remove_action(RankProgram& rank, int i) {
  const std::size_t lane = index_of(rank.actions[i].lane);
  const int at = position(rank, i);
  rank.actions.erase(rank.actions.begin() + i);
  for (Action& a : rank.actions)
    if (a.waits[lane] > at)
      --a.waits[lane];
}

/// Puts `action` in front of action `i`; waits keep meaning what they meant.
void insert_action(RankProgram& rank, int i, const Action& action) {
  const std::size_t lane = index_of(action.lane);
  rank.actions.insert(rank.actions.begin() + i, action);
  const int at = position(rank, i);
  for (Action& a : rank.actions)
    if (a.waits[lane] > at)
      ++a.waits[lane];
}

/// One random defect: a wait dropped or shortened, two actions of a lane swapped, an operand or
/// flag changed, an action lost or repeated, another part kept. Returns what was done; empty if
/// nothing changed.
std::string mutate(Program& program, std::mt19937& random) {
  RankProgram& rank = program.ranks[draw(random, static_cast<int>(program.ranks.size()))];
  const int i = draw(random, static_cast<int>(rank.actions.size()));
  Action& a = rank.actions[i];
  switch (draw(random, 12)) {
  case 0: return change_wait(a, true, random) ? "wait dropped" : "";
  case 1: return change_wait(a, false, random) ? "wait shortened" : "";
  case 2: return swap_in_lane(rank, i) ? "swapped" : "";
  case 3: return change(a.shard, program.shards, random) ? "shard" : "";
  case 4: return change(a.micro_batch, program.micro_batches, random) ? "micro-batch" : "";
  case 5: return change(a.peer, program.groups.ranks(), random) ? "peer" : "";
  case 6: return change_slot(rank, a, random) ? "slot" : "";
  case 7: return change_accumulates(a) ? "accumulates" : "";
  case 8: return change(a.part, a.parts, random) ? "part" : "";
  case 9:
    if (program.embeddings_split)
      return change(rank.embeddings_part, program.embeddings_parts, random) ? "part" : "";
    return change(rank.part, program.owned_parts, random) ? "part" : "";
  case 10: remove_action(rank, i); return "removed";
  default: insert_action(rank, i, Action(a)); return "repeated";
  }
}

constexpr int orders = 6;  // in which the simulator runs a program

std::string worst_of(const Program& program, std::uint64_t seed) {
  for (int k = 0; k < orders; ++k)
    if (const std::string wrong =
            simulate_on_numbers(program, seed + static_cast<std::uint64_t>(k));
        !wrong.empty())
      return wrong;
  return "";
}

std::vector<Program> make_programs() {
  std::vector<Program> result = {parse_program(hand_written::relay),
      parse_program(hand_written::group),
      parse_program(hand_written::pipeline),
      parse_program(hand_written::replicas)};
  const auto add = [&](const std::string& spec,
                       const char* groups,
                       int micro_batches,
                       int layers,
                       int replicas = 1,
                       bool clips = false) {
    const Request request = shapes::with_enough_layers(
        {parse_spec(spec), topology::parse_groups(groups), micro_batches, layers, replicas, clips});
    if (possible(request))
      result.push_back(build(request));
  };
  add("serial", "1", 2, 1);
  add("serial", "1", 5, 3);
  for (const auto& [spec, groups, layers] : {std::tuple{"tawpipe", "2", 2},
           {"tawpipe", "1+1+1", 3},
           {"tawpipe", "3+1", 4},
           {"tawpipe:prefetch=3", "1+2+3", 6},
           {"tawpipe:dbs=off", "2+2+2", 6},
           {"tawpipe:rails=2", "2+3", 5},
           {"tawpipe", "2+1+1+1", 5}})
    add(spec, groups, layers, layers);
  for (const char* spec : {"ddp", "fsdp", "zbv", "zb1", "tawpipe", "weipipe"})
    add(spec, "2+2", 8, 4, 2, true);
  add("ddp", "2+1", 3, 3, 1, true);
  for (const std::string& spec : shapes::keeping_specs()) {
    add(spec, "2+2", 8, 4);
    add(spec, "2+3+1", 12, 6);
  }
  for (const std::string& spec : shapes::joined({shapes::tawpipe_specs(), shapes::other_specs()})) {
    add(spec, "2+2", 4, 4);
    add(spec, "1+2+1", 8, 5);
    add(spec, "3", 6, 3);
    add(spec, "2+2", 8, 2, 2);
  }
  return result;
}

const std::vector<Program>& programs() {
  static const std::vector<Program> all = make_programs();
  return all;
}

class Mutations : public testing::TestWithParam<int> {};

TEST_P(Mutations, ValidProgramsAreRightInAnyOrder) {
  const Program& program = programs()[GetParam()];
  ASSERT_FALSE(validate(program)) << validate(program)->message;
  for (std::uint64_t seed = 0; seed < 5; ++seed)
    EXPECT_EQ(simulate_on_numbers(program, seed), "") << seed;
}

TEST_P(Mutations, SurvivorsAreHarmless) {
  const Program& valid = programs()[GetParam()];
  const unsigned seed = test::seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  int refused = 0, survived = 0;
  for (int round = 0; round < (test::sanitized ? 60 : 1000); ++round) {
    Program program = valid;
    const std::string what = mutate(program, random);
    if (what.empty())
      continue;
    if (validate(program)) {
      ++refused;
      continue;
    }
    ++survived;
    EXPECT_EQ(worst_of(program, static_cast<std::uint64_t>(round)), "") << what << "\n"
                                                                        << to_text(program);
  }
  // Most defects matter (rarely less than seven in ten): a validator that accepts everything fails
  // here.
  EXPECT_GT(refused, survived);
}

INSTANTIATE_TEST_SUITE_P(
    Schedules, Mutations, testing::Range(0, static_cast<int>(programs().size())));
}  // namespace
}  // namespace minitaw::schedule
