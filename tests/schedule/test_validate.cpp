// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include <ranges>
#include <regex>
#include "base/error.hpp"
#include "schedule/hand_written.hpp"
#include "schedule/passes.hpp"
#include "schedule/pieces.hpp"
#include "schedule/validate.hpp"

namespace minitaw::schedule {
namespace {
using hand_written::split, hand_written::with;

/// A valid program with one thing wrong.
struct Broken {
  std::string name, rule;
  Program program;
  std::string says;  ///< part of the message
};

void PrintTo(const Broken& broken, std::ostream* out) {
  *out << broken.name;
}

/// Name | rule | program | what is replaced in it => by what, everywhere | part of the message. ~
/// is the end of a line; a line that begins with a blank continues the one before.
const std::string replacements = R"(
MissingWaitOnReceive | fresh reads | relay | w0 a1 x0 after inputs_recv:2 => w0 a1 x0
  | rank 0, tick 1, 'F s1 m0 w0 a1 x0': reads weights w0, which may still be written by
ForeignHome | fresh reads | group | F s1 m0 w0 a1 => F s1 m0 h0 a1 | h0 belongs to shard 0
WrongMicroBatch | fresh reads | relay | loss m1 x0 => loss m0 x0
  | x0 holds micro-batch 1 before shard 2, expected micro-batch 0 before shard 2
WrongKept | fresh reads | relay | BW s1 m0 w0 a1 => BW s1 m0 w0 a0 | BW s0 m0 h0 a0
  => BW s0 m0 h0 a1 | a0 holds what F left of shard 0 and micro-batch 0
EmptyGradient | fresh reads | relay | BW s1 m0 w0 a1 x0 g0 => BW s1 m0 w0 a1 x0 +g0
  | g0 holds nothing
HalfOfAWholeShard | fresh reads | relay | owned 1 => kept 0/2 owned 1 | keeps part 0 of 2 of a shard
PartAfterTheLast | fresh reads | relay | owned 1 => partial 1/1 owned 1 | keeps part 1 of 1
WrongClass | fresh reads | relay | recv G1 g0 <- r0 => recv G1 w0 <- r0
  | needs a slot of class accumulator or gradient or contribution or partial sum where it has
  weights w0
OneSlotTooMany | fresh reads | relay | dembed m1 x0 f0 => dembed m1 x0 f0 a0
  | no use for saved activations a0
NoSlot | fresh reads | relay | send W0 h0 => send W0 | where it has none
ShardAfterTheLast | fresh reads | relay | 4 compute join after inputs_recv:7~rank 1
  => 4 compute zero G2 g0 after inputs_recv:5~ 4 compute join after inputs_recv:7~rank 1
  | names shard 2
MicroBatchAfterTheLast | fresh reads | relay | embed m1 => embed m2 | names micro-batch 2
PartOfAHiddenState | fresh reads | pipeline | shards 2~ => shards 2~shard_parts 2~ | send A1
  => send A1[0/2] | recv A1 => recv A1[0/2] | names part 0 of 2
EmbedsWithTheHead | fresh reads | pipeline | 3 compute join after inputs_recv:2
  => 3 compute embed m0 x0 e0 after inputs_recv:2~ 3 compute join after inputs_recv:2
  | e0 lacks a part that is read
ForwardBeforeEmbed | fresh reads | relay | 0 compute embed m0 x0 e0~ 0 compute F s0 m0 h0 a0 x0
  => 0 compute F s0 m0 h0 a0 x0~ 0 compute embed m0 x0 e0 | x0 holds nothing
WeightGradientTooSoon | fresh reads | pipeline | 2 compute B s0
  => 2 compute W s0 m0 a0 b0 t0~ 2 compute B s0 | b0 holds nothing, expected what B left
ComputesWithUpdatedWeights | fresh reads | pipeline | 3 compute update E0 e0 f0
  => 3 compute B s0 m0 h0 a0 x0 b0 | h0 holds the updated weights of shard 0
UpdatedTwice | fresh reads | pipeline | 3 compute update E1 e0 f0 => 3 compute update W1 h0 t0
  | h0 holds the updated weights of shard 1
NoRoomForAnotherSlice | fresh reads | pipeline | 3 compute join~rank 1
  => 3 inputs_recv recv EG[1/2] f0 <- r1 after compute:7~ 3 compute join after inputs_recv:3~rank 1
  | 3 compute join after inputs_recv:2
  => 3 inputs_recv send EG[1/2] f0 -> r0 after compute:6~ 3 compute join after inputs_recv:3
  | f0 has no room for parts 1 to 1
OverwrittenGradient | no overwrite | relay | BW s0 m1 w0 a0 x0 g0 after inputs_recv:4
  => BW s0 m1 w0 a0 x0 g0 | overwrites gradient g0
ReceivedOverWhatIsSent | no overwrite | pipeline | inputs_recv recv D1 m0 x0 <- r1
  => gradients_recv recv D1 m0 x0 <- r1 after compute:2 | b0 after inputs_recv:2
  => b0 after inputs_recv:1 gradients_recv:1
  | overwrites hidden state x0, which may still be read by
OtherShard | matched messages | relay | recv G1 g0 <- r0 => recv G0 g0 <- r0
  | expected the same transfer
UnmatchedSend | matched messages | pipeline | join after inputs_recv:2 => join after inputs_recv:3
  | 2 compute W s1 => 1 inputs_recv send D1 m0 x0 -> r0~ 2 compute W s1
  | never joins it
UpdateOfNothing | matched messages | pipeline | update W0 h0 => update s0 h0 | moves nothing
ToItself | matched messages | relay | send W0 h0 -> r1 => send W0 h0 -> r0
  | its peer is its own rank
ToNoOne | matched messages | relay | send W0 h0 -> r1 => send W0 h0 -> r2
  | never joins it
OtherOrder | same collectives | group | F s0 m1 w0 a0 x0 after inputs_group:1
  => F s0 m1 w0 a0 x0 after inputs_group:2
  | 0 inputs_group broadcast W0 w0 root r0 @group0~ 0 inputs_group broadcast W1 h0 root r1 @group0
  => 0 inputs_group broadcast W1 h0 root r1 @group0~ 0 inputs_group broadcast W0 w0 root r0 @group0
  | expected the same transfer
OtherShardOfACollective | same collectives | group | broadcast W1 w0 root r1
  => broadcast W0 w0 root r1 | expected the same transfer
OneShardForTwoRanks | same collectives | group | reduce G1 g0 root r1 => reduce_scatter G1 g0
  | 1 parts cannot be shared by 2 ranks
CommunicatorOfNoOne | same collectives | relay | world 0 1~ => world 0 1~communicator none~
  | none must name ranks
NoSuchCommunicator | same collectives | relay | EG f0 @world => EG f0 @none
  | the rank is not a member
AForeignCommunicator | same collectives | relay | world 0 1~ => world 0 1~communicator one 1~
  | EG f0 @world => EG f0 @one
  | rank 0, tick 4, 'reduce_scatter EG f0 @one': the rank is not a member of the communicator
RootOutside | same collectives | group | group0 0 1~ => group0 0 1~communicator one 1~
  | root r0 @group0 after compute:6~ 4 => root r0 @one after compute:6~ 4 | the root is not a member
LostContribution | exact gradients | relay | add G1 g0 +t0 => zero G1 g0
  | micro-batch 0 of shard 1 is missing
NotWritten | exact gradients | relay | BW s1 m1 h0 a1 x0 t0 => BW s1 m1 h0 a1 x0 +t0
  | t0 still holds the gradient
OnlyTheRootHasTheSum | exact gradients | group | reduce G1 g0 root r1 => reduce G1 g0 root r0
  | micro-batch 0 of shard 1 is missing
EndsNotWritten | exact gradients | relay | dembed m1 x0 f0 => dembed m1 x0 +f0
  | adds to the gradient of the last step
CopyNotUpdated | exact gradients | pipeline
  | 3 compute update W1 h0 t0~ 3 compute update E1 => 3 compute update E1
  | h0 is not updated as a whole
NoMicroBatches | exact gradients | relay | micro_batches 2 => micro_batches 0 | slices do not fit
NoEmbeddings | exact gradients | relay | e1 f1 owned => owned | no rank holds the embeddings
SliceNotGathered | exact gradients | relay |  4 inputs_recv all_gather E e0 @world after compute:9~
  =>  | join after inputs_recv:7 => join after inputs_recv:6 | e0 is not updated as a whole
LastTransferUnwaited | all waited | relay | join after inputs_recv:7~rank 1 => join~rank 1
  | 'all_gather E e0 @world': join does not wait for it
NoJoin | all waited | pipeline |  3 compute join~rank 1 => rank 1 | last action must be join
AfterJoin | all waited | pipeline | 3 compute join~rank 1 => 3 compute join~ 3 compute join~rank 1
  | comes after join
TransferInTheComputeLane | all waited | pipeline | 0 inputs_recv send A1 => 0 compute send A1
  | not belong in lane compute
ComputingInATransferLane | all waited | pipeline | 2 compute dembed => 2 inputs_recv dembed
  | not belong in lane inputs_recv
BothSendFirst | no deadlock | relay | 0 inputs_recv send W0 => -1 inputs_recv send W0
  | F s0 m1 w0 a0 x0 after inputs_recv:1 => F s0 m1 w0 a0 x0 after inputs_recv:2
  | 0 inputs_recv recv W0 w0 <- r0~ 0 inputs_recv send W1 h0 -> r0
  => -1 inputs_recv send W1 h0 -> r0~ 0 inputs_recv recv W0 w0 <- r0
  | 'send W1 h0 -> r0' waits for the other side
WaitsForLater | no deadlock | relay | F s0 m1 w0 a0 x0 after inputs_recv:1
  => F s0 m1 w0 a0 x0 after inputs_recv:3
  | waits for 3 actions of lane inputs_recv, of which 2 are issued before it
OneSlotTooFew | slots accounted | relay | rank 1 slots h1 t1 w1 g1 a2
  => rank 1 slots h1 t1 w1 g1 a1
  | uses saved activations a1, but the rank declares 1 slot of this class
SlotNotNeeded | slots accounted | pipeline | x1 e1 f1 embeddings 0 => x2 e1 f1 embeddings 0
  | recv D1 m0 x0 => recv D1 m0 x1 | B s0 m0 h0 a0 x0 => B s0 m0 h0 a0 x1
  | dembed m0 x0 f0 => dembed m0 x1 f0~ 2 compute embed m0 x0 e0
  | declares 2 slots of class hidden state, but at most 1 of their contents live at once
MoreRanksThanHaveActions | slots accounted | relay | groups 1+1 => groups 1+1+1
  | 2 ranks have actions
HomesNotCounted | slots accounted | relay | rank 0 slots h1 t1 => rank 0 slots h2 t1
  | 2 owned and 1 accumulator slots
EndsNotCounted | slots accounted | relay | f1 owned 0 => f2 owned 0 | 1 and 2 of embeddings
NotSummedOverReplicas | exact gradients | replicas
  |  1 gradients_recv all_reduce G0 t0 @replicas after compute:4~ =>  | after gradients_recv:1
  =>  | after gradients_recv:2 => after gradients_recv:1
  | in accumulator t0, micro-batch 0 of shard 0 of the other replicas is missing
EndsNotSummedOverReplicas | exact gradients | replicas
  |  2 gradients_recv all_reduce EG f0 @replicas after compute:5~ =>  | after gradients_recv:2
  =>  | micro-batch 0 of the embedding of the other replicas is missing
SummedTwiceOverReplicas | exact gradients | replicas | 2 gradients_recv all_reduce EG
  => 1 gradients_recv all_reduce G0 t0 @replicas~ 2 gradients_recv all_reduce EG
  | after gradients_recv:2 => after gradients_recv:3 | after gradients_recv:1
  => after gradients_recv:2 | counts micro-batch 0 of shard 0 of the other replicas twice
NoOtherReplica | same collectives | replicas | replicas 2~ =>  | replicas must name ranks
WeightsOverReplicas | same collectives | replicas | all_reduce G0 t0 => all_reduce W0 h0
  | only gradients are summed over replicas
)";

/// The programs of `replacements`.
std::vector<Broken> replaced() {
  const std::map<std::string, std::string> programs = {{"relay", hand_written::relay},
      {"group", hand_written::group},
      {"pipeline", hand_written::pipeline},
      {"replicas", hand_written::replicas}};
  std::string rows = replacements;
  rows = std::regex_replace(rows, std::regex("\n +"), " ");
  std::vector<Broken> all;
  for (const std::string& row : split(rows, "\n"))
    if (const std::vector<std::string> fields = split(row, " | "); fields.size() > 3) {
      std::string text = programs.at(fields[2]);
      for (std::size_t i = 3; i + 1 < fields.size(); ++i) {
        std::string change = fields[i];
        std::ranges::replace(change, '~', '\n');
        const std::vector<std::string> sides = split(change, " => ");
        text = with(text, sides.at(0), sides.at(1));
      }
      all.push_back({fields[0], fields[1], parse_program(text), fields.back()});
    }
  return all;
}

// Defects of the published programs (docs/schedules.md), planted into generated ones as those
// programs have them.

/// Calls change(rank, action) for every action.
void for_each_action(Program& program, const auto& change) {
  for (int r = 0; r < static_cast<int>(program.ranks.size()); ++r)
    for (Action& a : program.ranks[r].actions)
      change(r, a);
}

/// Waits are as the generator derives them: what is planted is wrong in itself, not for want of a
/// wait.
Program planted(const std::string& spec, const auto& defect, bool clips = false) {
  Program program = build({parse_spec(spec), topology::Groups({2, 2}), 8, 4, 1, clips});
  require_valid(program);
  defect(program);
  for (int r = 0; r < static_cast<int>(program.ranks.size()); ++r) {
    for (Action& a : program.ranks[r].actions)
      a.waits = {};
    assign_waits(program.ranks[r], r, Overlap::full);
  }
  return program;
}

/// The last hop of the gradients goes to P + 1 - r.
void send_to_the_wrong_owner(Program& program) {
  const int ranks = program.groups.ranks();
  const auto moves = [](const Action& a) {
    return is_communication(a.kind) && a.payload == Payload::gradient;
  };
  int last = 0;
  for_each_action(
      program, [&](int, const Action& a) { last = moves(a) ? std::max(last, a.tick) : last; });
  for_each_action(program, [&](int r, Action& a) {
    if (!moves(a) || a.tick != last)
      return;
    a.peer = (ranks + 1 - r) % ranks;
    a.shard = ((a.kind == Kind::send ? r : a.peer) + 1) % ranks;
  });
}

/// What goes to the owner of shard 0 at the end of a pass is the buffer of shard 1.
void deliver_another_shard(Program& program) {
  for (RankProgram& rank : program.ranks) {
    const auto first = [&](Kind kind, int shard) {
      return std::ranges::find_if(
          rank.actions, [=](const Action& a) { return a.kind == kind && a.shard == shard; });
    };
    (*first(Kind::reduce, 0))[Operand::buffer] = (*first(Kind::backward, 1))[Operand::gradient];
  }
}

void drop(Program& program, const auto& which) {
  for (RankProgram& rank : program.ranks)
    std::erase_if(rank.actions, which);
}

/// The prefetch writes the buffer that the same tick computes with.
void prefetch_into_the_buffer_in_use(Program& program) {
  for_each_action(program, [](int, Action& a) {
    for (Slot& slot : a.slots)
      if (slot.cls == SlotClass::weights && slot.valid())
        slot.index = 0;
  });
}

auto each(const auto& change) {
  return [=](Program& p) { for_each_action(p, [=](int, Action& a) { change(a); }); };
}

/// Messages, of all ticks or of one, say shard 1 for 2 and 2 for 1 on both sides.
auto mislabel(Payload payload, int tick = -1) {
  return each([=](Action& a) {
    const bool chosen =
        is_point_to_point(a.kind) && a.payload == payload && (tick < 0 || a.tick == tick);
    if (chosen && (a.shard == 1 || a.shard == 2))
      a.shard = 3 - a.shard;
  });
}

/// With as few buffers as the published code.
const std::string published = "tawpipe:prefetch=1:grad_ticks=1";

std::vector<Broken> broken_programs() {
  const std::string fresh = "fresh reads", exact = "exact gradients", matched = "matched messages";
  const auto first = [](int rank, const auto& which, const auto& change) {
    return [=](Program& p) { change(*std::ranges::find_if(p.ranks[rank].actions, which)); };
  };
  const auto without = [](const auto& which) { return [=](Program& p) { drop(p, which); }; };
  const auto gathers = [](const Action& a) {
    return a.kind == Kind::all_gather && a.payload == Payload::weights;
  };
  const auto receives = [](const Action& a) { return a.kind == Kind::recv; };
  const auto half = [](const Action& a) { return a.kind == Kind::recv && a.parts == 2; };
  const auto update = [](const Action& a) {
    return a.kind == Kind::update && a.payload == Payload::weights;
  };
  const auto of_ends = [](const Action& a) {
    return a.kind == Kind::update && a.payload == Payload::embeddings;
  };
  const auto add = [](const Action& a) { return a.kind == Kind::accumulate && a.accumulates; };
  const auto next_slot = [](SlotClass cls, bool all) {
    return each([=](Action& a) {
      for (Slot& slot : a.slots)
        if (slot.valid() && slot.cls == cls &&
            (all || (a.kind == Kind::accumulate && a.accumulates)))
          slot.index ^= 1;
    });
  };
  const auto add_twice = [=](Program& p) {
    std::vector<Action>& mine = p.ranks[0].actions;
    const auto at = std::ranges::find_if(mine, add);
    mine.insert(at, Action(*at));
  };
  const auto update_before_the_last_loss = [=](Program& p) {
    std::vector<Action>& mine = p.ranks[3].actions;
    const auto loss =
        std::ranges::find(mine | std::views::reverse, Kind::loss, &Action::kind).base() - 1;
    const auto at = std::ranges::find_if(mine, of_ends);
    std::rotate(loss, at, at + 1);
  };
  const std::string same = "expected the same transfer";
  std::vector<Broken> all = {
      {"SendsOtherWeights",
          fresh,
          planted("weipipe", mislabel(Payload::weights, 1)),
          "expected the weights of"},
      {"SendsAnotherGradient",
          exact,
          planted("weipipe", mislabel(Payload::gradient)),
          "expected a gradient of"},
      {"OtherMicroBatch",
          matched,
          planted("1f1b", first(1, receives, [](Action& a) { ++a.micro_batch; })),
          same},
      {"NoHalf",
          matched,
          planted("tawpipe:rails=2", first(0, half, [](Action& a) { a.parts = 1; })),
          same},
      {"SumOfAnotherShard",
          exact,
          planted("ddp", next_slot(SlotClass::accumulator, true)),
          "t2 belongs to shard 2"},
      {"AddsTwice", exact, planted("tawpipe", add_twice), " twice"},
      {"NotGathered", fresh, planted("fsdp", without(gathers)), "w0 lacks a part that is read"},
      {"GathersEndsTooSoon", fresh, planted("fsdp", without(of_ends)), "part 0 is not updated yet"},
      {"WeightsAreAddedUp",
          fresh,
          planted("tawpipe", each([](Action& a) {
            if (a.kind == Kind::broadcast)
              a.kind = Kind::all_reduce;
          })),
          "only gradients can be added up"},
      {"OverwritesTheEnds",
          exact,
          planted("tawpipe", each([](Action& a) { a.accumulates &= a.kind != Kind::loss; })),
          "overwrites what this step has added to embeddings' accumulator f0"},
      {"UpdatesTheHeadTooSoon",
          exact,
          planted("1f1b", update_before_the_last_loss),
          "micro-batch 7 of the head is missing"},
      // defects of the published programs
      {"WeiPipeGivesGradientsToTheWrongRank",
          exact,
          planted("weipipe", send_to_the_wrong_owner),
          "holds a gradient of shard "},
      {"TawPipePrefetchesIntoTheBufferInUse",
          fresh,
          planted(published, prefetch_into_the_buffer_in_use),
          "w0 holds the weights of shard "},
      {"TawPipeDeliversTheGradientOfAnotherShard",
          exact,
          planted(published, deliver_another_shard),
          "holds a gradient of shard 1"},
      {"TawPipeLosesTheGradientOfShard0",
          exact,
          planted(published,
              without([](const Action& a) { return a.kind == Kind::accumulate && a.shard == 0; })),
          "t0 still holds the gradient of the last step"},
      {"BlocksBeyondAMultipleOfTheRanksAreDropped",
          fresh,
          planted("tawpipe",
              without([](const Action& a) { return a.shard == 3 && !of_embeddings(a.payload); })),
          "before shard 3, expected micro-batch 2 before shard 4"},
      {"AnUpdateForgetsToClip",
          exact,
          planted("fsdp", first(1, update, [](Action& a) { a[Operand::squares] = {}; }), true),
          "needs the squares of all gradients"},
  };
  std::ranges::move(replaced(), std::back_inserter(all));
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
  require_valid(parse_program(hand_written::relay));
  const std::string broken = with(hand_written::relay, "w0 a1 x0 after inputs_recv:2", "w0 a1 x0");
  EXPECT_THAT([&] { require_valid(parse_program(broken)); },
      testing::ThrowsMessage<LogicError>(
          testing::AllOf(testing::HasSubstr("fresh reads"), testing::HasSubstr("'F s1 m0 "))));
}
}  // namespace
}  // namespace minitaw::schedule
