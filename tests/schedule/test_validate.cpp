// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include "base/error.hpp"
#include "schedule/hand_written.hpp"
#include "schedule/passes.hpp"
#include "schedule/validate.hpp"

namespace minitaw::schedule {
namespace {
using hand_written::with;

/// A valid program with one thing wrong.
struct Broken {
  Broken(std::string what, Program broken, Rule by, std::string message)
      : name(std::move(what)), program(std::move(broken)), rule(by), says(std::move(message)) {}
  Broken(std::string what, const std::string& text, Rule by, std::string message)
      : Broken(std::move(what), parse_program(text), by, std::move(message)) {}

  std::string name;
  Program program;
  Rule rule;
  std::string says;  ///< part of the message
};

void PrintTo(const Broken& broken, std::ostream* out) { *out << broken.name; }

const std::string relay = hand_written::relay, group = hand_written::group, pipeline = hand_written::pipeline;

// Defects of the published programs (docs/schedules.md), planted into generated ones as those programs have them.

/// Calls change(rank, action) for every action.
void for_each_action(Program& program, const auto& change) {
  for (int r = 0; r < static_cast<int>(program.ranks.size()); ++r)
    for (Action& a : program.ranks[r].actions) change(r, a);
}

/// Waits are as the generator derives them: what is planted is wrong in itself, not for want of a wait.
Program planted(const std::string& spec, const auto& defect, bool clips = false) {
  Program program = build({parse_spec(spec), topology::Groups({2, 2}), 8, 4, 1, clips});
  require_valid(program);
  defect(program);
  for (int r = 0; r < static_cast<int>(program.ranks.size()); ++r) {
    for (Action& a : program.ranks[r].actions) a.waits = {};
    assign_waits(program.ranks[r], r, Overlap::full);
  }
  return program;
}

/// The last hop of the gradients goes to P + 1 - r.
void send_to_the_wrong_owner(Program& program) {
  const int ranks = program.groups.ranks();
  const auto moves = [](const Action& a) { return is_communication(a.kind) && a.payload == Payload::gradient; };
  int last = 0;
  for_each_action(program, [&](int, const Action& a) { last = moves(a) ? std::max(last, a.tick) : last; });
  for_each_action(program, [&](int r, Action& a) {
    if (!moves(a) || a.tick != last) return;
    a.peer = (ranks + 1 - r) % ranks;
    a.shard = ((a.kind == Kind::send ? r : a.peer) + 1) % ranks;
  });
}

/// What goes to the owner of shard 0 at the end of a pass is the buffer of shard 1.
void deliver_another_shard(Program& program) {
  for (RankProgram& rank : program.ranks) {
    const auto first = [&](Kind kind, int shard) {
      return std::ranges::find_if(rank.actions, [=](const Action& a) { return a.kind == kind && a.shard == shard; });
    };
    (*first(Kind::reduce, 0))[Operand::buffer] = (*first(Kind::backward, 1))[Operand::gradient];
  }
}

void drop(Program& program, const auto& which) {
  for (RankProgram& rank : program.ranks) std::erase_if(rank.actions, which);
}

/// The prefetch writes the buffer that the same tick computes with.
void prefetch_into_the_buffer_in_use(Program& program) {
  for_each_action(program, [](int, Action& a) {
    for (Slot& slot : a.slots)
      if (slot.cls == SlotClass::weights && slot.valid()) slot.index = 0;
  });
}

/// With as few buffers as the published code.
const std::string published = "tawpipe:prefetch=1:grad_ticks=1";

std::vector<Broken> broken_programs() {
  const std::string crossed = with(with(with(relay, " 0 inputs_recv send W0", " -1 inputs_recv send W0"),
                                       "F s0 m1 w0 a0 x0 after inputs_recv:1", "F s0 m1 w0 a0 x0 after inputs_recv:2"),
      " 0 inputs_recv recv W0 w0 <- r0\n 0 inputs_recv send W1 h0 -> r0\n",
      " -1 inputs_recv send W1 h0 -> r0\n 0 inputs_recv recv W0 w0 <- r0\n");
  const std::string gather =
      " 4 inputs_recv all_gather E e0 @world after compute:9\n 4 compute join after inputs_recv:";
  const std::string ungathered = " 4 compute join after inputs_recv:6";
  return {
      // fresh reads
      {"MissingWaitOnReceive", with(relay, "w0 a1 x0 after inputs_recv:2", "w0 a1 x0"), Rule::fresh_reads,
          "rank 0, tick 1, 'F s1 m0 w0 a1 x0': reads w0, which may still be written by"},
      {"MissingWaitBeforeSend", with(relay, "send G1 g0 -> r1 after compute:5", "send G1 g0 -> r1"), Rule::fresh_reads,
          "expected a wait for 5 actions of lane compute"},
      {"ForeignHome", with(group, "F s1 m0 w0 a1", "F s1 m0 h0 a1"), Rule::fresh_reads, "h0 belongs to shard 0"},
      {"WrongMicroBatch", with(relay, "loss m1 x0", "loss m0 x0"), Rule::fresh_reads,
          "x0 holds micro-batch 1 before shard 2, expected micro-batch 0 before shard 2"},
      {"WrongKept", with(with(relay, "BW s1 m0 w0 a1", "BW s1 m0 w0 a0"), "BW s0 m0 h0 a0", "BW s0 m0 h0 a1"),
          Rule::fresh_reads, "a0 holds what shard 0 saved of micro-batch 0"},
      {"EmptyGradient", with(relay, "BW s1 m0 w0 a1 x0 g0", "BW s1 m0 w0 a1 x0 +g0"), Rule::fresh_reads,
          "g0 holds nothing"},
      {"HalfOfAWholeShard", with(relay, " owned 1", " kept 0/2 owned 1"), Rule::fresh_reads,
          "keeps part 0 of 2 of a shard that is cut into 1"},
      {"PartBehindTheLast", with(relay, " owned 1", " partial 1/1 owned 1"), Rule::fresh_reads, "keeps part 1 of 1"},
      // no overwrite
      {"OverwrittenGradient", with(relay, "BW s0 m1 w0 a0 x0 g0 after inputs_recv:4", "BW s0 m1 w0 a0 x0 g0"),
          Rule::no_overwrite, "overwrites g0"},
      {"WrongClass", with(relay, "recv G1 g0 <- r0", "recv G1 w0 <- r0"), Rule::fresh_reads,
          "needs a slot of class t or g"},
      {"ReductionUnderBackward", with(group, "BW s0 m1 w0 a0 x0 g0 after inputs_group:4", "BW s0 m1 w0 a0 x0 g0"),
          Rule::no_overwrite, "overwrites g0, which may still be written by rank 1, tick 2, 'reduce G1"},
      // matched messages
      {"OtherShard", with(relay, "recv G1 g0 <- r0", "recv G0 g0 <- r0"), Rule::matched_messages,
          "expected the same message"},
      {"OtherPrecision", with(relay, "recv G1 g0 <- r0", "recv G1 t0 <- r0 after compute:5"), Rule::matched_messages,
          "expected the same message"},
      {"UnmatchedSend",
          with(with(pipeline, "join after inputs_recv:2", "join after inputs_recv:3"), " 2 compute W s1",
              " 1 inputs_recv send D1 m0 x0 -> r0\n 2 compute W s1"),
          Rule::matched_messages, "'send D1 m0 x0 -> r0': no receive of the peer is left for it"},
      {"OtherPayload", with(pipeline, "recv A1", "recv D1"), Rule::matched_messages, "is left for it"},
      // same collectives
      {"OtherOrder",
          with(
              with(group,
                  " 0 inputs_group broadcast W0 w0 root r0 @group0\n 0 inputs_group broadcast W1 h0 root r1 @group0\n",
                  " 0 inputs_group broadcast W1 h0 root r1 @group0\n 0 inputs_group broadcast W0 w0 root r0 @group0\n"),
              "F s0 m1 w0 a0 x0 after inputs_group:1", "F s0 m1 w0 a0 x0 after inputs_group:2"),
          Rule::same_collectives, "expected the collective of rank 0"},
      {"OtherRoot", with(group, "broadcast W1 w0 root r1", "broadcast W1 w0 root r0"), Rule::same_collectives, ""},
      {"OtherKind",
          with(relay, "reduce_scatter EG f0 @world after compute:7\n 4 compute update W0",
              "all_reduce EG f0 @world after compute:7\n 4 compute update W0"),
          Rule::same_collectives, ""},
      // exact gradients
      {"LostContribution", with(relay, "add G1 g0 +t0", "zero G1 g0"), Rule::exact_gradients,
          "in t0, micro-batch 0 of shard 1 is missing"},
      {"NotWritten", with(relay, "BW s1 m1 h0 a1 x0 t0", "BW s1 m1 h0 a1 x0 +t0"), Rule::exact_gradients,
          "t0 still holds the gradient of the last step"},
      {"WrittenTwice", with(relay, "add G1 g0 +t0", "add G1 g0 t0"), Rule::exact_gradients,
          "in t0, micro-batch 1 of shard 1 is missing"},
      {"EndsNotWritten", with(relay, "dembed m1 x0 f0", "dembed m1 x0 +f0"), Rule::exact_gradients,
          "adds to the gradient of the last step in f0"},
      {"ForeignSlice", with(relay, "update E1 e0 f0", "update E0 e0 f0"), Rule::exact_gradients,
          "f0 lacks a slice of the sum that is read"},
      {"CopyNotUpdated", with(pipeline, " 3 compute update W1 h0 t0\n", ""), Rule::exact_gradients,
          "h0 is not updated as a whole at the end"},
      {"NoMicroBatches", with(relay, "micro_batches 2", "micro_batches 0"), Rule::exact_gradients,
          "shards, micro-batches, parts and slices do not fit"},
      {"NoEmbeddings", with(with(relay, " e1 f1 owned 0", " owned 0"), " e1 f1 owned 1", " owned 1"),
          Rule::exact_gradients, "no rank holds the embeddings"},
      {"SliceNotGathered", with(with(relay, gather + "7\nrank 1", ungathered + "\nrank 1"), gather + "7", ungathered),
          Rule::exact_gradients, "e0 is not updated as a whole at the end"},
      // all waited
      {"LastTransferUnwaited",
          with(relay, "after compute:9\n 4 compute join after inputs_recv:7\nrank 1",
              "after compute:9\n 4 compute join\nrank 1"),
          Rule::all_waited, "'all_gather E e0 @world': join does not wait for it"},
      {"NoJoin", with(pipeline, " 3 compute join\nrank 1", "rank 1"), Rule::all_waited, "last action must be join"},
      {"AfterJoin", with(pipeline, " 3 compute join\nrank 1", " 3 compute join\n 3 compute join\nrank 1"),
          Rule::all_waited, "comes after join, which must be the rank's last action"},
      // no deadlock
      {"BothSendFirst", crossed, Rule::no_deadlock, "'send W1 h0 -> r0' waits for the other side"},
      {"WaitsForLater", with(relay, "F s0 m1 w0 a0 x0 after inputs_recv:1", "F s0 m1 w0 a0 x0 after inputs_recv:3"),
          Rule::no_deadlock, "waits for 3 actions of lane inputs_recv, of which 2 are issued before it"},
      // slots accounted
      {"OneSlotTooFew", with(relay, "rank 1 slots h1 t1 w1 g1 a2", "rank 1 slots h1 t1 w1 g1 a1"),
          Rule::slots_accounted, "uses a1, but the rank declares 1 slots a"},
      {"SlotNotNeeded",
          with(with(with(relay, "rank 0 slots h1 t1 w1 g1", "rank 0 slots h1 t1 w1 g2"), "recv G0 g0", "recv G0 g1"),
              "add G0 g0", "add G0 g1"),
          Rule::slots_accounted, "declares 2 slots g, but at most 1 of their contents live at once"},
      {"HomesNotCounted", with(relay, "rank 0 slots h1 t1", "rank 0 slots h2 t1"), Rule::slots_accounted, ""},
      // defects of the published programs
      {"WeiPipeGivesGradientsToTheWrongRank", planted("weipipe", send_to_the_wrong_owner), Rule::exact_gradients,
          "holds a gradient of shard "},
      {"TawPipePrefetchesIntoTheBufferInUse", planted(published, prefetch_into_the_buffer_in_use), Rule::fresh_reads,
          "w0 holds the weights of shard "},
      {"TawPipeDeliversTheGradientOfAnotherShard", planted(published, deliver_another_shard), Rule::exact_gradients,
          "holds a gradient of shard 1"},
      {"TawPipeLosesTheGradientOfShard0",
          planted(published,
              [](Program& p) { drop(p, [](const Action& a) { return a.kind == Kind::accumulate && a.shard == 0; }); }),
          Rule::exact_gradients, "t0 still holds the gradient of the last step"},
      {"TheEmbeddingLearnsFromOneMicroBatch",
          planted("tawpipe",
              [](Program& p) {
                drop(p, [](const Action& a) { return a.kind == Kind::embed_backward && a.micro_batch % 2 == 0; });
                for (RankProgram& rank : p.ranks) write_first_contributions(rank, p.shard_parts);
              }),
          Rule::exact_gradients, "of the embedding is missing"},
      {"BlocksBeyondAMultipleOfTheRanksAreDropped",
          planted("tawpipe",
              [](Program& p) { drop(p, [](const Action& a) { return a.shard == 3 && !of_embeddings(a.payload); }); }),
          Rule::fresh_reads, "expected micro-batch 0 before shard 4"},
      {"AnUpdateForgetsToClip",
          planted(
              "fsdp",
              [](Program& p) {
                for (Action& a : p.ranks[1].actions)
                  if (a.kind == Kind::update && a.payload == Payload::weights) a[Operand::squares] = {};
              },
              true),
          Rule::exact_gradients, "needs the squares of all gradients"},
  };
}

class BrokenProgram : public testing::TestWithParam<Broken> {};
TEST_P(BrokenProgram, IsRefusedByItsRule) {
  const auto violation = validate(GetParam().program);
  ASSERT_TRUE(violation);
  EXPECT_EQ(name_of(violation->rule), name_of(GetParam().rule)) << violation->message;
  EXPECT_THAT(violation->message, testing::HasSubstr(GetParam().says));
}
INSTANTIATE_TEST_SUITE_P(
    Validate, BrokenProgram, testing::ValuesIn(broken_programs()), [](const auto& test) { return test.param.name; });

TEST(Validate, RequireValidShowsTheGridWithTheActionMarked) {
  require_valid(parse_program(relay));
  const std::string broken = with(relay, "w0 a1 x0 after inputs_recv:2", "w0 a1 x0");
  EXPECT_THAT([&] { require_valid(parse_program(broken)); },
      testing::ThrowsMessage<LogicError>(testing::AllOf(testing::HasSubstr("fresh reads"),
          testing::HasSubstr("| F s1 m0 <-- "), testing::Not(testing::ContainsRegex("<--(.|\n)*<--")))));
}

TEST(Validate, GridHasARowPerRankAndAColumnPerTick) {
  EXPECT_EQ(grid(parse_program(pipeline)), "tick    | 0       | 1               | 2               | 3 \n"
                                           "r0      | F s0 m0 |                 | B s0 m0 W s0 m0 |   \n"
                                           "r1      |         | F s1 m0 B s1 m0 | W s1 m0         |   \n");
}
}  // namespace
}  // namespace minitaw::schedule
