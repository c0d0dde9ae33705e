// SPDX-License-Identifier: BSD-3-Clause
// What every generated program must be: valid, right when it runs on numbers in any order, no
// larger than needed. And what the validator must be: any defect of a valid program is refused, or
// harmless on numbers.
#include <gtest/gtest.h>
#include <random>
#include <set>
#include "schedule/account.hpp"
#include "schedule/hand_written.hpp"
#include "schedule/shapes.hpp"
#include "schedule/validate.hpp"
#include "this_run.hpp"

namespace minitaw::schedule {
[[nodiscard]] std::string simulate_on_numbers(const Program& program, std::uint64_t seed);

namespace {
using shapes::name_of;

std::vector<std::string> all_specs() {
  return shapes::joined({shapes::other_specs(), shapes::tawpipe_specs(), shapes::keeping_specs()});
}

/// A slot that is never read is memory for nothing. One form has one: a leader of several rails
/// keeps its part of the last shard, which is still there at the turn.
void expect_needed_slots(const Program& program, int r) {
  const bool spares = program.schedule.find("rails") != std::string::npos &&
                      program.schedule.find("reshard=group") != std::string::npos;
  std::set<std::pair<SlotClass, int>> written, read;
  for (const Action& a : program.ranks[r].actions)
    for (const Access& access : accesses(a, r)) {
      if (access.write)
        written.emplace(access.slot.cls, access.slot.index);
      if (access.read)
        read.emplace(access.slot.cls, access.slot.index);
    }
  int all = 0;
  for (const int slots : program.ranks[r].slots)
    all += slots;
  EXPECT_EQ(std::ssize(written), all) << "rank " << r;
  EXPECT_TRUE(spares || std::ssize(read) == all) << "rank " << r;
}

/// The ranks that compute with a micro-batch are one context group.
void expect_context_groups(const Program& program) {
  std::map<int, std::vector<int>> ranks_of;
  for (int r = 0; r < std::ssize(program.ranks); ++r)
    for (const Action& a : program.ranks[r].actions)
      if (a.kind == Kind::embed)
        ranks_of[a.micro_batch].push_back(r);
  EXPECT_EQ(std::ssize(ranks_of), program.micro_batches);
  for (const auto& [micro_batch, ranks] : ranks_of)
    EXPECT_TRUE(std::ssize(ranks) == program.context && ranks.front() % program.context == 0 &&
                ranks.back() - ranks.front() == program.context - 1)
        << micro_batch;
}

class Generated : public testing::TestWithParam<int> {};

TEST_P(Generated, IsValidAndRightAndWhatItsTextSays) {
  const int ranks = GetParam(), stride = ranks > 8 ? 37 : ranks > 6 ? 13 : ranks > 3 ? 3 : 1;
  int seen = 0;
  shapes::for_each_request(ranks, all_specs(), stride, [&](const Request& request) {
    SCOPED_TRACE(name_of(request));
    const Program program = build(request);
    const auto violation = validate(program);
    ASSERT_FALSE(violation) << violation->message;
    ASSERT_TRUE(parse_program(to_text(program)) == program);
    expect_context_groups(program);
    for (int r = 0; r < std::ssize(program.ranks); ++r)
      expect_needed_slots(program, r);
    if (request.context == 1 && ranks <= 6) {
      EXPECT_EQ(simulate_on_numbers(program, ++seen), "");
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Ranks, Generated, testing::Values(1, 2, 3, 4, 5, 6, 8, test::sanitized ? 7 : 12));

/// A group's link carries one weight shard at a time.
TEST(TawPipe, GroupsReceiveOneShardPerTick) {
  for (const int groups : {2, 3, 6}) {
    const Program program =
        build({parse_spec("tawpipe"), topology::Groups::equal(6, groups), 12, 7});
    std::map<std::pair<int, int>, int> received;  // group, tick
    for (int r = 0; r < 6; ++r)
      for (const Action& a : program.ranks[r].actions)
        if (a.kind == Kind::recv && a.payload == Payload::weights) {
          EXPECT_EQ((++received[{program.groups.group_of(r), a.tick}]), 1)
              << groups << ": " << to_text(a, program) << " in tick " << a.tick;
        }
  }
}

/// 320 replicas of 32 ranks (docs/performance.md).
TEST(Scale, TenThousandRanksTakeTheMemoryOfOneReplica) {
  static_assert(sizeof(Action) <= 92);
  for (const char* spec : {"tawpipe", "zb2"}) {
    const auto built = [&](int replicas) {
      return build({parse_spec(spec),
          topology::Groups::equal(replicas * 32, replicas * 4),
          2 * replicas * 32,
          32,
          replicas});
    };
    const Program all = built(320);
    EXPECT_EQ(all.job_ranks(), 10'240);
    EXPECT_EQ(program_bytes(all), program_bytes(built(2)));
    EXPECT_EQ(validate(all), std::nullopt);
  }
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
  const auto next = std::ranges::find(
      rank.actions.begin() + i + 1, rank.actions.end(), rank.actions[i].lane, &Action::lane);
  if (next == rank.actions.end())
    return false;
  std::swap(rank.actions[i], *next);
  return true;
}

/// Adds to what is there instead of writing, or the other way round.
bool change_touch(Action& a, Touch touch, bool& flag) {
  for (std::size_t i = 0; i < most_operands; ++i)
    if (a.slots[i].valid() && operands_of(a)[i].touch == touch) {
      flag = !flag;
      return true;
    }
  return false;
}

/// Removes action `i`, or repeats it; waits keep meaning what they meant.
bool lose_or_repeat(RankProgram& rank, int i, bool lose) {
  const Action action = rank.actions[i];
  const auto at = rank.actions.begin() + i;
  const auto before = std::count_if(
      rank.actions.begin(), at, [&](const Action& a) { return a.lane == action.lane; });
  if (lose)
    rank.actions.erase(at);
  else
    rank.actions.insert(at, action);
  for (Action& a : rank.actions)
    if (std::int32_t& wait = a.waits[index_of(action.lane)]; wait > before)
      wait += lose ? -1 : 1;
  return true;
}

/// One random defect; false if nothing changed.
bool mutate(Program& program, std::mt19937& random) {
  RankProgram& rank = program.ranks[draw(random, static_cast<int>(program.ranks.size()))];
  const int i = draw(random, static_cast<int>(rank.actions.size()));
  Action& a = rank.actions[i];
  switch (draw(random, 13)) {
  case 0: return change_wait(a, true, random);
  case 1: return change_wait(a, false, random);
  case 2: return swap_in_lane(rank, i);
  case 3: return change(a.shard, program.shards, random);
  case 4: return change(a.micro_batch, program.micro_batches, random);
  case 5: return change(a.peer, program.groups.ranks(), random);
  case 6: return change_slot(rank, a, random);
  case 7: return change_touch(a, Touch::accumulate, a.accumulates);
  case 8: return change_touch(a, Touch::extend, a.extends);
  case 9: return change(a.part, a.parts, random);
  case 10:
    return program.embeddings_split ? change(rank.embeddings_part, program.embeddings_parts, random)
                                    : change(rank.part, program.owned_parts, random);
  default: return lose_or_repeat(rank, i, random() % 2 == 0);
  }
}

std::string worst_of(const Program& program) {
  for (std::uint64_t seed = 0; seed < 6; ++seed)
    if (const std::string wrong = simulate_on_numbers(program, seed); !wrong.empty())
      return wrong;
  return "";
}

class Mutations : public testing::TestWithParam<int> {};

TEST_P(Mutations, ThatSurviveAreHarmless) {
  std::vector<Program> programs;
  if (GetParam() == 2)
    for (const std::string& text : {hand_written::relay, hand_written::pipeline})
      programs.push_back(parse_program(text));
  const int stride = GetParam() == 1 ? 13 : 23;
  shapes::for_each_request(GetParam(), all_specs(), stride, [&](const Request& request) {
    if (request.context == 1)
      programs.push_back(build(request));
  });
  std::mt19937 random(test::seed());
  int refused = 0, survived = 0;
  for (const Program& valid : programs)
    for (int round = 0; round < (test::sanitized ? 20 : 250); ++round) {
      Program program = valid;
      if (!mutate(program, random))
        continue;
      if (validate(program)) {
        ++refused;
        continue;
      }
      ++survived;
      EXPECT_EQ(worst_of(program), "") << "seed " << test::seed() << "\n" << to_text(program);
    }
  // Most defects matter: a validator that accepts everything fails here.
  EXPECT_GT(refused, survived);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Mutations, testing::Values(1, 2, 3, 4));
}  // namespace
}  // namespace minitaw::schedule
