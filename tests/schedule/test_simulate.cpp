// SPDX-License-Identifier: BSD-3-Clause
// When actions begin and end, and what computing costs.
#include <gtest/gtest.h>
#include <set>
#include "base/error.hpp"
#include "schedule/execute.hpp"
#include "schedule/measured.hpp"
#include "schedule/shapes.hpp"

namespace minitaw::schedule {
namespace {
using Spans = std::vector<std::vector<Span>>;

/// "begin-end" of each action of a rank that takes time.
std::string busy_times(const std::vector<Span>& spans) {
  std::string text;
  for (const Span& span : spans)
    if (span.end > span.begin)
      text += fmt::format("{}{}-{}", text.empty() ? "" : " ", span.begin, span.end);
  return text;
}

/// F 2 on rank 0, the activations take 5, rank 1 computes, the gradients take 7 back.
TEST(Simulate, PipelineOfTwoStagesByHand) {
  const Program program = build(shapes::pipeline());
  const std::map<Kind, double> seconds = {
      {Kind::forward, 2}, {Kind::backward_input, 3}, {Kind::backward_weight, 4}};
  const Spans spans = simulate(program, [&](int rank, const Action& a) {
    if (a.kind == Kind::send)
      return rank == 0 ? 5.0 : 7.0;
    return seconds.contains(a.kind) ? seconds.at(a.kind) : 0.0;
  });
  EXPECT_EQ(busy_times(spans[0]), "0-2 2-7 12-19 19-22 22-26");
  EXPECT_EQ(busy_times(spans[1]), "2-7 7-9 9-12 12-19 12-16");
  const Idle result = idle(program, spans);
  EXPECT_EQ(std::tuple(result.seconds, result.busy), std::tuple(26, std::vector<double>{9, 9}));
  EXPECT_DOUBLE_EQ(result.share(), 1 - 9.0 / 26);
  EXPECT_DOUBLE_EQ(result.share(1), 1 - 9.0 / 26);
}

/// An action is ready when the one before it in its lane ends, and begins as early as waits and
/// other sides allow. The first side is asked for the cost.
TEST(Simulate, StartsEverythingAsEarlyAsItMay) {
  const Costs costs = [](int rank, const Action& a) {
    const auto key = static_cast<unsigned>(a.shard * 31 + a.micro_batch * 7 + rank * 13);
    return static_cast<double>((key * 2654435761U) >> 20);
  };
  for (const Groups& groups : {Groups({2, 3}), Groups({3, 1, 2})})
    for (const char* spec : {"ddp", "zb1", "tawpipe", "tawpipe:cco=off", "tawpipe:gwps=off"}) {
      const int ranks = groups.ranks();
      const Program program = build({parse_spec(spec), groups, 2 * ranks, ranks + 1});
      SCOPED_TRACE(spec);
      const Spans spans = simulate(program, costs), own = as_measured(program, spans);
      const Matching matching = detail::match(program);
      for (int r = 0; r < ranks; ++r)
        for (int i = 0; i < std::ssize(spans[r]); ++i) {
          const Place place{r, i};
          const Sides all = matching.sides_of(matching.transfer_of(place));
          double begin = own[r][i].begin;
          for (const auto& [rank, action] : all)
            begin = std::max(begin, own[rank][action].begin);
          const Place first = all.empty() ? place : all.front();
          const double end = begin + costs(first.rank, action_at(program, first));
          const Span& span = spans[r][i];
          EXPECT_EQ(std::tuple(span.ready, span.begin, span.end),
              std::tuple(own[r][i].ready, begin, end));
        }
    }
}

/// How many pairs of actions of a rank, an earlier and a later one that count(), go on at once.
int overlaps(const char* spec, const Groups& groups, const auto& count) {
  const Program program = build({parse_spec(spec), groups, 12, 6});
  const Spans spans =
      simulate(program, [](int rank, const Action& a) { return 1.0 + (a.tick + rank) % 3; });
  int pairs = 0;
  for (int r = 0; r < std::ssize(spans); ++r)
    for (int k = 0; k < std::ssize(spans[r]); ++k)
      for (int i = 0; i < k; ++i) {
        const Span &earlier = spans[r][i], &later = spans[r][k];
        if (earlier.begin < later.end && later.begin < earlier.end)
          pairs += count(action_at(program, {r, i}), action_at(program, {r, k})) ? 1 : 0;
      }
  return pairs;
}

/// In a blocking pipeline a rank computes or moves data. Without cco, a rank of TawPipe does not
/// compute while weights travel between groups.
TEST(Overlap, IsWhatTheOptionsSay) {
  const auto any = [](const Action& a, const Action& b) {
    return (a.lane == Lane::compute) != (b.lane == Lane::compute);
  };
  const auto weights = [](const Action& a, const Action& visit) {
    return is_point_to_point(a.kind) && a.payload == Payload::weights && is_visit(visit.kind);
  };
  for (const Groups& groups : {Groups::equal(6, 3), Groups({1, 2, 3})}) {
    EXPECT_GT(overlaps("1f1b", groups, any), 0);
    EXPECT_EQ(overlaps("1f1b:blocking=on", groups, any), 0);
    EXPECT_EQ(overlaps("zb1:blocking=on", groups, any), 0);
    EXPECT_GT(overlaps("tawpipe", groups, weights), 0);
    EXPECT_EQ(overlaps("tawpipe:cco=off", groups, weights), 0);
    EXPECT_GT(overlaps("tawpipe:cco=off", groups, any), 0);
  }
}

model::Shape some_shape(model::Recompute recompute) {
  return {5, 24, 6, 2, 40, 101, 17, 3, model::Dtype::bf16, recompute};
}

TEST(Costs, WithoutRecomputationExecutesTheModelFlops) {
  const model::Shape shape = some_shape(model::Recompute::none);
  const Program program = build({parse_spec("tawpipe"), Groups({1, 2}), 6, shape.layers});
  const Layout layout = model::make_layout(shape, cut_of(program));
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
  using enum Kind;
  for (const model::Recompute recompute : {none, keep_attention, block})
    EXPECT_DOUBLE_EQ(
        at(backward, recompute), at(backward_input, recompute) + at(backward_weight, recompute));
  // T = 51, A = 24: matrices 24 x (40 + 24 + 3 x 40), attention 17 x 24.
  constexpr double matrices = 2.0 * 51 * 24 * 184, attention = 2.0 * 51 * 17 * 24,
                   last = 2.0 * 51 * 24 * 40;
  EXPECT_DOUBLE_EQ(at(forward, block), matrices + attention);
  EXPECT_DOUBLE_EQ(at(backward_weight, block), matrices);
  EXPECT_DOUBLE_EQ(at(backward_input, none), matrices + 2 * attention);
  EXPECT_DOUBLE_EQ(at(backward_input, block), 2 * matrices + 3 * attention - last);
  EXPECT_DOUBLE_EQ(at(backward_input, keep_attention), 2 * matrices + 2 * attention - last);
}

/// In bf16. Updates touch gradient, two moments and master weights seven times in fp32, the weights
/// once. Parts of weights are read and written; gradients are read and added in fp32, the first
/// written; sums are rounded.
TEST(Costs, OfMemoryByHandAndOfTransfersNone) {
  const Program program =
      build({parse_spec("fsdp:hierarchical=on:reduce=group"), Groups({2, 2}), 8, 5});
  const Layout layout = model::make_layout(some_shape(model::Recompute::block), cut_of(program));
  const Costs costs = costs_of(program, layout, {.flops = 1e300, .memory = 1});
  std::set<double> found;
  for (const Action& a : program.ranks[1].actions) {
    const auto expect = [&](double each, std::size_t elements) {
      EXPECT_EQ(costs(1, a), each * static_cast<double>(elements)) << to_text(a, program);
      found.insert(each);
    };
    const std::size_t shard =
        of_embeddings(a.payload) || a.shard < 0 ? 0 : layout.shards[a.shard].elements;
    if (a.kind == Kind::embed || a.kind == Kind::embed_backward)
      expect(2, 2 * 51 * 24);
    else if (a.kind == Kind::update)
      expect(7 * 4 + 2, of_embeddings(a.payload) ? layout.embeddings.part : shard / 4);
    else if (a.kind == Kind::load)
      expect(a.payload == Payload::weights ? 2 + 2 : 4 + 2, shard / a.parts);
    else if (a.kind == Kind::accumulate)
      expect(a.accumulates ? 2 + 4 + 4 : 2 + 4, shard / a.parts);
    else
      EXPECT_EQ(costs(1, a) > 0, is_visit(a.kind) || a.kind == Kind::loss) << to_text(a, program);
    if (is_communication(a.kind) && a.payload == Payload::embeddings_gradient) {
      EXPECT_EQ(moved_bytes(a, layout), 4.0 * static_cast<double>(layout.embeddings.elements));
    }
  }
  EXPECT_EQ(found, (std::set<double>{2, 4, 6, 10, 30}));
}

}  // namespace
}  // namespace minitaw::schedule
