// SPDX-License-Identifier: BSD-3-Clause
#include <functional>
#include <gmock/gmock.h>
#include <numeric>
#include <random>
#include "fixtures.hpp"
#include "model/cost.hpp"
#include "model/layout.hpp"
#include "model/plan.hpp"

namespace minitaw::model {
namespace {
Shape good() {
  return {2, 24, 4, 2, 8, 11, 3, 2};
}

TEST(Shape, RefusesWhatCannotBeComputedByKey) {
  EXPECT_NO_THROW(check({1, 2, 1, 1, 1, 1, 1, 1}));
  constexpr std::int64_t big = INT32_MAX;
  const std::vector<std::pair<const char*, std::function<void(Shape&)>>> cases = {
      {"layers = 0", [](Shape& s) { s.layers = 0; }},
      {"hidden = -4", [](Shape& s) { s.hidden = -4; }},
      {"heads = 0", [](Shape& s) { s.heads = 0; }},
      {"kv_heads = 0", [](Shape& s) { s.kv_heads = 0; }},
      {"vocab = 0", [](Shape& s) { s.vocab = 0; }},
      {"seq = 0", [](Shape& s) { s.seq = 0; }},
      {"micro_batch = 0", [](Shape& s) { s.micro_batch = 0; }},
      {"ffn = 0", [](Shape& s) { s.ffn = 0; }},
      {"heads = 5 does not divide hidden = 24", [](Shape& s) { s.heads = 5; }},
      {"head_dim = 7", [](Shape& s) { s.given_head_dim = 7; }},
      {"kv_heads = 3 does not divide heads = 4", [](Shape& s) { s.kv_heads = 3; }},
      {"even", [](Shape& s) { s.heads = s.kv_heads = 8; }},
      // sizes that overflow
      {"seq", [](Shape& s) { s.seq = big + 1; }},
      {"seq * micro_batch", [](Shape& s) { s.seq = s.micro_batch = big; }},
      {"2 * ffn", [](Shape& s) { s.ffn = big; }},
      {"head_dim", [](Shape& s) { s = {2, 1 << 30, 1, 1, 8, 11, 3, 2}; }},
      {"head_dim", [](Shape& s) { s.given_head_dim = 1 << 28; }},
      {"weights",
          [](Shape& s) {
            s = {128, 1 << 20, 384, 1, 8, 11, 1, 1};  // those of queries alone would fit
            s.given_head_dim = 1 << 21;
          }},
      {"tokens", [](Shape& s) { s = {2, 1 << 29, 4, 2, 8, big, big, 1}; }},
      {"weights", [](Shape& s) { s = {1 << 20, 1 << 20, 4, 2, 1 << 29, 11, 1, 1}; }}};
  for (const auto& [key, spoil] : cases) {
    Shape shape = good();
    spoil(shape);
    EXPECT_THAT([&] { check(shape); }, testing::ThrowsMessage<InputError>(testing::HasSubstr(key)));
  }
}

/// Heads whose width is not hidden / heads.
Shape good_with_heads(std::int64_t head_dim) {
  Shape shape = good();
  shape.given_head_dim = head_dim;
  return shape;
}

TEST(Shape, CountsParametersAsTheLayoutDoes) {
  for (const Shape& shape : {good(), good_with_heads(10), good_with_heads(2)}) {
    std::int64_t sum = 0;
    const Layout layout = make_layout(shape, {2, 1});
    for (const Flat* part : layout.parts())
      for (const Tensor& tensor : part->tensors)
        sum += tensor.size();
    EXPECT_EQ(parameters(shape), sum);
  }
}

TEST(Shape, CountsModelFlops) {
  const double matmul = 6.0 * (2 * 24 * (48 + 24 + 3 * 8) + 11 * 24);
  EXPECT_EQ(flops_per_token(good()), matmul + 6 * 2 * 3 * 24);
}

/// Four query heads of 10 and two key/value heads beside a hidden state of 24.
TEST(Shape, OfHeadsApartFromHiddenByHand) {
  const Shape shape = good_with_heads(10);
  const std::int64_t width = 40, qkv = 80, weights = 24 * (qkv + width + 3 * 8), tokens = 6;
  EXPECT_EQ(block_matmul_parameters(shape), weights);
  EXPECT_EQ(parameters(shape), 2 * (weights + 2 * 24) + (2 * 11 + 1) * 24);
  EXPECT_EQ(flops_per_token(shape), 6.0 * (2 * weights + 11 * 24) + 6 * 2 * 3 * width);
  EXPECT_EQ(block_costs(shape), (BlockCosts{4 * (weights + 3 * width), 3 * 11 * 24}));
  EXPECT_EQ(cost_of_block(shape, in_flops()).forward(), 2.0 * tokens * (weights + 3 * width));
  const Shard shard = make_layout(shape, {1, 1}).shards[0];
  EXPECT_EQ(shard.tensor(1, Role::wqkv).rows, qkv);
  EXPECT_EQ(shard.tensor(1, Role::wo).rows, 24);
  EXPECT_EQ(shard.tensor(1, Role::wo).cols, width);
  for (const auto& [part, cols] : {std::pair{Intermediate::qkv, qkv},
           {Intermediate::attention, width},
           {Intermediate::attention_gradient, width},
           {Intermediate::middle, 24}})
    EXPECT_EQ(extents_of(part, shape).cols, cols);
  EXPECT_EQ(prefix_elements(shape), tokens * 2 * 2 * 10);
}

Shape odd_shape(int layers) {
  return {layers, 12, 6, 2, 1 + (layers * 37) % 90, 7, 5, 3};
}

/// Runs that are needed where none may cost more than `cap`: each takes all that it can.
int runs_within(std::int64_t cap, const std::vector<std::int64_t>& costs) {
  int runs = 1;
  for (std::int64_t sum = 0; const std::int64_t cost : costs)
    if (sum += cost; sum > cap) {
      ++runs;
      sum = cost;
    }
  return runs;
}

TEST(Layout, EveryLayerIsInExactlyOneShard) {
  for (int layers = 1; layers <= 26; ++layers)
    for (int shards = 1; shards <= layers; ++shards) {
      const Layout layout = make_layout(odd_shape(layers), {shards, 1});
      ASSERT_EQ(layout.shards.size(), static_cast<std::size_t>(shards));
      int next = 0;
      for (const Shard& shard : layout.shards) {
        ASSERT_GE(shard.layers, 1) << next;
        EXPECT_EQ(shard.tensors.size(), static_cast<std::size_t>(shard.layers * roles_per_block));
        for (const Tensor& tensor : shard.tensors)
          EXPECT_EQ(tensor.layer, next + (&tensor - shard.tensors.data()) / roles_per_block);
        next += shard.layers;
      }
      EXPECT_EQ(next, layers);
    }
  EXPECT_THROW((void)make_layout(odd_shape(3), {4, 1}), InputError) << "more shards than layers";
}

TEST(Layout, NoSplitHasACheaperDearestRun) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 400; ++trial) {
    const std::int64_t block = 1 + random() % (trial % 2 ? 5 : 1000), head = random() % (4 * block);
    std::vector<std::int64_t> costs(1 + random() % 10, block);
    costs.back() += head;
    const int layers = static_cast<int>(costs.size());
    for (int runs = 1; runs <= layers; ++runs) {
      const std::vector<int> lengths =
          shard_lengths(layers, {block, head}, {.shards = runs, .head_counts = true});
      const auto [least, most] = std::ranges::minmax(lengths);
      const std::int64_t dearest = std::max(most * block, lengths.back() * block + head);
      EXPECT_EQ(std::reduce(lengths.begin(), lengths.end()), layers);
      EXPECT_GE(least, 1);
      EXPECT_TRUE(dearest == costs.back() || runs_within(dearest - 1, costs) > runs);
    }
  }
}

