// SPDX-License-Identifier: BSD-3-Clause
// Valid programs with one thing wrong, and the rule that refuses each.
#include <gmock/gmock.h>
#include <regex>
#include "base/error.hpp"
#include "schedule/hand_written.hpp"
#include "schedule/passes.hpp"
#include "schedule/pieces.hpp"
#include "schedule/validate.hpp"

namespace minitaw::schedule {
namespace {
using hand_written::split, hand_written::squeezed, hand_written::with;

/// Name | program | what is replaced in it => by what, everywhere | part of the message, below the
/// rule. ~ is the end of a line; a line that begins with a blank continues the one before.
const std::string replacements = R"(
= fresh reads
MissingWaitOnReceive | relay | w0 a1 x0 after inputs_recv:2 => w0 a1 x0
  | rank 0, tick 1, 'F s1 m0 w0 a1 x0': reads weights w0, which may
ForeignHome | group | F s1 m0 w0 a1 => F s1 m0 h0 a1 | h0 belongs to shard 0
WrongMicroBatch | relay | loss m1 x0 => loss m0 x0
  | x0 holds micro-batch 1 before shard 2
WrongKept | relay | BW s1 m0 w0 a1 => BW s1 m0 w0 a0 | BW s0 m0 h0 a0 => BW s0 m0 h0 a1
  | a0 holds what F left of shard 0
EmptyGradient | relay | BW s1 m0 w0 a1 x0 g0 => BW s1 m0 w0 a1 x0 +g0 | g0 holds nothing
HalfOfAWholeShard | relay | owned 1 => kept 0/2 owned 1 | keeps part 0 of 2 of a shard
WrongClass | relay | recv G1 g0 <- r0 => recv G1 w0 <- r0 | needs a slot of class accumulator or
OneSlotTooMany | relay | dembed m1 x0 f0 => dembed m1 x0 f0 a0 | no use for saved activations a0
NoSlot | relay | send W0 h0 => send W0 | where it has none
ShardAfterTheLast | relay | F s1 m1 h0 => F s2 m1 h0 | names shard 2
MicroBatchAfterTheLast | relay | embed m1 => embed m2 | names micro-batch 2
PartOfAHiddenState | pipeline | shards 2~ => shards 2~shard_parts 2~ | A1 => A1[0/2]
  | names part 0 of 2
SecondPartOfOne | pipeline | A1 => A1[1/1] | names part 1 of 1
BackwardFromAnInput | pipeline | 2 compute B s0
  => 2 compute embed m0 x0 e0 after inputs_recv:2~ 2 compute B s0
  | expected the gradient
WeightGradientTooSoon | pipeline | 2 compute B s0 => 2 compute W s0 m0 a0 b0 t0~ 2 compute B s0
  | b0 holds nothing
EmbedBackwardTooSoon | pipeline | 2 compute B s0
  => 2 compute dembed m0 x0 f0 after inputs_recv:2~ 2 compute B s0
  | after shard -1
ComputesWithUpdatedWeights | pipeline | 3 compute update E0 e0 f0 => 3 compute B s0 m0 h0 a0 x0 b0
  | h0 holds the updated weights of shard 0
NoRoomForAnotherSlice | pipeline | 3 compute join~rank 1
  => 3 inputs_recv recv EG[1/2] f0 <- r1 after compute:7~ 3 compute join after inputs_recv:3~rank 1
  | 3 compute join after inputs_recv:2
  => 3 inputs_recv send EG[1/2] f0 -> r0 after compute:6~ 3 compute join after inputs_recv:3
  | f0 has no room for parts 1 to 1
ReadUnderASumOverReplicas | replicas | W0 h0 t0 after gradients_recv:1 => W0 h0 t0
  | reads accumulator t0, which may still be written
AttendsBeforeAllKeysHaveArrived | shared | #0 h0 a0 x0 v0 after context_inputs:2
  => #0 h0 a0 x0 v0 after context_inputs:1 | reads keys and values v0
TailsAreNotGathered | shared | KV0[1/2] m0 #0 v0 @context0.tails => KV0[0/2] m0 #0 v0 @context0
  | v0 lacks a part that is read
KeysOfTheBlockBefore | shared | F.keys s0 m0 #1 => F.keys s0 m0 #0 | x0 holds
GathersKeysOfTheBlockBefore | shared | KV0[0/2] m0 #1 => KV0[0/2] m0 #0 | v0 holds
BlockOfAWholeVisit | relay | F s0 m0 h0 => F s0 m0 #0 h0 | names block 0
BlockAfterTheLast | shared | F.keys s0 m0 #1 => F.keys s0 m0 #2 | names block 2
MoreBlocksThanSegments | shared | blocks 2 => blocks 3 | comes between the segments
BlocksOfNoShard | shared | blocks 2 => blocks 2 2 | the blocks of 2 shards
ContextGroupOfTwoGroups | shared | groups 2 => groups 1+1 | context groups of 2 ranks
WholeVisitOfAPart | shared | F.attend s0 m0 #0 h0 a0 x0 v0 => F s0 m0 h0 a0 x0
  | visits are in segments here
SegmentOfAWholeVisit | relay | F s0 m0 h0 a0 x0 => F.attend s0 m0 #0 h0 a0 x0 | visits are whole here
SegmentsOutOfOrder | shared | BW.weights s0 m0 #1 => BW.weights s0 m0 #0
  | does not follow the segment
AnotherPartOfTheSequence | stages | A1 m0 x0 -> r2 => A1 m0 x0 -> r5 | A1 m0 x0 -> r3
  => A1 m0 x0 -> r2 | -> r5 => -> r3 | A1 m0 x0 <- r0 => A1 m0 x0 <- r5 | A1 m0 x0 <- r1
  => A1 m0 x0 <- r0 | <- r5 => <- r1 | x0 holds
SliceWithoutTheOnesBefore | slices | F s0 m0.1 h0 a1 x1 +y0 => F s0 m0.1 h0 a1 x1 y0 | begins
FirstSliceAfterAnother | slices | F s0 m1.0 h0 a1 x1 y1 => F s0 m1.0 h0 a1 x1 +y1 | y1 holds
SliceWithoutKeys | slices | F s0 m0.0 h0 a0 x0 y0 => F s0 m0.0 h0 a0 x0 | needs keys and values
SliceWithoutGradientOfKeys | slices | b0 y0 z0 => b0 y0 | needs keys and values
KeysOfAnotherMicroBatch | slices | a0 x0 b0 y0 +z0 => a0 x0 b0 y1 +z0 | y1 holds
KeysOfWholeSequences | slices | slices 2 => slices 1 | no use for keys and values
OtherNumberOfSlices | slices | slices 2 => slices 4 | names micro-batch 4
ExtendsTheSameHeadsTwice | shared_slices | F.extend s0[1/2] m0.0 => F.extend s0[0/2] m0.0 | y0 holds
= no overwrite
BroadcastOverWhatIsRead | group | @world after compute:2 => @world
  | overwrites weights w0, which may still be read by rank 1, tick 0, 'F
ReceivedOverWhatIsSent | pipeline | inputs_recv recv D1 m0 x0 <- r1
  => gradients_recv recv D1 m0 x0 <- r1 after compute:2 | b0 after inputs_recv:2
  => b0 after inputs_recv:1 gradients_recv:1 | x0, which may still be read by
= matched messages
OtherShard | relay | recv G1 g0 <- r0 => recv G0 g0 <- r0 | expected the same transfer
OtherPrecision | relay | recv G1 g0 <- r0 => recv G1 t0 <- r0 after compute:5
  | expected the same transfer
OtherMicroBatch | pipeline2 | recv A1 m0 => recv A1 m1 | expected the same transfer
UpdateOfNothing | pipeline | update W0 h0 => update s0 h0 | moves nothing
ToItself | relay | send W0 h0 -> r1 => send W0 h0 -> r0 | its peer is its own rank
ToNoOne | relay | send W0 h0 -> r1 => send W0 h0 -> r2 | never joins it
= same collectives
OtherRoot | group | broadcast W1 w0 root r1 => broadcast W1 w0 root r0 | expected the same transfer
OtherKind | relay | reduce_scatter EG f0 @world after compute:7~ 4 compute update W0
  => all_reduce EG f0 @world after compute:7~ 4 compute update W0 | expected the same transfer
OtherPayloadOfACollective | relay | all_gather E e0 @world after compute:9~
  4 compute join after inputs_recv:7~rank 1 => all_gather W0 h0 @world after compute:9~
  4 compute join after inputs_recv:7~rank 1
  | expected the same transfer
OtherShardOfACollective | group | broadcast W1 w0 root r1 => broadcast W0 w0 root r1
  | expected the same transfer
OneShardForTwoRanks | group | reduce G1 g0 root r1 => reduce_scatter G1 g0
  | 1 parts cannot be shared by 2 ranks
CommunicatorOfRank2 | relay | world 0 1~ => world 0 1 2~ | world must name ranks
NoSuchCommunicator | relay | EG f0 @world => EG f0 @none | the rank is not a member
AForeignCommunicator | relay | world 0 1~ => world 0 1~communicator one 1~
  | EG f0 @world => EG f0 @one | not a member of the
RootOutside | group | world 0 1~ => world 0 1~communicator one 1~
  | root r0 @world after compute:6~ 4 gradients_group reduce_
  => root r0 @one after compute:6~ 4 gradients_group reduce_ | the root is not a member
NoOtherReplica | replicas | replicas 2~ =>  | replicas must name ranks
WeightsOverReplicas | replicas | all_reduce G0 t0 => all_reduce W0 h0
  | only gradients are summed over replicas
= exact gradients
LostContribution | relay | add G1 g0 +t0 => zero G1 g0 | micro-batch 0 of shard 1 is missing
NotWritten | relay | x0 t0~ 2 inputs_recv => x0 +t0~ 2 inputs_recv | t0 still holds the gradient
OnlyTheRootHasTheSum | group | reduce G1 g0 root r1 => reduce G1 g0 root r0
  | micro-batch 0 of shard 1 is missing
EndsNotWritten | relay | dembed m1 x0 f0 => dembed m1 x0 +f0
  | adds to the gradient of the last step
EndsOverwritten | slices | loss m0.1 x1 e0 +f0 => loss m0.1 x1 e0 f0
  | overwrites what this step
EndsOfTheLastStep | pipeline | embeddings_split 1~ => communicator world 0 1~
  | embeddings 0 owned => owned | embeddings 1 owned => owned | 3 compute update W0
  => 3 inputs_recv all_reduce EG f0 @world after compute:5~ 3 compute update W0
  | 3 compute update W1
  => 3 inputs_recv all_reduce EG f0 @world after compute:4~ 3 compute update W1 | e0 f0~ 3
  => e0 f0 after inputs_recv:3~ 3 | f0 still holds a gradient
ForeignAccumulator | pipeline | W s0 m0 a0 b0 t0 => W s1 m0 a0 b0 t0 | t0 belongs to shard 0
CopyNotUpdated | pipeline | 3 compute update W1 h0 t0~ 3 compute update E1 => 3 compute update E1
  | h0 is not updated as a whole
NoMicroBatches | relay | micro_batches 2 => micro_batches 0 | slices do not fit
AThirdSlice | pipeline | embeddings_parts 2 => embeddings_parts 3 | slices do not fit
NoEmbeddings | relay | e1 f1 owned => owned | no rank holds the embeddings
SliceNotGathered | relay | 4 inputs_recv all_gather E e0 @world after compute:9~ =>
  | join after inputs_recv:7 => join after inputs_recv:6 | e0 is not updated as a whole
NotSummedOverReplicas | replicas | 1 gradients_recv all_reduce G0 t0 @replicas after compute:4~ =>
  | after gradients_recv:1 =>  | after gradients_recv:2 => after gradients_recv:1
  | shard 0 of the other replicas is missing
SummedTwiceOverReplicas | replicas | 2 gradients_recv all_reduce EG
  => 1 gradients_recv all_reduce G0 t0 @replicas~ 2 gradients_recv all_reduce EG
  | after gradients_recv:2 => after gradients_recv:3 | after gradients_recv:1
  => after gradients_recv:2 | of the other replicas twice
KeyGradientNotSummed | shared | 1 context_gradients reduce_scatter DKV0[1/2] m0 #1 d0 @context0.tails~
  => | context_gradients:2 => context_gradients:1 | context_gradients:4 => context_gradients:3
  | of the context group is missing
SliceBeginsTheGradient | slices | a0 x0 b0 y0 +z0 => a0 x0 b0 y0 z0 | begins
LastSliceAddsToAnother | slices | b0 y1 z0 => b0 y1 +z0 | z0 holds
SharesTooMuch | shared_slices | BW.share s0 m0.0 => BW.share s0 m0.1 | z0 holds
= all waited
LastTransferUnwaited | relay | join after inputs_recv:7~rank 1 => join~rank 1
  | 'all_gather E e0 @world': join does not wait for it
NoJoin | pipeline | 3 compute join~rank 1 => rank 1 | last action must be join
AfterJoin | pipeline | 3 compute join~rank 1 => 3 compute join~ 3 compute join~rank 1
  | comes after join
TransferInTheComputeLane | pipeline | 0 inputs_recv send A1 => 0 compute send A1
  | not belong in lane compute
ComputingInATransferLane | pipeline | 2 compute dembed => 2 inputs_recv dembed
  | not belong in lane inputs_recv
= no deadlock
BothSendFirst | relay | 0 inputs_recv send W0 => -1 inputs_recv send W0
  | F s0 m1 w0 a0 x0 after inputs_recv:1 => F s0 m1 w0 a0 x0 after inputs_recv:2
  | 0 inputs_recv recv W0 w0 <- r0~ 0 inputs_recv send W1 h0 -> r0
  => -1 inputs_recv send W1 h0 -> r0~ 0 inputs_recv recv W0 w0 <- r0
  | 'send W1 h0 -> r0' waits for the other side
WaitsForLater | relay | F s0 m1 w0 a0 x0 after inputs_recv:1
  => F s0 m1 w0 a0 x0 after inputs_recv:3
  | of which 2 are issued
= slots accounted
OneSlotTooFew | relay | rank 1 slots h1 t1 w1 g1 a2 => rank 1 slots h1 t1 w1 g1 a1
  | declares 1 slot of this class
SlotNotNeeded | pipeline | x1 e1 f1 embeddings 0 => x2 e1 f1 embeddings 0
  | recv D1 m0 x0 => recv D1 m0 x1 | B s0 m0 h0 a0 x0 => B s0 m0 h0 a0 x1
  | dembed m0 x0 f0 => dembed m0 x1 f0~ 2 compute embed m0 x0 e0
  | at most 1 of their contents
MoreRanksThanHaveActions | relay | groups 1+1 => groups 1+1+1 | 2 ranks have actions
AccumulatorsNotCounted | relay | rank 0 slots h1 t1 => rank 0 slots h1 t2
  | 1 owned and 2 accumulator slots
EndsNotCounted | relay | f1 owned 0 => f2 owned 0 | 1 and 2 of embeddings
)";

std::string text_of(const char* spec,
    int ranks,
    int micro_batches,
    int layers,
    int context = 1,
    int key_parts = 1,
    int replicas = 1) {
  Request request{
      parse_spec(spec), topology::Groups::equal(ranks, replicas), micro_batches, layers, replicas};
  request.context = context;
  request.key_parts = key_parts;
  request.costs = {.block = 3, .head = 4};
  return squeezed(to_text(build_valid(request)));
}

struct Broken {
  std::string name, rule;
  Program program;
  std::string says;  ///< part of the message
};

void PrintTo(const Broken& broken, std::ostream* out) {
  *out << broken.name;
}

/// The programs of `replacements`.
void add_replaced(std::vector<Broken>& all) {
  const std::map<std::string, std::string> programs = {{"relay", hand_written::relay},
      {"group", text_of("tawpipe", 2, 2, 2)},
      {"pipeline", hand_written::pipeline},
      {"replicas", text_of("1f1b", 2, 2, 1, 1, 1, 2)},
      {"pipeline2", text_of("1f1b", 2, 2, 2)},
      {"slices", text_of("zb1:slices=2", 1, 2, 1)},
      {"shared", text_of("1f1b", 2, 1, 2, 2)},
      {"stages", text_of("1f1b", 4, 1, 2, 2)},
      {"shared_slices", text_of("1f1b:slices=2", 2, 1, 1, 2, 2)}};
  std::string rule;
  for (const std::string& row :
      split(std::regex_replace(replacements, std::regex("\n +"), " "), "\n")) {
    if (row.starts_with("= "))
      rule = row.substr(2);
    const std::vector<std::string> fields = split(row, " | ");
    if (fields.size() < 4)
      continue;
    std::string text = programs.at(fields[1]);
    for (std::size_t i = 2; i + 1 < fields.size(); ++i) {
      std::string change = fields[i];
      std::ranges::replace(change, '~', '\n');
      const std::size_t by = change.find(" =>");
      text = with(text, change.substr(0, by), change.substr(std::min(by + 4, change.size())));
    }
    all.push_back({fields[0], rule, parse_program(text), fields.back()});
  }
}

// Defects of the published programs (docs/schedules.md), and others in many places at once, planted
// into generated programs.

/// Waits are as the generator derives them: what is planted is wrong in itself, not for want of a
/// wait. `defect(rank, action)` changes an action, or says that it goes.
Program planted(const char* spec, const auto& defect, bool clips = false) {
  Program program = build_valid({parse_spec(spec), topology::Groups({2, 2}), 8, 4, 1, clips});
  for (int r = 0; r < 4; ++r) {
    RankProgram& rank = program.ranks[r];
    std::erase_if(rank.actions, [&](Action& a) { return defect(r, a); });
    write_first_contributions(rank, program.shard_parts);
    for (Action& a : rank.actions)
      a.waits = {};
    assign_waits(rank, r, Overlap::full);
  }
  return program;
}

/// Messages say shard 1 for 2 and 2 for 1 on both sides.
auto mislabel(Payload payload) {
  return [=](int, Action& a) {
    if (is_point_to_point(a.kind) && a.payload == payload && (a.shard == 1 || a.shard == 2))
      a.shard = 3 - a.shard;
    return false;
  };
}

void add_planted(std::vector<Broken>& all) {
  const std::string fresh = "fresh reads", exact = "exact gradients";
  const auto add =
      [&](const char* name, const std::string& rule, const Program& program, const char* says) {
        all.push_back({name, rule, program, says});
      };
  add("SendsAnotherGradient",
      exact,
      planted("weipipe", mislabel(Payload::gradient)),
      "expected a gradient of");
  add("SendsAnotherHiddenState",
      fresh,
      planted("1f1b", mislabel(Payload::activation)),
      "before shard 1, expected micro-batch 0 before shard 2");
  add("SendsAnotherGradientOfOne",
      fresh,
      planted("1f1b", mislabel(Payload::activation_grad)),
      "expected the gradient of micro-batch 0 after shard 0");
  add("GathersEndsTooSoon",
      fresh,
      planted("fsdp",
          [](int, Action& a) { return a.kind == Kind::update && of_embeddings(a.payload); }),
      "part 0 is not updated yet");
  add("WeightsAreAddedUp",
      fresh,
      planted("tawpipe",
          [](int, Action& a) {
            if (a.kind == Kind::broadcast)
              a.kind = Kind::all_reduce;
            return false;
          }),
      "only gradients can be added up");
  add("AnUpdateForgetsToClip",
      exact,
      planted(
          "fsdp",
          [](int, Action& a) {
            if (a.kind == Kind::update)
              a[Operand::squares] = {};
            return false;
          },
          true),
      "needs the squares of all gradients");
  add("ClipsWithoutOneSquare",
      exact,
      planted(
          "fsdp",
          [](int r, Action& a) { return r == 1 && a.kind == Kind::square && a.shard == 2; },
          true),
      "lacks the squares of a gradient");
  // defects of the published programs
  add("TawPipePrefetchesIntoTheBufferInUse",
      fresh,
      planted("tawpipe:prefetch=1:grad_ticks=1",
          [](int, Action& a) {
            for (Slot& slot : a.slots)
              slot.index = slot.valid() && slot.cls == SlotClass::weights ? 0 : slot.index;
            return false;
          }),
      "w0 holds the weights of shard ");
  add("TawPipeLosesTheGradientOfShard0",
      exact,
      planted("tawpipe", [](int, Action& a) { return a.kind == Kind::accumulate && a.shard == 0; }),
      "t0 still holds the gradient of the last step");
  add("TheEmbeddingLearnsFromOneMicroBatch",
      exact,
      planted("tawpipe",
          [](int, Action& a) { return a.kind == Kind::embed_backward && a.micro_batch % 2 == 0; }),
      "of the embedding is missing");
  add("BlocksBeyondAMultipleOfTheRanksAreDropped",
      fresh,
      planted("tawpipe", [](int, Action& a) { return a.shard == 3 && !of_embeddings(a.payload); }),
      "before shard 3, expected micro-batch 2 before shard 4");
}

std::vector<Broken> broken_programs() {
  std::vector<Broken> all;
  add_replaced(all);
  add_planted(all);
  return all;
}

class BrokenProgram : public testing::TestWithParam<Broken> {};

TEST_P(BrokenProgram, IsRefusedByItsRule) {
  const auto violation = validate(GetParam().program);
  ASSERT_TRUE(violation);
  EXPECT_EQ(name_of(violation->rule), GetParam().rule) << violation->message;
  EXPECT_THAT(violation->message, testing::HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    Validate, BrokenProgram, testing::ValuesIn(broken_programs()), [](const auto& test) {
      return test.param.name;
    });

TEST(Validate, RequireValidNamesTheRuleAndTheAction) {
  const std::string broken = with(hand_written::relay, "w0 a1 x0 after inputs_recv:2", "w0 a1 x0");
  EXPECT_THAT([&] { require_valid(parse_program(broken)); },
      testing::ThrowsMessage<LogicError>(
          testing::AllOf(testing::HasSubstr("fresh reads"), testing::HasSubstr("'F s1 m0 "))));
}

/// Sums of several ranks meet anywhere: at a border they join, and what is in both is found.
TEST(Contributions, AreFoundTwiceWhereverRunsMeet) {
  using detail::Interval, detail::Sum;
  const auto twice = [](std::vector<Interval> a, Interval b) {
    Sum sum(std::move(a));
    return sum.add(Sum({b}));
  };
  EXPECT_EQ(twice({{0, 2}, {5, 7}}, {2, 5}), -1);
  EXPECT_EQ(twice({{0, 2}}, {1, 3}), 1);
  EXPECT_EQ(twice({{3, 5}}, {1, 4}), 3);
  EXPECT_EQ(twice({{3, 5}}, {0, 9}), 3);
  Sum sum({{0, 2}, {5, 7}});
  EXPECT_EQ(sum.add(Sum({{2, 5}, {7, 8}, {8, 9}})), -1);
  EXPECT_EQ(sum.first_missing(0), 9);
}
}  // namespace
}  // namespace minitaw::schedule
