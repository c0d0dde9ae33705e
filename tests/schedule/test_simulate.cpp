// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <random>
#include <set>
#include "base/error.hpp"
#include "schedule/execute.hpp"
#include "schedule/hand_written.hpp"
#include "schedule/measured.hpp"
#include "schedule/shapes.hpp"
#include "this_run.hpp"

namespace minitaw::schedule {
namespace {
using Spans = std::vector<std::vector<Span>>;

/// Every action takes what its text says: "F s0" -> 2 matches the actions whose text begins so.
Costs by_text(const Program& program, const std::map<std::string, double>& seconds) {
  return [&program, seconds](int, const Action& a) {
    for (const auto& [text, time] : seconds)
      if (to_text(a, program).starts_with(text))
        return time;
    return 0.0;
  };
}

/// "begin-end" of each action of a rank that takes time.
std::string times(const std::vector<Span>& spans) {
  std::string text;
  for (const Span& span : spans)
    if (span.end > span.begin)
      text += (text.empty() ? "" : " ") + std::to_string(static_cast<int>(span.begin)) + "-" +
              std::to_string(static_cast<int>(span.end));
  return text;
}

/// F 2 on rank 0, the activations take 5, rank 1 computes, the gradients take 7 back.
TEST(Simulate, PipelineOfTwoStagesByHand) {
  const Program program = parse_program(hand_written::pipeline);
  const Spans spans = simulate(
      program, by_text(program, {{"F", 2}, {"send A1", 5}, {"B", 3}, {"send D1", 7}, {"W", 4}}));
  EXPECT_EQ(times(spans[0]), "0-2 2-7 12-19 19-22 22-26");
  EXPECT_EQ(times(spans[1]), "2-7 7-9 9-12 12-19 12-16");
  const Idle result = idle(program, spans);
  EXPECT_EQ(std::tuple(result.seconds, result.busy), std::tuple(26, std::vector<double>{9, 9}));
  for (const double share : {result.share(), result.share(1)})
    EXPECT_DOUBLE_EQ(share, 1 - 9.0 / 26);
}

TEST(Simulate, DeadlockIsADefect) {
  const Program program = parse_program(hand_written::with(
      hand_written::pipeline, "recv A1 m0 x0 <- r0", "recv A1 m0 x0 <- r0 after compute:1"));
  EXPECT_THROW((void)simulate(program, [](int, const Action&) { return 1.0; }), LogicError);
}

/// An action is ready when the one before it in its lane ends, and begins as early as waits and
/// other sides allow.
void check_laws(const Program& program, const Spans& spans, const Costs& costs) {
  const Matching matching = detail::match(program);
  const Spans own = as_measured(program, spans);
  for (int r = 0; r < static_cast<int>(spans.size()); ++r)
    for (int i = 0; i < static_cast<int>(spans[r].size()); ++i) {
      const Action& a = program.ranks[r].actions[i];
      std::vector<Place> sides = {{r, i}};  // the one that is asked for the cost comes first
      if (is_communication(a.kind)) {
        const Sides all = matching.sides_of(matching.transfer_of({r, i}));
        sides.assign(all.begin(), all.end());
      }
      double begin = 0;
      for (const Place side : sides)
        begin = std::max(begin, own[side.rank][side.action].begin);
      EXPECT_EQ(
          std::tuple(spans[r][i].ready, spans[r][i].begin), std::tuple(own[r][i].ready, begin));
      EXPECT_EQ(spans[r][i].end,
          begin + costs(sides[0].rank, program.ranks[sides[0].rank].actions[sides[0].action]));
    }
}

TEST(Simulate, StartsEverythingAsEarlyAsItMay) {
  std::mt19937 random(test::seed());
  for (int ranks = 2; ranks <= 6; ++ranks)
    for (const topology::Groups& groups : shapes::groupings(ranks))
      for (const char* spec : {"ddp", "zb1", "tawpipe", "tawpipe:cco=off", "tawpipe:gwps=off"}) {
        const Request request{parse_spec(spec), groups, 2 * ranks, ranks + 1};
        SCOPED_TRACE(shapes::name_of(request));
        const Program program = build(request);
        const unsigned seed = random();
        const Costs costs = [seed](int rank, const Action& a) {
          const auto key =
              static_cast<unsigned>(a.shard * 31 + a.micro_batch * 7 + rank * 13) ^ seed;
          return static_cast<double>((key * 2654435761U) >> 20);
        };
        check_laws(program, simulate(program, costs), costs);
      }
}

TEST(Simulate, WithoutOverlapARankComputesOrMovesData) {
  for (const char* spec : {"1f1b:blocking=on", "zb1:blocking=on"})
    for (const topology::Groups& groups : shapes::groupings(4)) {
      const Program program = build({parse_spec(spec), groups, 8, 5});
      const Spans spans =
          simulate(program, [](int rank, const Action& a) { return 1.0 + (a.tick + rank) % 3; });
      for (std::size_t r = 0; r < spans.size(); ++r)
        for (std::size_t i = 0; i < spans[r].size(); ++i)
          for (std::size_t k = 0; k < i; ++k) {
            const Action &a = program.ranks[r].actions[i], &b = program.ranks[r].actions[k];
            if ((a.lane == Lane::compute) == (b.lane == Lane::compute))
              continue;
            EXPECT_TRUE(
                spans[r][k].end <= spans[r][i].begin || spans[r][i].end <= spans[r][k].begin)
                << spec << ", " << groups.text() << ", rank " << r << ": " << to_text(a, program)
                << to_text(b, program);
          }
    }
}

/// Options of TawPipe's overlap, by the clock: a rank computes while ...
TEST(Overlap, OfTawPipeByTheClock) {
  const auto overlaps = [](const Program& program, const auto& of) {
    const Spans spans = simulate(program, [](int, const Action&) { return 1.0; });
    int count = 0;
    for (std::size_t r = 0; r < spans.size(); ++r)
      for (std::size_t i = 0; i < spans[r].size(); ++i)
        for (std::size_t k = i + 1; k < spans[r].size(); ++k) {
          const Action &earlier = program.ranks[r].actions[i], &later = program.ranks[r].actions[k];
          if (of(earlier) && is_visit(later.kind))
            count += spans[r][k].begin < spans[r][i].end ? 1 : 0;
        }
    return count;
  };
  const auto weight_message = [](const Action& a) {
    return is_point_to_point(a.kind) && a.payload == Payload::weights;
  };
  const auto other_transfer = [&](const Action& a) {
    return is_communication(a.kind) && !weight_message(a);
  };
  for (const topology::Groups& groups :
      {topology::Groups::equal(6, 3), topology::Groups({1, 2, 3})}) {
    const auto built = [&](const char* spec) { return build({parse_spec(spec), groups, 12, 6}); };
    const Program on = built("tawpipe"), off = built("tawpipe:cco=off");
    EXPECT_GT(overlaps(on, weight_message),
        0);  // ... a message with weights that was issued before is under way
    EXPECT_EQ(overlaps(off, weight_message), 0);
    EXPECT_GT(overlaps(off, other_transfer), 0);  // ... another transfer is
  }
}

model::Shape some_shape(model::Recompute recompute) {
  return {5, 24, 6, 2, 40, 101, 17, 3, model::Dtype::bf16, recompute};
}

TEST(Costs, WithoutRecomputationExecutesTheModelFlops) {
  const model::Shape shape = some_shape(model::Recompute::none);
  const Program program = build({parse_spec("tawpipe"), topology::Groups({1, 2}), 6, shape.layers});
  const model::Layout layout = model::make_layout(shape, cut_of(program));
  const double expected = model::flops_per_token(shape) * 6 * static_cast<double>(shape.tokens());
  double sum = 0;
  for (const RankProgram& rank : program.ranks)
    for (const Action& a : rank.actions)
      sum += flops(a, layout);
  EXPECT_NEAR(sum, expected, 1e-9 * expected);
}

TEST(Costs, HalvesAddUpAndRecomputationByHand) {
  const auto at = [](Kind kind, model::Recompute recompute) {
    const Action visit{.kind = kind, .shard = 0, .micro_batch = 0};
    return flops(visit, model::make_layout(some_shape(recompute), {5, 1, 1, false}));
  };
  using enum model::Recompute;
  for (const model::Recompute recompute : {none, keep_attention, block})
    EXPECT_DOUBLE_EQ(at(Kind::backward, recompute),
        at(Kind::backward_input, recompute) + at(Kind::backward_weight, recompute));
  EXPECT_DOUBLE_EQ(at(Kind::backward, none), 2 * at(Kind::forward, none));
  // T = 51, A = 24: matrices 24 x (40 + 24 + 3 x 40), attention 17 x 24.
  constexpr double matrices = 2.0 * 51 * 24 * 184, attention = 2.0 * 51 * 17 * 24,
                   last = 2.0 * 51 * 24 * 40;
  EXPECT_DOUBLE_EQ(at(Kind::forward, block), matrices + attention);
  EXPECT_DOUBLE_EQ(at(Kind::backward_weight, block), matrices);
  EXPECT_DOUBLE_EQ(at(Kind::backward_input, none), matrices + 2 * attention);
  EXPECT_DOUBLE_EQ(at(Kind::backward_input, block), 2 * matrices + 3 * attention - last);
  EXPECT_DOUBLE_EQ(at(Kind::backward_input, keep_attention), 2 * matrices + 2 * attention - last);
}

/// In bf16: gradient, two moments and master weights are touched seven times in fp32, the weights
/// once.
TEST(Costs, BytesThatAreTouchedByHand) {
  const Program program = parse_program(hand_written::relay);
  const model::Layout layout =
      model::make_layout(some_shape(model::Recompute::block), cut_of(program));
  const auto touched = [&](const std::string& text) {
    for (const Action& a : program.ranks[0].actions)
      if (to_text(a, program).starts_with(text))
        return touched_bytes(program, 0, a, layout);
    return -1.0;
  };
  const auto shard = static_cast<double>(layout.shards[0].elements);
  for (const char* end : {"embed m0", "dembed m0"})
    EXPECT_EQ(touched(end), 2.0 * 51 * 24 * 2);
  EXPECT_EQ(touched("update W0"), (7 * 4 + 2) * shard);
  EXPECT_EQ(touched("update E0"), (7 * 4 + 2) * static_cast<double>(layout.embeddings.part));
}

/// Of a part in bf16: weights read and written; gradients read and added in fp32, the first
/// written; sums rounded.
TEST(Costs, BytesOfMemoryByHand) {
  const Program program =
      build({parse_spec("fsdp:hierarchical=on:reduce=group"), topology::Groups({2, 2}), 8, 5});
  const model::Layout layout =
      model::make_layout(some_shape(model::Recompute::block), cut_of(program));
  std::set<double> found;
  for (const Action& a : program.ranks[1].actions) {
    if (is_communication(a.kind) && a.payload == Payload::embeddings_gradient) {
      EXPECT_EQ(moved_bytes(a, layout), 4.0 * static_cast<double>(layout.embeddings.elements));
    }
    if (a.kind == Kind::load || a.kind == Kind::accumulate) {
      const double part = static_cast<double>(layout.shards[a.shard].elements) / a.parts;
      const double each = a.kind == Kind::load ? a.payload == Payload::weights ? 2 + 2 : 4 + 2
                          : a.accumulates      ? 2 + 4 + 4
                                               : 2 + 4;
      EXPECT_EQ(touched_bytes(program, 1, a, layout), each * part) << to_text(a, program);
      found.insert(each);
    }
  }
  EXPECT_EQ(found, (std::set<double>{4, 6, 10}));
}

TEST(Costs, TransfersTakeNoTime) {
  const Program program = build({parse_spec("tawpipe"), topology::Groups({2, 2}), 4, 5});
  const Costs costs = costs_of(program,
      model::make_layout(some_shape(model::Recompute::block), cut_of(program)),
      {.flops = 1});
  for (int r = 0; r < 4; ++r)
    for (const Action& a : program.ranks[r].actions)
      EXPECT_EQ(costs(r, a) == 0, is_communication(a.kind) || a.kind == Kind::join)
          << to_text(a, program);
}
}  // namespace
}  // namespace minitaw::schedule