TEST(Layout, EqualBlocksDifferByAtMostOnePerShard) {
  for (int layers = 1; layers <= 40; ++layers)
    for (int runs = 1; runs <= layers; ++runs) {
      const auto [low, high] = std::ranges::minmax(shard_lengths(layers, {1000}, {.shards = runs}));
      EXPECT_LE(high - low, 1) << layers << " blocks in " << runs;
    }
}

void expect_packed(const Flat& flat) {
  std::int64_t end = 0;
  for (const Tensor& tensor : flat.tensors) {
    EXPECT_EQ(tensor.offset % alignment, 0) << tensor.name;
    EXPECT_TRUE(end <= tensor.offset && tensor.offset < end + alignment) << tensor.name;
    end = tensor.offset + tensor.size();
  }
  EXPECT_LE(end, flat.elements);
  EXPECT_EQ(flat.elements % alignment, 0);
}

TEST(Layout, TensorsAreAlignedDisjointAndShaped) {
  const Layout layout = make_layout(odd_shape(5), {2, 3});
  const Shape& shape = layout.shape;
  for (const Shard& shard : layout.shards) {
    expect_packed(shard);
    for (int block = 0; block < shard.layers; ++block) {
      EXPECT_EQ(shard.tensor(block, Role::wqkv).rows, (6 + 2 * 2) * 2);
      EXPECT_EQ(shard.tensor(block, Role::w13).rows, 2 * shape.ffn);
      EXPECT_EQ(shard.tensor(block, Role::w2).cols, shape.ffn);
      EXPECT_TRUE(
          shard.tensor(block, Role::norm2).is_gain() && !shard.tensor(block, Role::w2).is_gain());
    }
  }
  EXPECT_EQ(layout.shards[0].tensors[1].name, "layers.0.wqkv");
}

