// SPDX-License-Identifier: BSD-3-Clause
// The defects of the published programs (docs/schedules.md, "differences from the published code"), planted
// into generated ones as those programs have them. The validator refuses each, and says where.

#include <functional>
#include <gtest/gtest.h>

#include "schedule/passes.hpp"
#include "schedule/shapes.hpp"
#include "schedule/validate.hpp"

namespace minitaw::schedule {
namespace {
Program generated(const std::string& spec, int ranks, int groups, int per_rank) {
  return build({parse_spec(spec), topology::Groups::equal(ranks, groups), per_rank * ranks, ranks});
}

void wait_for_slots(Program& program) {
  for (int r = 0; r < static_cast<int>(program.ranks.size()); ++r) {
    for (Action& a : program.ranks[r].actions) a.waits = {};
    assign_waits(program.ranks[r], r, Overlap::full);
  }
}

void for_each_action(Program& program, const auto& change) {
  for (int r = 0; r < static_cast<int>(program.ranks.size()); ++r)
    for (Action& a : program.ranks[r].actions) change(r, a);
}

void drop(Program& program, const auto& which) {
  for (int r = 0; r < static_cast<int>(program.ranks.size()); ++r)
    std::erase_if(program.ranks[r].actions, [&](const Action& a) { return which(r, a); });
}

/// The action of a rank that `which` finds `n`-th; from the end if negative.
Action& find(Program& program, int rank, int n, const auto& which) {
  std::vector<Action*> found;
  for (Action& a : program.ranks[rank].actions)
    if (which(a)) found.push_back(&a);
  return *found.at(n < 0 ? found.size() + n : n);
}

Slot new_slot(Program& program, int rank, SlotClass cls) {
  return {cls, static_cast<std::int16_t>(program.ranks[rank].slots[static_cast<std::size_t>(cls)]++)};
}

bool moves(const Action& a, Payload payload) { return is_communication(a.kind) && a.payload == payload; }
bool visits(const Action& a) { return a.kind == Kind::forward || a.kind == Kind::backward; }

void expect_refused_as_it_is(const Program& program, Rule rule, const std::string& where, const std::string& what) {
  const auto violation = validate(program);
  ASSERT_TRUE(violation) << "accepted";
  EXPECT_EQ(name_of(violation->rule), name_of(rule)) << violation->message;
  EXPECT_TRUE(violation->message.starts_with(where)) << violation->message;
  EXPECT_NE(violation->message.find(what), std::string::npos) << violation->message;
}

/// Waits are as the generator derives them: what is planted is wrong in itself, not for want of a wait.
void expect_refusal(Program program, Rule rule, const std::string& where, const std::string& what) {
  wait_for_slots(program);
  expect_refused_as_it_is(program, rule, where, what);
}

// WeiPipe (defects 1 to 3 of its published code)

constexpr int wei_ranks = 4, wei_per_rank = 2;
Program weipipe() { return generated("weipipe", wei_ranks, 1, wei_per_rank); }

/// Ticks in which the backward ring turns, with their numbers.
std::map<int, int> backward_ticks(const Program& program) {
  std::map<int, int> ticks;
  for (const RankProgram& rank : program.ranks)
    for (const Action& a : rank.actions)
      if (a.kind == Kind::backward) ticks[a.tick] = 0;
  int j = 0;
  for (auto& [tick, number] : ticks) number = j++;
  return ticks;
}

/// The backward ring goes on from what the forward ring holds, without the exchange, and turns from r to
/// r - 1. Messages say what they carry; visits compute what they should.
TEST(Defects, WeiPipeTurnsItsBackwardRingTheWrongWay) {
  Program program = weipipe();
  const std::map<int, int> turns = backward_ticks(program);
  const int fork = wei_ranks - 1, first = turns.begin()->first;
  const auto weights = [](Kind kind, int tick) {
    return [=](const Action& a) { return a.kind == kind && a.payload == Payload::weights && a.tick == tick; };
  };
  drop(program, [&](int, const Action& a) { return moves(a, Payload::weights) && a.tick == fork; });
  for (const int r : {1, 3}) {  // the others would have kept what they have
    const Slot saved = new_slot(program, r, SlotClass::weights);
    find(program, r, 0, weights(Kind::recv, fork - 1))[Operand::buffer] = saved;
    find(program, r, 0, [&](const Action& a) { return visits(a) && a.tick == fork; })[Operand::weights] = saved;
    find(program, r, 0, weights(Kind::send, first))[Operand::buffer] = saved;
  }
  const auto held = [](int rank, int turn) { return wei_ranks - 1 - (rank + turn) % wei_ranks; };
  for_each_action(program, [&](int r, Action& a) {
    if (!moves(a, Payload::weights) || !turns.contains(a.tick)) return;
    const bool sends = a.kind == Kind::send;
    a.peer = (r + (sends ? wei_ranks - 1 : 1)) % wei_ranks;
    a.shard = held(r, turns.at(a.tick) + (sends ? 0 : 1));
  });
  expect_refusal(program, Rule::fresh_reads, "rank 1, tick 6, 'BW s3 m2",
      "holds the weights of shard 1, expected the weights of shard 3");
}

/// The last rank leaves its last shard in the buffer of what comes in.
TEST(Defects, WeiPipeUsesAStaleShardInTheLastTick) {
  const int last = wei_ranks - 1;
  for (const Kind kind : {Kind::forward, Kind::backward}) {
    Program program = weipipe();
    const auto visit = [&](const Action& a) { return a.kind == kind; };
    Action& stale = find(program, last, -1, visit);
    find(program, last, -1, [&](const Action& a) {
      return a.kind == Kind::recv && a.payload == Payload::weights && a.shard == stale.shard && a.tick < stale.tick;
    })[Operand::buffer] = new_slot(program, last, SlotClass::weights);
    stale[Operand::weights] = find(program, last, -2, visit)[Operand::weights];
    expect_refusal(program, Rule::fresh_reads, "rank 3, tick " + std::to_string(stale.tick),
        "expected the weights of shard " + std::to_string(stale.shard));
  }
}

/// The last hop of the gradients goes to P + 1 - r.
TEST(Defects, WeiPipeGivesGradientsToTheWrongRank) {
  Program program = weipipe();
  int last = 0;
  for_each_action(program, [&](int, Action& a) {
    if (moves(a, Payload::gradient)) last = std::max(last, a.tick);
  });
  const auto carried = [](int rank) { return (rank + 1) % wei_ranks; };
  for_each_action(program, [&](int r, Action& a) {
    if (!moves(a, Payload::gradient) || a.tick != last) return;
    a.peer = (wei_ranks + 1 - r) % wei_ranks;
    a.shard = a.kind == Kind::send ? carried(r) : carried(a.peer);
  });
  expect_refusal(program, Rule::exact_gradients, "rank ", "holds a gradient of shard ");
}

// TawPipe (defects 1 to 4, 6 and 7 of its published code)

constexpr int taw_ranks = 4;
/// With as few buffers as the published code.
constexpr const char* taw_spec = "tawpipe:prefetch=1:grad_ticks=1";
Program tawpipe(int per_rank = 2) { return generated(taw_spec, taw_ranks, 2, per_rank); }

/// The prefetch writes the buffer that the same tick computes with. Delivered at once, every tick reads the
/// next one's shard; delivered late, nothing keeps it from the buffer while it is in use.
TEST(Defects, TawPipePrefetchesIntoTheBufferInUse) {
  Program program = tawpipe();
  for_each_action(program, [](int, Action& a) {
    for (Slot& slot : a.slots)
      if (slot.cls == SlotClass::weights && slot.valid()) slot.index = 0;
  });
  expect_refused_as_it_is(program, Rule::fresh_reads, "rank 0, tick 1, 'F s1 m0",
      "reads w0, which may still be written by rank 0, tick 1, 'broadcast W2");
  expect_refusal(program, Rule::fresh_reads, "rank ", "w0 holds the weights of shard ");
}

/// Every wait of the program is empty.
TEST(Defects, TawPipeNeverWaits) {
  const std::vector<std::function<bool(const Action&)>> unwaited = {visits,
      [](const Action& a) { return a.kind == Kind::broadcast; },
      [](const Action& a) { return a.kind == Kind::send && a.payload == Payload::gradient; },
      [](const Action& a) { return a.kind == Kind::reduce; },
      [](const Action& a) { return a.kind == Kind::accumulate && a.lane == Lane::gradients_recv; },
      [](const Action&) { return true; }};
  for (std::size_t i = 0; i < unwaited.size(); ++i) {
    SCOPED_TRACE(i);
    Program program = tawpipe();
    for_each_action(program, [&](int, Action& a) {
      if (unwaited[i](a)) a.waits = {};
    });
    expect_refused_as_it_is(program, Rule::fresh_reads, "rank ", "which may still be written by");
  }
}

/// At the end of a pass what goes to the owner of shard 0 is the buffer of shard 1.
TEST(Defects, TawPipeDeliversTheGradientOfAnotherShard) {
  Program program = tawpipe();
  for (int r = 0; r < taw_ranks; ++r) {
    const Slot before = find(
        program, r, 0, [](const Action& a) { return a.kind == Kind::backward && a.shard == 1; })[Operand::gradient];
    find(program, r, 0, [](const Action& a) { return a.kind == Kind::reduce && a.shard == 0; })[Operand::buffer] =
        before;
  }
  expect_refusal(program, Rule::exact_gradients, "rank 0, tick ", "holds a gradient of shard 1");
}

/// The gradient of shard 0 stays in its buffer, to which the next pass adds.
TEST(Defects, TawPipeLetsTheGradientOfShard0LeakIntoTheLastShard) {
  Program program = tawpipe();
  for (int r = 0; r < taw_ranks; ++r) {
    const auto backward_of = [](int shard) {
      return [shard](const Action& a) { return a.kind == Kind::backward && a.shard == shard; };
    };
    Action& next = find(program, r, 1, backward_of(taw_ranks - 1));
    const Slot leaking = find(program, r, 0, backward_of(0))[Operand::gradient];
    for_each_action(program, [&](int rank, Action& a) {
      if (rank == r && a.kind == Kind::reduce && a.shard == taw_ranks - 1 && a.tick == next.tick + 1)
        a[Operand::buffer] = leaking;
    });
    next[Operand::gradient] = leaking;
    next.accumulates = true;
  }
  expect_refusal(program, Rule::exact_gradients, "rank ", "holds a gradient of shard ");
}

TEST(Defects, TawPipeLosesTheGradientOfShard0) {
  Program program = tawpipe();
  drop(program, [](int, const Action& a) { return a.kind == Kind::accumulate && a.shard == 0; });
  expect_refusal(program, Rule::exact_gradients, "rank 0, tick ", "t0 still holds the gradient of the last step");
}

/// Whether a group goes backward in a tick, or has last done so.
std::map<int, bool> backward_phase(const Program& program, int group) {
  std::map<int, bool> phase;
  for (const Action& a : program.ranks[program.groups.first(group)].actions)
    if (visits(a)) phase[a.tick] = a.kind == Kind::backward;
  for (int idle = 0; idle < program.groups.count(); ++idle) phase.emplace(phase.rbegin()->first + 1, true);
  return phase;
}

/// TawPipe in which each group works out from its own phase to whom it sends: forward, groups k and
/// (t + 1 - k) mod D exchange shards; backward, k sends to (k + t + c) mod D. At a turn phases differ.
Program tawpipe_with_partners(int groups) {
  Program program = generated(taw_spec, 2 * groups, groups, 1);
  std::vector<std::map<int, bool>> backward;
  for (int k = 0; k < groups; ++k) backward.push_back(backward_phase(program, k));
  const int constant = 2 - 4 * groups;  // the backward pass begins with shard P - 1 in tick P of group 0
  for_each_action(program, [&](int r, Action& a) {
    if (a.kind != Kind::send || a.payload != Payload::weights) return;
    const int k = program.groups.group_of(r);
    const int named = backward[k][a.tick + 1] ? k + a.tick + constant : a.tick + 1 - k;
    a.peer = program.groups.rank((named % groups + groups) % groups, program.groups.local(r));
    if (a.peer == r) a.peer = (r + 2) % (2 * groups);
  });
  wait_for_slots(program);
  return program;
}

TEST(Defects, TawPipeSendsAndReceivesDoNotMatchWithFiveGroups) {
  for (const int groups : {2, 3}) EXPECT_FALSE(validate(tawpipe_with_partners(groups))) << groups;
  expect_refusal(tawpipe_with_partners(5), Rule::matched_messages, "rank 0, tick 10, 'recv W8",
      "no send of the peer is left for it");
  for (const int groups : {6, 7, 8})
    expect_refusal(tawpipe_with_partners(groups), Rule::matched_messages, "rank ", "is left for it");
}

/// Gradients are clipped, but not in every update.
TEST(Defects, AnUpdateForgetsToClip) {
  Program program = build({parse_spec("fsdp"), topology::Groups::equal(4, 2), 8, 4, 1, true});
  for_each_action(program, [](int r, Action& a) {
    if (r == 1 && a.kind == Kind::update && a.payload == Payload::weights) a[Operand::squares] = {};
  });
  expect_refusal(program, Rule::exact_gradients, "rank 1", "needs the squares of all gradients");
}

/// The gradient of the embedding is that of the last micro-batch.
TEST(Defects, TheEmbeddingLearnsFromOneMicroBatch) {
  for (const char* spec : {"tawpipe", "weipipe"}) {
    Program program = generated(spec, taw_ranks, 2, 2);
    drop(program, [](int, const Action& a) { return a.kind == Kind::embed_backward && a.micro_batch % 2 == 0; });
    for (RankProgram& rank : program.ranks) write_first_contributions(rank, program.shard_parts);
    expect_refusal(program, Rule::exact_gradients, "rank ", "of the embedding is missing");
  }
}

/// Blocks beyond a multiple of P are in no shard that anybody visits.
TEST(Defects, BlocksBeyondAMultipleOfTheRanksAreDropped) {
  Program program = build({parse_spec("serial"), topology::Groups({1}), 2, 3});
  const int dropped = program.shards - 1;
  drop(program, [&](int, const Action& a) { return a.shard == dropped; });
  expect_refusal(program, Rule::fresh_reads, "rank 0, tick 2, 'loss m0",
      "x0 holds micro-batch 0 before shard 2, expected micro-batch 0 before shard 3");
}

/// What the tests above change is nothing but the defect.
TEST(Defects, TheProgramsAreValidWithoutThem) {
  for (Program program : {weipipe(), tawpipe(), generated("tawpipe", 10, 5, 1)}) {
    wait_for_slots(program);
    const auto violation = validate(program);
    EXPECT_FALSE(violation) << program.schedule << ": " << violation->message;
  }
}
}  // namespace
}  // namespace minitaw::schedule
