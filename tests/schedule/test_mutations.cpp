// Any single defect of a valid program is either refused or harmless. Harmless is what the judge says, which
// runs the program on numbers and knows nothing of the validator.

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/error.hpp"
#include "sanitized.hpp"
#include "schedule/hand_written.hpp"
#include "schedule/judge.hpp"
#include "schedule/mutate.hpp"
#include "schedule/shapes.hpp"
#include "schedule/text.hpp"
#include "schedule/validate.hpp"
#include "seed.hpp"

namespace minitaw::schedule {
namespace {

constexpr int orders = 6;  // in which the judge runs a program

std::string worst_of(const Program& program, std::uint64_t seed) {
  for (int k = 0; k < orders; ++k)
    if (const std::string wrong = judge(program, seed + static_cast<std::uint64_t>(k)); !wrong.empty())
      return wrong;
  return "";
}

Program generated(const char* spec, const char* groups, int micro_batches) {
  const topology::Groups g = topology::parse_groups(groups);
  return build({parse_spec(spec), g, micro_batches, g.ranks()});
}

/// Copies, unequal groups, more shards than ranks, single ranks.
void add_shapes(std::vector<Program>& programs, const std::string& spec) {
  struct Shape {
    const char* groups;
    int micro_batches, layers, replicas;
  };
  for (const Shape& shape :
       {Shape{"2+2", 4, 4, 1}, Shape{"1+2+1", 8, 5, 1}, Shape{"3", 6, 3, 1}, Shape{"2+2", 8, 2, 2}}) {
    const Request request{parse_spec(spec), topology::parse_groups(shape.groups), shape.micro_batches,
                          shape.layers, shape.replicas};
    try {
      programs.push_back(build(request));
    } catch (const InputError&) {  // the schedule does not take this shape
    }
  }
}

std::vector<Program> make_programs() {
  std::vector<Program> result = {parse_program(hand_written::relay),
                                 parse_program(hand_written::group),
                                 parse_program(hand_written::pipeline),
                                 generated("serial", "1", 2),
                                 generated("tawpipe", "2", 2),
                                 generated("tawpipe", "1+1+1", 3),
                                 generated("tawpipe", "3+1", 4),
                                 generated("tawpipe:prefetch=3", "1+2+3", 6),
                                 generated("tawpipe:dbs=off", "2+2+2", 6),
                                 generated("tawpipe:rails=2", "2+3", 5),
                                 generated("tawpipe", "2+1+1+1", 5)};
  for (const std::string& spec : shapes::tawpipe_specs()) add_shapes(result, spec);
  for (const std::string& spec : shapes::other_specs()) add_shapes(result, spec);
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
  for (std::uint64_t seed = 0; seed < 5; ++seed) EXPECT_EQ(judge(program, seed), "") << seed;
}

/// Refusals and survivors of one kind of defect.
struct Tally {
  int refused = 0, survived = 0;
};

TEST_P(Mutations, SurvivorsAreHarmless) {
  const Program& valid = programs()[GetParam()];
  const unsigned seed = test::seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::map<std::string, Tally> tallies;
  for (int round = 0; round < (test::sanitized ? 60 : 1000); ++round) {
    Program program = valid;
    const std::string what = mutate(program, random);
    if (what.empty()) continue;
    const auto violation = validate(program);
    Tally& tally = tallies[what];
    if (violation) {
      ++tally.refused;
      continue;
    }
    ++tally.survived;
    EXPECT_EQ(worst_of(program, static_cast<std::uint64_t>(round)), "") << what << "\n" << to_text(program);
  }
  int refused = 0, survived = 0;
  for (const auto& [what, tally] : tallies) {
    refused += tally.refused;
    survived += tally.survived;
    RecordProperty(what,
                   std::to_string(tally.survived) + " of " + std::to_string(tally.refused + tally.survived));
  }
  // Most defects matter (rarely less than seven in ten): a validator that accepts everything fails here even
  // if the judge were blind.
  EXPECT_GT(refused, survived);
}

INSTANTIATE_TEST_SUITE_P(Schedules, Mutations, testing::Range(0, static_cast<int>(programs().size())));

}  // namespace
}  // namespace minitaw::schedule