TEST(Layout, PartsOfEmbeddingsAndOfShardsAreEqualAndAligned) {
  for (int parts = 1; parts <= 9; ++parts) {
    const Layout layout =
        make_layout(odd_shape(5), {.shards = 2, .embeddings_parts = parts, .shard_parts = parts});
    const Embeddings& embeddings = layout.embeddings;
    expect_packed(embeddings);
    EXPECT_EQ(std::tuple(embeddings.elements, embeddings.part % alignment),
        std::tuple(parts * embeddings.part, 0));
    EXPECT_EQ(embeddings.tensor(Role::head).rows, 7);
    EXPECT_TRUE(embeddings.tensor(Role::norm).is_gain());
    for (const Shard& shard : layout.shards) {
      expect_packed(shard);
      EXPECT_EQ(shard.elements % (parts * alignment), 0) << parts;
    }
  }
}

TEST(Layout, TheSecondOfTwoSplitEndsBeginsWithTheNorm) {
  const Embeddings ends =
      make_layout(odd_shape(2), {.embeddings_parts = 2, .embeddings_split = true}).embeddings;
  EXPECT_EQ(std::tuple(ends.elements, ends.part % alignment), std::tuple(2 * ends.part, 0));
  const Tensor& head = ends.tensor(Role::head);
  EXPECT_LE(head.offset + head.size(), ends.elements);
  EXPECT_LE(ends.tensor(Role::embedding).size(), ends.part);
  EXPECT_EQ(ends.tensor(Role::norm).offset, ends.part);
}

TEST(Layout, TheHeadThatIsTiedIsTheEmbedding) {
  Shape shape = odd_shape(2);
  const std::int64_t apart = parameters(shape);
  shape.tied = true;
  const Embeddings ends = make_layout(shape, {.embeddings_parts = 3}).embeddings;
  expect_packed(ends);
  EXPECT_EQ(std::tuple(ends.tensors.size(), ends.elements), std::tuple(2U, 3 * ends.part));
  EXPECT_EQ(&ends.tensor(Role::head), &ends.tensor(Role::embedding));
  EXPECT_TRUE(ends.tensor(Role::norm).is_gain());
  EXPECT_EQ(parameters(shape), apart - shape.vocab * shape.hidden);
  EXPECT_THROW(
      (void)make_layout(shape, {.embeddings_parts = 2, .embeddings_split = true}), LogicError);
}

TEST(Layout, TheHeadShortensTheLastStage) {
  Shape shape = odd_shape(8);
  shape.ffn = 8;
  const auto last = [&](std::int64_t vocab, bool split) {
    shape.vocab = vocab;
    const Cut cut{
        .shards = 2, .embeddings_parts = 2, .embeddings_split = split, .head_counts = split};
    return make_layout(shape, cut).shards.back().layers;
  };
  EXPECT_EQ(
      std::tuple(last(1, true), last(100000, true), last(100000, false)), std::tuple(4, 1, 4));
}

Shape shape_of(Recompute recompute, Dtype dtype) {
  return {3, 64, 4, 2, 100, 300, 33, 2, dtype, recompute};
}

