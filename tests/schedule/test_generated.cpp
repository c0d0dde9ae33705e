// SPDX-License-Identifier: BSD-3-Clause
// What every generated program must be, over all small shapes.
#include <gtest/gtest.h>
#include <set>
#include "schedule/parse.hpp"
#include "schedule/shapes.hpp"
#include "schedule/validate.hpp"

namespace minitaw::schedule {
namespace {
using shapes::for_each_request, shapes::name_of;
constexpr int any_n = 2, any_copies = 64;

/// All specs; for more than four ranks a quarter of them in turn, as fewer ranks have seen them
/// all.
std::vector<std::string> specs_for(int ranks) {
  std::vector<std::string> all = shapes::joined({shapes::other_specs(),
                               shapes::tawpipe_specs(),
                               shapes::keeping_specs()}),
                           some;
  if (ranks <= 4)
    return all;
  for (std::size_t i = ranks % 4; i < all.size(); i += 4)
    some.push_back(all[i]);
  return some;
}

class Generated : public testing::TestWithParam<int> {};

TEST_P(Generated, IsValidAndWhatItsTextSays) {
  for_each_request(
      GetParam(), specs_for(GetParam()), any_n, any_copies, [](const Request& request) {
        const Program program = build(request);
        const auto violation = validate(program);
        ASSERT_FALSE(violation) << name_of(request) << ": " << violation->message;
        ASSERT_TRUE(GetParam() > 5 || parse_program(to_text(program)) == program)
            << name_of(request) << ", by its text";
      });
}

/// Clipped gradients add actions at the end of every step.
TEST_P(Generated, IsValidWithClippedGradients) {
  for_each_request(GetParam(),
      {"ddp", "fsdp", "weipipe", "tawpipe", "zb1", "1f1b:chunks=2", "zbv"},
      any_n,
      any_copies,
      [](Request request) {
        request.clips = true;
        const Program program = build(request);
        const auto violation = validate(program);
        ASSERT_FALSE(violation) << name_of(request) << ": " << violation->message;
        ASSERT_TRUE(parse_program(to_text(program)) == program) << name_of(request);
      });
}

TEST_P(Generated, PipelinesTakeAnyNumberOfMicroBatches) {
  const int ranks = GetParam();
  for (const char* spec :
      {"1f1b", "1f1b:chunks=2", "1f1b:chunks=3", "zb1", "zb2", "zbv", "zbv:blocking=on"})
    for (int micro_batches = 1; micro_batches <= 2 * ranks + 1; ++micro_batches) {
      const Request request = shapes::with_enough_layers(
          {parse_spec(spec), topology::Groups::equal(ranks, 1), micro_batches, ranks});
      const auto violation = validate(build(request));
      ASSERT_FALSE(violation) << name_of(request) << ": " << violation->message;
    }
}

/// The slots of a rank, and of them those that some action writes, and reads.
struct Slots {
  std::set<std::string> all, written, read;

  explicit Slots(const Program& program, int rank) {
    for (int c = 0; c < slot_classes; ++c)
      for (int i = 0; i < program.ranks[rank].slots[c]; ++i)
        all.insert(
            schedule::name_of(Slot{static_cast<SlotClass>(c), static_cast<std::int16_t>(i)}));
    for (const Action& a : program.ranks[rank].actions)
      for (const Access& access : accesses(a, rank)) {
        if (access.write)
          written.insert(schedule::name_of(access.slot));
        if (access.read)
          read.insert(schedule::name_of(access.slot));
      }
  }
};

/// A slot that is never read is memory for nothing. One form has one: a leader of several rails
/// keeps its part of the last shard, which is still there at the turn.
TEST_P(Generated, EverySlotIsWrittenAndRead) {
  if (GetParam() > 5)
    GTEST_SKIP() << "more ranks have no other kinds of slots";
  for_each_request(GetParam(), specs_for(GetParam()), 2, 2, [&](const Request& request) {
    const Program program = build(request);
    const std::string spec = to_text(request.spec);
    const bool spares = spec.find("rails") != spec.npos && spec.find("reshard=group") != spec.npos;
    for (int r = 0; r < std::ssize(program.ranks); ++r) {
      const Slots slots(program, r);
      ASSERT_EQ(slots.written, slots.all) << name_of(request) << " rank " << r;
      if (!spares) {
        ASSERT_EQ(slots.read, slots.all) << name_of(request) << " rank " << r;
      }
    }
  });
}

/// What a group computes at a tick: the phase of its first rank.
std::map<int, Kind> phases_of(const Program& program, int group) {
  std::map<int, Kind> phases;
  for (const Action& a : program.ranks[program.groups.first(group)].actions)
    if (a.kind == Kind::forward || a.kind == Kind::backward)
      phases[a.tick] = a.kind;
  return phases;
}

/// A group's link carries one weight shard at a time, each way; around a turn, one owner's for each
/// phase.
TEST_P(Generated, GroupsSendAndReceiveOneShardPerTick) {
  for_each_request(GetParam(), {"tawpipe"}, any_n, 1, [&](const Request& request) {
    const int d = request.groups.count();
    if (request.groups.sizes() != std::vector<int>(d, request.groups.size(0)))
      return;
    const Program program = build(request);
    std::vector<std::map<int, Kind>> phases;
    for (int k = 0; k < d; ++k)
      phases.push_back(phases_of(program, k));
    std::map<std::pair<int, int>, int> received;  // group, tick
    std::map<std::tuple<int, int, Kind>, int>
        sent;  // group, tick, phase of the receiver's next visit
    for (int r = 0; r < static_cast<int>(program.ranks.size()); ++r)
      for (const Action& a : program.ranks[r].actions) {
        if (!is_point_to_point(a.kind) || a.payload != Payload::weights)
          continue;
        const int group = program.groups.group_of(r);
        const Kind phase = phases[program.groups.group_of(a.peer)][a.tick + 1];
        const int count =
            a.kind == Kind::send ? ++sent[{group, a.tick, phase}] : ++received[{group, a.tick}];
        ASSERT_EQ(count, 1) << name_of(request) << ": " << to_text(a, program) << " in tick "
                            << a.tick;
      }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Generated, testing::Values(1, 2, 3, 4, 5, 6, 8));
}  // namespace
}  // namespace minitaw::schedule
