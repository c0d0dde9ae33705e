// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/validate.hpp"

#include <gmock/gmock.h>

#include "base/error.hpp"
#include "schedule/hand_written.hpp"

namespace minitaw::schedule {
namespace {
using hand_written::with;

/// A valid program with one thing wrong.
struct Broken {
  std::string name;
  std::string text;
  Rule rule;
  std::string says;  ///< part of the message
};

void PrintTo(const Broken& broken, std::ostream* out) { *out << broken.name; }

const std::string relay = hand_written::relay;
const std::string group = hand_written::group;
const std::string pipeline = hand_written::pipeline;

std::vector<Broken> broken_programs() {
  const std::string crossed = with(with(with(relay, " 0 inputs_recv send W0", " -1 inputs_recv send W0"),
                                       "F s0 m1 w0 a0 x0 after inputs_recv:1", "F s0 m1 w0 a0 x0 after inputs_recv:2"),
      " 0 inputs_recv recv W0 w0 <- r0\n 0 inputs_recv send W1 h0 -> r0\n",
      " -1 inputs_recv send W1 h0 -> r0\n 0 inputs_recv recv W0 w0 <- r0\n");
  const std::string tail = "after inputs_recv:6\n 4 inputs_recv all_gather E e0 @world after compute:9\n 4 "
                           "compute join after inputs_recv:";
  const std::string add = " 2 inputs_recv add G1 g0 +t0 after compute:5\n";
  const std::string doubled =
      with(with(with(relay, add, add + add), "a0 x0 g0 after inputs_recv:4", "a0 x0 g0 after inputs_recv:5"),
          "update E1 e0 f0 " + tail + "7", "update E1 e0 f0 after inputs_recv:7\n" + tail.substr(20) + "8");
  const std::string sum = " 4 inputs_recv reduce_scatter EG f0 @world after compute:7\n 4 compute update ";
  const std::string gather =
      " 4 inputs_recv all_gather E e0 @world after compute:9\n 4 compute join after inputs_recv:";
  const std::string ungathered = " 4 compute join after inputs_recv:6";
  const auto apart = [&](const std::string& text, const std::string& update, const std::string& end) {
    return with(with(text, sum + update, " 4 compute update " + update), end + " after inputs_recv:6\n" + gather + "7",
        end + " after inputs_recv:5\n" + gather + "6");
  };
  const std::string embeddings_apart = apart(apart(relay, "W0", "update E0 e0 f0"), "W1", "update E1 e0 f0");
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
      {"GatherBeforeUpdate",
          with(relay,
              " 4 compute update E1 e0 f0 after inputs_recv:6\n 4 inputs_recv all_gather E e0 @world after "
              "compute:9\n",
              " 4 inputs_recv all_gather E e0 @world after inputs_recv:6\n 4 compute update E1 e0 f0 after "
              "inputs_recv:7\n"),
          Rule::fresh_reads, "slice 1 is not updated yet"},
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
          with(with(group,
                   " 0 inputs_group broadcast W0 w0 root r0 @group0\n 0 inputs_group broadcast W1 h0 root r1 "
                   "@group0\n",
                   " 0 inputs_group broadcast W1 h0 root r1 @group0\n 0 inputs_group broadcast W0 w0 root r0 "
                   "@group0\n"),
              "F s0 m1 w0 a0 x0 after inputs_group:1", "F s0 m1 w0 a0 x0 after inputs_group:2"),
          Rule::same_collectives, "expected the collective of rank 0"},
      {"OtherRoot", with(group, "broadcast W1 w0 root r1", "broadcast W1 w0 root r0"), Rule::same_collectives, ""},
      {"OtherKind",
          with(relay, "reduce_scatter EG f0 @world after compute:7\n 4 compute update W0",
              "all_reduce EG f0 @world after compute:7\n 4 compute update W0"),
          Rule::same_collectives, ""},
      {"OnlyOthersJoin",
          with(group,
              " 4 inputs_group all_gather E e0 @group0 after compute:9\n 4 compute join after "
              "inputs_group:7\nrank 1",
              " 4 compute join after inputs_group:6\nrank 1"),
          Rule::same_collectives, "rank 0 never joins it"},
      // exact gradients
      {"LostContribution", with(relay, "add G1 g0 +t0", "zero G1 g0"), Rule::exact_gradients,
          "in t0, micro-batch 0 of shard 1 is missing"},
      {"DoubledContribution", doubled, Rule::exact_gradients, "counts micro-batch 0 of shard 1 twice"},
      {"NotWritten", with(relay, "BW s1 m1 h0 a1 x0 t0", "BW s1 m1 h0 a1 x0 +t0"), Rule::exact_gradients,
          "t0 still holds the gradient of the last step"},
      {"WrittenTwice", with(relay, "add G1 g0 +t0", "add G1 g0 t0"), Rule::exact_gradients,
          "in t0, micro-batch 1 of shard 1 is missing"},
      {"EndsNotWritten", with(relay, "dembed m1 x0 f0", "dembed m1 x0 +f0"), Rule::exact_gradients,
          "adds to the gradient of the last step in f0"},
      {"EndsNotSummed", embeddings_apart, Rule::exact_gradients, "micro-batch 0 of the embedding is missing"},
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
      {"EmbeddingLost",
          with(with(with(relay, " 3 compute dembed m1 x0 f0\n", ""), sum + "W1",
                   " 4 inputs_recv reduce_scatter EG f0 @world\n 4 compute update W1"),
              "E1 e0 f0 after inputs_recv:6\n 4 inputs_recv all_gather E e0 @world after compute:9",
              "E1 e0 f0 after inputs_recv:6\n 4 inputs_recv all_gather E e0 @world after compute:8"),
          Rule::exact_gradients, "f0 still holds a gradient of the last step"},
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
  };
}

class BrokenProgram : public testing::TestWithParam<Broken> {};
TEST_P(BrokenProgram, IsRefusedByItsRule) {
  const auto violation = validate(parse_program(GetParam().text));
  ASSERT_TRUE(violation);
  EXPECT_EQ(name_of(violation->rule), name_of(GetParam().rule)) << violation->message;
  EXPECT_NE(violation->message.find(GetParam().says), std::string::npos) << violation->message;
}
INSTANTIATE_TEST_SUITE_P(
    Validate, BrokenProgram, testing::ValuesIn(broken_programs()), [](const auto& test) { return test.param.name; });

TEST(Validate, TheEndsGradientIsWrittenOnceAStep) {
  for (const Kind kind : {Kind::loss, Kind::embed_backward}) {
    Program program = build({parse_spec("serial"), topology::Groups({1}), 2, 2});
    ASSERT_FALSE(validate(program));
    for (Action& a : program.ranks[0].actions)
      if (a.kind == kind) a.accumulates = false;
    const auto violation = validate(program);
    ASSERT_TRUE(violation);
    EXPECT_NE(violation->message.find("overwrites what this step has added to f0"), std::string::npos)
        << violation->message;
  }
}

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
