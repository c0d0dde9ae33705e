// SPDX-License-Identifier: BSD-3-Clause
// What the validator refuses of pipelines that pass sequences in slices.
#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include "schedule/shapes.hpp"
#include "schedule/validate.hpp"

namespace minitaw::schedule {
namespace {
Request request_for(const std::string& spec, int stages, int micro_batches, int layers) {
  return {parse_spec(spec), topology::Groups({stages}), micro_batches, layers};
}

struct Defect {
  const char* name;
  Rule rule;
  std::function<void(Program&)> plant;
};

class BrokenSlices : public testing::TestWithParam<Defect> {};

/// The n-th action of a kind.
Action& find(Program& p, int rank, Kind kind, int n = 0) {
  for (Action& a : p.ranks[rank].actions)
    if (a.kind == kind && n-- == 0)
      return a;
  throw std::logic_error("no such action");
}

/// Exchanges two slices of micro-batch 0 wherever `changes` says so.
void exchange(Program& p, const auto& changes) {
  for (RankProgram& rank : p.ranks)
    for (Action& a : rank.actions)
      if (a.micro_batch >= 0 && a.micro_batch < 2 && changes(a))
        a.micro_batch = 1 - a.micro_batch;
}

/// One stage of one block, two micro-batches of two slices: no message, all in one lane.
const std::vector<Defect> defects = {
    {"slices_go_forward_in_another_order",
        Rule::fresh_reads,
        [](Program& p) { exchange(p, [](const Action&) { return true; }); }},
    {"slices_come_back_in_forward_order",
        Rule::exact_gradients,
        [](Program& p) {
          // What F left is found: only the order of the gradients is wrong.
          auto& actions = p.ranks[0].actions;
          const auto first = std::ranges::find(actions, Kind::backward_input, &Action::kind);
          const auto second = std::find_if(first + 1, actions.end(), [](const Action& a) {
            return a.kind == Kind::backward_input;
          });
          std::swap(first[0], second[0]);
          std::swap(first[1], second[1]);
          std::swap(first[0].extends, second[0].extends);
          std::swap(first[1].accumulates, second[1].accumulates);
        }},
    {"a_slice_attends_to_no_slice_before",
        Rule::fresh_reads,
        [](Program& p) { find(p, 0, Kind::forward, 1).extends = false; }},
    {"the_last_slice_adds_to_another_gradient",
        Rule::exact_gradients,
        [](Program& p) { find(p, 0, Kind::backward_input, 2).extends = true; }},
    {"a_slice_overwrites_the_gradient_of_later_ones",
        Rule::exact_gradients,
        [](Program& p) { find(p, 0, Kind::backward_input, 1).extends = false; }},
    {"a_slice_without_its_keys",
        Rule::fresh_reads,
        [](Program& p) { find(p, 0, Kind::forward)[Operand::keys] = {}; }},
    {"a_gradient_that_no_slice_before_gets",
        Rule::fresh_reads,
        [](Program& p) { find(p, 0, Kind::backward_input)[Operand::key_gradient] = {}; }},
    {"another_number_of_slices", Rule::fresh_reads, [](Program& p) { p.slices = 4; }},
};

INSTANTIATE_TEST_SUITE_P(Defects, BrokenSlices, testing::ValuesIn(defects), [](const auto& defect) {
  return defect.param.name;
});

TEST_P(BrokenSlices, ByTheRuleThatKnowsIt) {
  Program program = build_valid(request_for("zb1:slices=2", 1, 2, 1));
  GetParam().plant(program);
  const auto violation = validate(program);
  ASSERT_TRUE(violation) << "not noticed";
  EXPECT_EQ(name_of(violation->rule), name_of(GetParam().rule)) << violation->message;
}

/// Two stages: the prefix of one micro-batch is still there when the next one goes forward.
TEST(Slices, OfAnotherMicroBatchAreRefused) {
  Program program = build_valid(request_for("zb1:slices=2", 2, 2, 2));
  ASSERT_EQ(program.ranks[0].slots[index_of(SlotClass::prefix)], 2);
  Action& slice = find(program, 0, Kind::forward, 3);
  slice[Operand::keys].index = static_cast<std::int16_t>(1 - slice[Operand::keys].index);
  const auto violation = validate(program);
  ASSERT_TRUE(violation);
  EXPECT_EQ(name_of(violation->rule), name_of(Rule::fresh_reads)) << violation->message;
}

/// Of ranks that share slices: what is gathered goes to the prefix, and complete sums to the ranks.
TEST(Slices, ThatRanksShareAreRefusedWithoutTheirPasses) {
  const Request request = shapes::shared(request_for("1f1b:slices=2", 2, 1, 2), 2);
  for (const auto& [segment, rule] :
      {std::pair{Segment::extend, Rule::no_overwrite}, {Segment::share, Rule::fresh_reads}}) {
    Program program = build_valid(request);
    auto& actions = program.ranks[0].actions;
    const auto at = std::ranges::find(actions, segment, &Action::segment);
    const Lane lane = at->lane;
    const auto before =
        std::count_if(actions.begin(), at, [&](const Action& a) { return a.lane == lane; });
    actions.erase(at);
    for (Action& a : actions)
      if (a.waits[index_of(lane)] > before)
        --a.waits[index_of(lane)];
    const auto violation = validate(program);
    ASSERT_TRUE(violation) << name_of(segment);
    EXPECT_EQ(name_of(violation->rule), name_of(rule)) << violation->message;
  }
}
}  // namespace
}  // namespace minitaw::schedule