/// Vector loads need it. Regions that overlapped would spoil the training step of test_model.cpp.
TEST(Footprint, RegionsAreAligned) {
  for (const Recompute recompute : {Recompute::block, Recompute::keep_attention, Recompute::none})
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
      const Shape shape = shape_of(recompute, dtype);
      const WorkspacePlan p = plan_workspace(make_layout(shape, {2, 1}));
      const BlockPlan saved = plan_saved(shape), deferred = plan_deferred(shape);
      std::vector<Region> regions = {
          p.rope, p.tokens, p.tile_normed, p.tile_gradient, p.tile_rstd, p.tile_logits, p.index};
      for (const BlockRegions& block : {p.block, saved.regions, deferred.regions})
        regions.insert(regions.end(), block.all.begin(), block.all.end());
      for (const Region& region : regions)
        EXPECT_EQ(region.offset % 256, 0U);
      EXPECT_EQ(saved.bytes % 256 + deferred.bytes % 256, 0U);
    }
}

/// Logits are of the compute type, losses of a slice fp64. Libraries take 32 MiB.
TEST(Footprint, LossesAndLibrariesByHand) {
  Shape two = good();
  EXPECT_EQ(blas_estimate(two, 1), 0U);
  EXPECT_EQ(blas_estimate(two, 2), 2U * 576 * 6);
  two.seq = 1 << 20;
  EXPECT_EQ(blas_estimate(two, 3), 3U * (64 << 20));
  for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
    const WorkspacePlan plan =
        plan_workspace(make_layout(shape_of(Recompute::block, dtype), {1, 1}));
    EXPECT_EQ(plan.tile_logits.bytes, 66U * 300 * bytes_of(dtype));
    EXPECT_EQ(plan.tile_losses.bytes, 66U * 8);
  }
  EXPECT_EQ(library_estimate(good()), 32U << 20);
}

/// Of cuDNN 9.19.0 on an H200, as CudnnAttention::prepare() says there.
TEST(Plan, OfLibrariesIsWhatCudnnAsksFor) {
  const auto of = [](std::int64_t batch, std::int64_t seq, int kv_heads) {
    return Shape{2, 4096, 32, kv_heads, 8, 11, seq, batch, Dtype::bf16};
  };
  EXPECT_EQ(library_estimate(of(1, 4096, 32)), 67633408U);
  EXPECT_EQ(library_estimate(of(2, 4096, 32)), 135266560U);
  EXPECT_EQ(library_estimate(of(1, 131072, 8)), 4311744768U);
  // Where keys lie apart, beside it: statistics of queries, and gradients of keys and values.
  constexpr std::size_t rows = 32 * 4096, of_key = 2 * 2 * 8 * 128;
  Shape shared = of(1, 16384, 8);  // the tail: 4096 queries that see 16384 keys
  shared.context = {0, 2};
  EXPECT_EQ(library_estimate(shared), 336068864U + 4 * rows + of_key * 16384);
  shared.key_parts = 2;
  EXPECT_EQ(library_estimate(shared), 168034560U + (4 * rows + of_key * 16384) / 2);
  Shape slices = of(1, 8192, 8);
  slices.slices = 2;
  slices.even_slices = true;
  EXPECT_EQ(
      library_estimate(slices), 256 + 4 * rows * 129 + 8 * rows * 128 + 4 * rows + of_key * 8192);
}

/// Of a block with F = 8/3 H and as many key heads as query heads, in units of B S H bytes, bf16.
double deferred_share(Recompute recompute) {
  const Shape shape{1, 768, 6, 6, 2048, 8, 65536, 3, Dtype::bf16, recompute};
  return static_cast<double>(plan_deferred(shape).bytes) /
         static_cast<double>(shape.tokens() * shape.hidden);
}

TEST(Footprint, StashIsWhatZeroBubbleSaysLessWhatTheForwardPassKept) {
  // arXiv 2401.10241: 32 B S H. norm1's output is rebuilt (2); the attention output may be kept
  // (2), and with it all else: the gradient of gate and up projections takes their place (32/3),
  // norm2's output is rebuilt. Beside it: both gains' partial sums, 4 bytes x 512 rows each, and
  // row statistics.
  const double rest = 2 * 4 * 512.0 / (65536 * 3) + 0.01;
  EXPECT_NEAR(deferred_share(Recompute::block), 32 - 2, rest);
  EXPECT_NEAR(deferred_share(Recompute::keep_attention), 32 - 4, rest);
  EXPECT_NEAR(deferred_share(Recompute::none), 32 - 4 - 32.0 / 3 - 2, rest);
}

