// SPDX-License-Identifier: BSD-3-Clause
// What every generated program must be: valid, right when it runs on numbers in any order, no
// larger than needed. And what the validator must be: any defect of a valid program is refused, or
// harmless on numbers.
#include <gtest/gtest.h>
#include <random>
#include <set>
#include "schedule/account.hpp"
#include "schedule/parse.hpp"
#include "schedule/shapes.hpp"
#include "schedule/validate.hpp"
#include "this_run.hpp"

namespace minitaw::schedule {
std::string simulate_on_numbers(const Program& program, std::uint64_t seed);

namespace {
std::vector<std::string> all_specs() {
  return shapes::joined({shapes::other_specs(), shapes::tawpipe_specs(), shapes::keeping_specs()});
}

/// A slot that is never read is memory for nothing. One form has one: a leader of several rails
/// keeps its part of the last shard, which is still there at the turn.
void expect_needed_slots(const Program& program, int r) {
  const bool spares = program.schedule.find("rails") != std::string::npos &&
                      program.schedule.find("reshard=group") != std::string::npos;
  std::set<std::pair<SlotClass, int>> read;
  for (const Action& a : program.ranks[r].actions)
    for (const Access& access : accesses(a, r))
      if (access.read)
        read.emplace(access.slot.cls, access.slot.index);
  const auto& slots = program.ranks[r].slots;
  EXPECT_TRUE(spares || std::ssize(read) == std::accumulate(slots.begin(), slots.end(), 0)) << r;
}

class Generated : public testing::TestWithParam<int> {};

TEST_P(Generated, IsValidAndRightAndWhatItsTextSays) {
  const int ranks = GetParam(), stride = ranks > 8 ? 37 : ranks > 6 ? 13 : ranks > 3 ? 3 : 1;
  int seen = 0;
  shapes::for_each_request(ranks, all_specs(), stride, [&](const Request& request) {
    SCOPED_TRACE(shapes::name_of(request));
    const Program program = build(request);
    const auto violation = validate(program);
    ASSERT_FALSE(violation) << violation->message;
    ASSERT_TRUE(parse_program(to_text(program)) == program);
    for (int r = 0; r < std::ssize(program.ranks); ++r)
      expect_needed_slots(program, r);
    if (request.context == 1 && ranks <= 6) {
      EXPECT_EQ(simulate_on_numbers(program, ++seen), "");
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Ranks, Generated, testing::Values(1, 2, 3, 4, 5, 6, 8, test::sanitized ? 7 : 12));

/// Every schedule with every option alone.
std::vector<std::string> lone_options() {
  std::vector<std::string> specs;
  for (const Entry& entry : registry())
    for (const OptionDoc& option : entry.options)
      for (std::string value :
          {"on", "off", "even", "block", "group", "none", "0", "1", "2", "8"}) {
        const std::string spec = fmt::format("{}:{}={}", entry.name, option.name, value);
        if (test::refusal_of([&] { return parse_spec(spec); }).empty())
          specs.push_back(spec);
      }
  return specs;
}

Program nameless(const Request& request) {
  Program program = build(request);
  program.schedule.clear();
  return program;
}

/// An option is left out if and only if the program is the same without it. Returns those.
std::set<std::string> left_out_of(const Request& request) {
  SCOPED_TRACE(shapes::name_of(request));
  std::set<std::string> left_out;
  const Settled settled = schedule::settled(request, 1);
  const Program program = nameless(request);
  Request changed = request;
  changed.spec = settled.spec;
  EXPECT_TRUE(nameless(changed) == program);
  for (const auto& [name, value] : request.spec.options) {
    changed.spec = request.spec;
    changed.spec.options.erase(name);
    if (!is_buildable(changed))  // another option needs it
      continue;
    const bool same = nameless(changed) == program;
    EXPECT_EQ(same, !settled.spec.options.contains(name)) << name;
    if (same)
      left_out.insert(name);
  }
  return left_out;
}

TEST(Options, WithoutEffectAreLeftOut) {
  const std::vector<std::string> specs = shapes::joined({all_specs(), lone_options()});
  std::set<std::string> seen, wanted;
  for (const int ranks : {1, 2, 3, 4, 6})
    shapes::for_each_request(ranks, specs, ranks > 3 ? 5 : 1, [&](const Request& request) {
      seen.merge(left_out_of(request));
    });
  seen.merge(left_out_of({parse_spec("fsdp:unit=2"), Groups({1}), 1, 1}));
  for (const Entry& entry : registry())
    for (const OptionDoc& option : entry.options)
      if (option.without_effect != nullptr)
        wanted.insert(option.name);
  EXPECT_EQ(seen, wanted);
}

/// A group's link carries one weight shard at a time.
TEST(TawPipe, GroupsReceiveOneShardPerTick) {
  for (const int groups : {2, 3, 6}) {
    const Program program = build({parse_spec("tawpipe"), Groups::equal(6, groups), 12, 7});
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
          Groups::equal(replicas * 32, replicas * 4),
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

/// One random defect, or none.
void mutate(Program& program, std::mt19937& random) {
  const auto draw = [&](std::size_t count) { return static_cast<int>(random() % count); };
  const auto change = [&](auto& number, int count) {
    if (number >= 0)
      number = draw(count);
  };
  RankProgram& rank = program.ranks[draw(program.ranks.size())];
  const auto at = rank.actions.begin() + draw(rank.actions.size());
  Action& a = *at;
  // Adds to what is there instead of writing, or the other way round.
  const auto flip = [&](Touch touch, bool& flag) {
    for (std::size_t i = 0; i < most_operands; ++i)
      if (a.slots[i].valid() && operands_of(a)[i].touch == touch)
        flag = !flag;
  };
  // The action goes, or comes twice; waits keep meaning what they meant.
  const auto repeat = [&](int times) {
    const Action action = a;
    const auto is_of_lane = [&](const Action& other) { return other.lane == action.lane; };
    const auto before = std::count_if(rank.actions.begin(), at, is_of_lane);
    if (times == 0)
      rank.actions.erase(at);
    else
      rank.actions.insert(at, action);
    for (Action& other : rank.actions)
      if (std::int32_t& wait = other.waits[index_of(action.lane)]; wait > before)
        wait += times - 1;
  };
  switch (draw(13)) {
  case 0:
  case 1: {
    std::int32_t& wait = a.waits[draw(lanes)];
    return change(wait, wait + 1);
  }
  case 2: {  // places of two actions of a lane; each keeps its waits
    const auto next = std::ranges::find(at + 1, rank.actions.end(), a.lane, &Action::lane);
    return next == rank.actions.end() ? void() : std::swap(a, *next);
  }
  case 3: return change(a.shard, program.shards);
  case 4: return change(a.micro_batch, program.micro_batches);
  case 5: return change(a.peer, program.groups.ranks());
  case 6: {
    Slot& slot = a.slots[draw(most_operands)];
    return change(slot.index, rank.slots[index_of(slot.cls)]);
  }
  case 7: return flip(Touch::accumulate, a.accumulates);
  case 8: return flip(Touch::extend, a.extends);
  case 9: return change(a.part, a.parts);
  case 10:
    change(rank.embeddings_part, program.embeddings_parts);
    return change(rank.part, program.owned_parts);
  default: return repeat(2 * draw(2));
  }
}

class Mutations : public testing::TestWithParam<int> {};

TEST_P(Mutations, ThatSurviveAreHarmless) {
  std::mt19937 random(test::seed());
  int refused = 0, survived = 0;
  const int stride = GetParam() == 1 ? 13 : 23;
  shapes::for_each_request(GetParam(), all_specs(), stride, [&](const Request& request) {
    if (request.context > 1)
      return;
    const Program valid = build(request);
    for (int round = 0; round < (test::sanitized ? 20 : 250); ++round) {
      Program program = valid;
      mutate(program, random);
      if (program == valid)
        continue;
      if (validate(program)) {
        ++refused;
        continue;
      }
      ++survived;
      for (std::uint64_t seed = 0; seed < 6; ++seed)
        ASSERT_EQ(simulate_on_numbers(program, seed), "") << "seed " << test::seed() << "\n"
                                                          << to_text(program);
    }
  });
  // Most defects matter: a validator that accepts everything fails here.
  EXPECT_GT(refused, survived);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Mutations, testing::Values(1, 2, 3, 4));
}  // namespace
}  // namespace minitaw::schedule
