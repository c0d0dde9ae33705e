// SPDX-License-Identifier: BSD-3-Clause
// Programs of ranks that share sequences: what is generated, what it sends and keeps, and what the
// validator refuses.
#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include "model/plan.hpp"
#include "schedule/account.hpp"
#include "schedule/parse.hpp"
#include "schedule/shapes.hpp"
#include "schedule/simulate.hpp"
#include "schedule/validate.hpp"

namespace minitaw::schedule {
namespace {
using shapes::for_each_shared, shapes::name_of, shapes::shared;

class SharedSequences : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Ranks, SharedSequences, testing::Values(2, 3, 4, 6));

/// All specs; for many ranks a quarter of them, as fewer ranks have seen them all.
std::vector<std::string> specs_for(int ranks) {
  const std::vector<std::string> all =
      shapes::joined({shapes::other_specs(), shapes::tawpipe_specs(), shapes::keeping_specs()});
  std::vector<std::string> some;
  for (std::size_t i = 0; i < all.size(); i += ranks > 3 ? 5 : 1)
    some.push_back(all[i]);
  return some;
}

TEST_P(SharedSequences, GiveValidProgramsThatAreWhatTheirTextSays) {
  int seen = 0;
  for_each_shared(GetParam(), specs_for(GetParam()), 2, [&](Request request) {
    request.clips = ++seen % 3 == 0;
    request.key_parts = 1 + seen % 2 * (1 + seen % 3);
    const Program program = build(request);
    const auto violation = validate(program);
    ASSERT_FALSE(violation) << name_of(request) << ": " << violation->message;
    ASSERT_TRUE(parse_program(to_text(program)) == program) << name_of(request) << ", by its text";
  });
  EXPECT_GT(seen, 20);
}

TEST_P(SharedSequences, AreVisitedByAllRanksOfAContextGroupAndNoOther) {
  for_each_shared(GetParam(), {"ddp", "fsdp", "tawpipe", "1f1b"}, 2, [](const Request& request) {
    const Program program = build(request);
    const int n = request.context;
    std::map<int, std::set<int>> ranks_of;  // by micro-batch
    for (int r = 0; r < std::ssize(program.ranks); ++r)
      for (const Action& a : program.ranks[r].actions)
        if (a.kind == Kind::embed)
          ranks_of[a.micro_batch].insert(r);
    ASSERT_EQ(std::ssize(ranks_of), request.micro_batches / request.replicas) << name_of(request);
    for (const auto& [micro_batch, ranks] : ranks_of) {
      ASSERT_EQ(std::ssize(ranks), n);
      ASSERT_EQ(*ranks.begin() % n, 0);
      ASSERT_EQ(*ranks.rbegin(), *ranks.begin() + n - 1);
    }
  });
}

/// Grouped heads, a vocabulary that no number of ranks divides.
model::Shape shape_of(int layers, int context, model::Dtype dtype, bool fp32_keys) {
  model::Shape shape{layers, 32, 4, 2, 23, 37, 48, 3, dtype};
  shape.context = {0, context};
  shape.fp32_key_gradients = fp32_keys;
  return shape;
}

Program program_for(const std::string& spec,
    const topology::Groups& groups,
    int micro_batches,
    const model::Shape& shape) {
  Request request{parse_spec(spec), groups, micro_batches, shape.layers};
  request.context = shape.context.count;
  request.key_parts = shape.key_parts;
  request.costs = model::block_costs(shape);
  return build_valid(request);
}

/// (n - 1) T 2 k d (2 e + g) bytes a rank, block and micro-batch, to the next rank and to the one
/// before (docs/long.md). T = 48 3 / n tokens, k d = 16.
TEST(ContextBytes, OfKeysAndValuesAndTheirGradients) {
  for (const char* spec : {"ddp", "fsdp", "tawpipe", "1f1b", "zb1", "zbv"})
    for (const int n : {2, 3})
      for (const bool fp32_keys : {false, true}) {
        const int layers = 14, per_group = 2, groups = 2;
        const model::Shape shape = shape_of(layers, n, model::Dtype::bf16, fp32_keys);
        const bool pipeline = spec[0] == '1' || spec[0] == 'z';
        const int micro_batches = per_group * (pipeline ? 1 : groups);
        const Program program =
            program_for(spec, topology::Groups::equal(2 * n, groups), micro_batches, shape);
        const model::Layout layout = model::make_layout(shape, cut_of(program));
        const ByteMatrix matrix = bytes(program, layout);
        const std::uint64_t visits = per_group * layers, tokens = 48 * 3 / n;
        const std::uint64_t expected =
            2 * n * (n - 1) * tokens * 32 * (2 * 2 + (fp32_keys ? 4 : 2));
        std::uint64_t sum = 0;
        for (int from = 0; from < 2 * n; ++from)
          for (int to = 0; to < 2 * n; ++to) {
            const std::uint64_t sent = matrix.at(from, to, Traffic::context);
            sum += sent;
            EXPECT_TRUE(sent == 0 || from / n == to / n) << spec;
          }
        // A pipeline's stage has some of the blocks; together they have all.
        EXPECT_EQ(sum, expected / (pipeline ? 2 : 1) * visits) << spec << " " << n;
        EXPECT_EQ(matrix.between(program.groups, Traffic::context), 0U);
      }
}

/// Weights and gradients move as often as for one micro-batch a rank.
TEST(ContextBytes, OfARoundAreThoseWithoutContext) {
  for (const char* spec : {"fsdp", "fsdp:hierarchical=on", "tawpipe"}) {
    const topology::Groups groups = topology::Groups::equal(8, 2);
    const model::Shape whole = shape_of(8, 1, model::Dtype::bf16, false),
                       shared = shape_of(8, 4, model::Dtype::bf16, false);
    const Program alone = program_for(spec, groups, 8, whole),
                  together = program_for(spec, groups, 2, shared);
    const ByteMatrix a = bytes(alone, model::make_layout(whole, cut_of(alone))),
                     b = bytes(together, model::make_layout(shared, cut_of(together)));
    for (const Traffic kind : {Traffic::weights, Traffic::gradients, Traffic::embeddings}) {
      EXPECT_EQ(a.inside(groups, kind), b.inside(groups, kind)) << spec;
      EXPECT_EQ(a.between(groups, kind), b.between(groups, kind)) << spec;
    }
  }
}

TEST(ContextMemory, OfGatheredKeysAndOfANthOfTheActivations) {
  for (const int n : {2, 4}) {
    const model::Shape whole = shape_of(8, 1, model::Dtype::bf16, false),
                       shared = shape_of(8, n, model::Dtype::bf16, true);
    const Program alone = program_for("ddp", topology::Groups::equal(4, 1), 4, whole),
                  together = program_for("ddp", topology::Groups::equal(4, 1), 4 / n, shared);
    const auto saved = [](const model::Layout& layout) {
      return layout.shape.layers * model::plan_saved(layout.shape).bytes;
    };
    // 48 3 tokens of 32 numbers in each of 8 blocks, in bf16: a multiple of 256 bytes for each n.
    EXPECT_EQ(saved(model::make_layout(whole, cut_of(alone))), 8 * 48 * 3 * 32 * 2U);
    EXPECT_EQ(saved(model::make_layout(shared, cut_of(together))) * n, 8 * 48 * 3 * 32 * 2U);
    const std::vector<Footprint> ranks =
        memory(together, model::make_layout(shared, cut_of(together)));
    for (const Footprint& rank : ranks)
      EXPECT_EQ(rank.by_kind[index_of(Memory::context)], 48 * 3 * 32 * (2 + 4U));
    EXPECT_EQ(memory(alone, model::make_layout(whole, cut_of(alone)))[0]
                  .by_kind[index_of(Memory::context)],
        0U);
  }
}

/// Sums over the compute actions of each rank, by whole visit.
using CostsOfVisits = std::map<std::tuple<int, Kind, int, int>, double>;

CostsOfVisits costs_of_visits(
    const Program& program, const model::Layout& layout, const model::Price& price) {
  CostsOfVisits sums;
  for (int r = 0; r < std::ssize(program.ranks); ++r)
    for (const Action& a : program.ranks[r].actions)
      if (is_visit(a.kind))
        sums[{r, a.kind, a.shard, a.micro_batch}] += cost_of(a, layout, price);
  return sums;
}

/// Of FLOPs alone, and of seconds with the memory that segments touch.
TEST(ContextCosts, OfTheSegmentsOfAVisitAreAnNthOfItsOwn) {
  const model::Price seconds = {.product = [](double flops) { return 1e-9 * flops; },
      .attention = [](double flops) { return 3e-9 * flops; },
      .attention_backward = [](double flops) { return 4e-9 * flops; },
      .memory = [](double bytes) { return 1e-8 * bytes; }};
  for (const char* spec : {"tawpipe", "zb1"})
    for (const int n : {2, 3})
      for (const model::Recompute recompute :
          {model::Recompute::block, model::Recompute::keep_attention, model::Recompute::none})
        for (const model::Price& price : {model::in_flops(), seconds}) {
          model::Shape part = shape_of(14, n, model::Dtype::bf16, false), whole = part;
          part.recompute = whole.recompute = recompute;
          part.key_parts = n - 1;
          whole.context = {};
          const Program program = program_for(spec, topology::Groups({2 * n}), 4, part);
          const model::Cut cut = cut_of(program);
          const model::Layout layout = model::make_layout(whole, cut);
          for (const auto& [visit, cost] :
              costs_of_visits(program, model::make_layout(part, cut), price)) {
            Action undivided;
            undivided.kind = std::get<Kind>(visit);
            undivided.shard = std::get<2>(visit);
            const double expected = cost_of(undivided, layout, price);
            ASSERT_NEAR(n * cost, expected, 1e-9 * expected)
                << spec << " " << n << " " << name_of(undivided.kind);
          }
        }
}

/// 4 FLOPs for each pair of numbers of a query and a key; of S^2 / 2 pairs a sequence, where there
/// are S (S + 1) / 2.
TEST(ContextCosts, OfAttentionAreThoseOfTheRanksPairs) {
  for (const int n : {1, 2, 3, 4})
    for (int index = 0; index < n; ++index) {
      model::Shape shape = shape_of(1, n, model::Dtype::fp32, false);
      shape.context = {index, n};
      double pairs = 0;
      for (const model::SequenceRun& run : model::runs_of(shape))
        for (std::int64_t p = run.position; p < run.position + run.count; ++p)
          pairs += static_cast<double>(shape.micro_batch * (p + 1));
      const model::BlockCost cost = model::cost_of_block(shape, model::in_flops());
      const double matrices = 2.0 * 48 * 3 / n * 32 * (32 + 2 * 16 + 32 + 3 * 23);
      EXPECT_NEAR(cost.forward(), matrices + 4 * 32 * pairs * 48 / 49, 1e-3) << n << " " << index;
    }
}

TEST(SharedSequence, IsRefusedWhereRanksDoNotDivide) {
  const auto refusal = [](const char* spec, const char* groups, int context) {
    const Request request =
        shared({parse_spec(spec), topology::parse_groups(groups), 24, 8}, context);
    return test::refusal_of([&] { check(request); });
  };
  EXPECT_EQ(refusal("tawpipe", "2+4", 2), "");
  EXPECT_THAT(refusal("tawpipe", "2+4", 4), test::Says({"context", "2+4", "divisor of 2"}));
  EXPECT_THAT(refusal("fsdp", "1+5", 2), test::Says({"context", "1+5", "context = 1"}));
  EXPECT_THAT(refusal("weipipe", "4", 2), test::Says({"context", "weipipe", "at once"}));
  EXPECT_THAT(refusal("tawpipe", "10", 2), test::Says({"micro_batches", "5 context groups"}));
}

// ---- What the validator refuses ----

/// Two context groups of two ranks, shards of one and of two blocks.
Program example(const std::string& spec = "tawpipe") {
  Request request = shared({parse_spec(spec), topology::Groups::equal(4, 1), 4, 6}, 2);
  return build_valid(request);
}

int find(const RankProgram& rank, Kind kind, Payload payload = Payload::none, int skip = 0) {
  for (int i = 0; i < std::ssize(rank.actions); ++i)
    if (rank.actions[i].kind == kind && rank.actions[i].payload == payload && skip-- == 0)
      return i;
  throw std::logic_error("no such action");
}

int find(const RankProgram& rank, Kind visit, Segment segment) {
  for (int i = 0; i < std::ssize(rank.actions); ++i)
    if (rank.actions[i].kind == visit && rank.actions[i].segment == segment)
      return i;
  throw std::logic_error("no such segment");
}

bool projects(const Action& a) {
  return a.kind == Kind::forward && a.segment == Segment::keys;
}

struct Defect {
  const char* name;
  Rule rule;
  std::function<void(Program&)> plant;
  const char* spec = "tawpipe";
};

class BrokenContext : public testing::TestWithParam<Defect> {};

void erase(RankProgram& rank, int i) {
  const Lane lane = rank.actions[i].lane;
  int before = 0;
  for (int k = 0; k < i; ++k)
    before += rank.actions[k].lane == lane ? 1 : 0;
  rank.actions.erase(rank.actions.begin() + i);
  for (Action& a : rank.actions)
    if (a.waits[index_of(lane)] > before)
      --a.waits[index_of(lane)];
}

/// The tails of a context group's collective on every member.
void erase_tails(Program& program, Kind kind, Payload payload) {
  for (const int r : {0, 1})
    erase(program.ranks[r], find(program.ranks[r], kind, payload, 1));
}

const std::vector<Defect> defects = {
    {"attends_before_all_parts_have_arrived",
        Rule::fresh_reads,
        [](Program& p) {
          Action& a = p.ranks[1].actions[find(p.ranks[1], Kind::forward, Segment::attend)];
          a.waits[index_of(Lane::context_inputs)] = 1;
        }},
    {"attends_without_waiting",
        Rule::fresh_reads,
        [](Program& p) {
          Action& a = p.ranks[0].actions[find(p.ranks[0], Kind::backward, Segment::attend)];
          a.waits[index_of(Lane::context_inputs)] = 0;
        }},
    {"tails_are_not_gathered",
        Rule::fresh_reads,
        [](Program& p) { erase_tails(p, Kind::all_gather, Payload::keys); }},
    {"keys_of_another_micro_batch",
        Rule::fresh_reads,
        [](Program& p) {
          RankProgram& rank = p.ranks[0];
          for (Action& a : rank.actions)
            if (projects(a) && a.micro_batch == 1) {
              a.micro_batch = 0;
              return;
            }
        }},
    {"gradient_of_keys_is_not_summed",
        Rule::exact_gradients,
        [](Program& p) { erase_tails(p, Kind::reduce_scatter, Payload::key_gradient); }},
    {"gradient_of_keys_of_heads_is_not_summed",
        Rule::exact_gradients,
        [](Program& p) {
          for (const int r : {0, 1}) {
            RankProgram& rank = p.ranks[r];
            const int heads = find(rank, Kind::reduce_scatter, Payload::key_gradient);
            const int tails = find(rank, Kind::reduce_scatter, Payload::key_gradient, 1);
            rank.actions[tails].waits = rank.actions[heads].waits;
            erase(rank, heads);
          }
        }},
    {"a_gradient_that_is_deferred_too",
        Rule::fresh_reads,
        [](Program& p) {
          RankProgram& rank = p.ranks[0];
          Action& a = rank.actions[find(rank, Kind::backward_input, Segment::finish)];
          a.slots.back() = {SlotClass::accumulator, 0};
        },
        "zb1"},
    {"finishes_before_the_sum",
        Rule::fresh_reads,
        [](Program& p) {
          Action& a = p.ranks[1].actions[find(p.ranks[1], Kind::backward, Segment::finish)];
          a.waits[index_of(Lane::context_gradients)] = 0;
        }},
    {"a_part_of_a_sequence_that_no_rank_computes",
        Rule::exact_gradients,
        [](Program& p) {
          RankProgram& rank = p.ranks[1];
          erase(rank, find(rank, Kind::backward, Segment::weights));
        }},
    {"a_rank_with_another_part",
        Rule::fresh_reads,
        [](Program& p) {
          // Ranks 0 and 1 send their hidden states to each other's partners of the next stage.
          for (const int r : {0, 1})
            for (Action& a : p.ranks[r].actions)
              if (a.kind == Kind::send && a.payload == Payload::activation)
                a.peer = a.peer == 2 ? 3 : 2;
          for (const int r : {2, 3})
            for (Action& a : p.ranks[r].actions)
              if (a.kind == Kind::recv && a.payload == Payload::activation)
                a.peer = 1 - a.peer;
        },
        "1f1b"},
    {"a_context_group_of_two_groups",
        Rule::fresh_reads,
        [](Program& p) { p.groups = topology::Groups({1, 3}); }},
    {"more_blocks_than_there_are_segments", Rule::fresh_reads, [](Program& p) { ++p.blocks[0]; }},
};

INSTANTIATE_TEST_SUITE_P(
    Defects, BrokenContext, testing::ValuesIn(defects), [](const auto& defect) {
      return defect.param.name;
    });

TEST_P(BrokenContext, ByTheRuleThatKnowsIt) {
  Program program = example(GetParam().spec);
  ASSERT_EQ(validate(program), std::nullopt);
  GetParam().plant(program);
  const auto violation = validate(program);
  ASSERT_TRUE(violation) << "not noticed";
  EXPECT_EQ(name_of(violation->rule), name_of(GetParam().rule)) << violation->message;
}
}  // namespace
}  // namespace minitaw::schedule