TEST(Footprint, ScratchOfALongSequenceDoesNotHoldAllLogits) {
  Shape shape{1, 4096, 32, 32, 11008, 32000, 131072, 1, Dtype::bf16};
  EXPECT_EQ(loss_tile(shape), 2048);  // 2097 would fit into 2^26 logits
  shape.vocab = INT32_MAX;
  EXPECT_EQ(loss_tile(shape), 16);
}

// ---- Slices of a sequence ----

Shape sliced(std::int64_t seq, int slices, bool even, int context) {
  Shape shape{2, 64, 4, 2, 128, 50, seq, 1};
  shape.slices = slices;
  shape.even_slices = even;
  shape.context = {0, context};
  return shape;
}

TEST(Cut, CoversTheSequenceInOrderAndDividesAmongRanks) {
  for (const int context : {1, 2, 3})
    for (const int slices : {2, 3, 8, 64})
      for (const std::int64_t granules : {64, 65, 100, 1000, 20000})
        for (const bool even : {false, true}) {
          const Shape shape = sliced(granules * 2 * context, slices, even, context);
          std::int64_t end = 0;
          for (const Shape& slice : slices_of(shape)) {
            ASSERT_EQ(slice.span.begin, end);
            ASSERT_GT(slice.span.count, 0);
            ASSERT_EQ(slice.span.count % (context > 1 ? 2 * context : 1), 0);
            ASSERT_EQ(slice.tokens() * context, slice.span.count);
            end += slice.span.count;
          }
          ASSERT_EQ(end, shape.seq);
        }
}

/// Of the FLOPs of a block: a token at position x costs 2 weights of the matrices and 4 A x.
double flops_of(const Shape& shape, Range tokens) {
  const double width = 4.0 * shape.head_dim();
  double sum = 0;
  for (std::int64_t x = tokens.begin; x < tokens.begin + tokens.count; ++x)
    sum += 2.0 * (64 * (3 * width + 3 * shape.ffn)) + 4.0 * width * x;
  return sum;
}

TEST(Cut, HasEqualCostsOrEqualLengths) {
  for (const std::int64_t seq : {1 << 12, 1 << 14, 1 << 16})
    for (const int slices : {2, 3, 8}) {
      Shape shape = sliced(seq, slices, false, 1);
      shape.given_head_dim = slices == 3 ? 48 : 0;
      const double mean = flops_of(shape, {0, seq}) / slices;
      for (const Shape& slice : slices_of(shape)) {
        // A border may be half a granule, of at most an eighth of a slice, away.
        EXPECT_NEAR(flops_of(shape, slice.span) / mean, 1, 0.13) << seq << " " << slices;
        EXPECT_EQ(slice.span.begin % (seq >= 1 << 14 ? 128 : 32), 0) << slice.span.begin;
      }
      EXPECT_GT(slices_of(shape).front().span.count, 1.3 * slices_of(shape).back().span.count);
      for (const Shape& slice : slices_of(sliced(seq, slices, true, 1)))
        EXPECT_NEAR(slice.span.count * slices, seq, seq / 8.0);
    }
  for (const Shape& slice : slices_of(sliced(1 << 14, 8, true, 1)))
    EXPECT_EQ(slice.span.count, 1 << 11);
}

/// A head and a tail, so that later tokens, which attend to more, are shared too.
TEST(Runs, AreAHeadAndATailOfEqualWork) {
  for (const int count : {2, 3, 5}) {
    Shape shape = sliced(30 * count, 1, false, count);
    std::int64_t tokens = 0;
    for (int& i = shape.context.index; i < count; ++i) {
      std::int64_t pairs = 0, rows = 0;
      for (const SequenceRun& run : runs_of(shape)) {
        EXPECT_EQ(run.row, rows);
        rows += run.count;
        for (std::int64_t p = run.position; p < run.position + run.count; ++p)
          pairs += p + 1;
      }
      EXPECT_EQ(rows, shape.local_seq());
      EXPECT_EQ(2 * count * pairs, shape.seq * (shape.seq + 1));
      tokens += rows;
    }
    EXPECT_EQ(tokens, shape.seq);
  }
}
}  // namespace
}  // namespace minitaw::model
