#include "model/layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "base/error.hpp"

namespace minitaw::model {
namespace {

Shape odd_shape(int layers) {
  Shape shape{
      .layers = layers, .hidden = 12, .heads = 6, .kv_heads = 2, .vocab = 7, .seq = 5, .micro_batch = 3};
  for (int layer = 0; layer < layers; ++layer) shape.ffn.push_back(1 + (layer * 37) % 90);
  return shape;
}

std::int64_t dearest(const std::vector<std::int64_t>& costs, const std::vector<int>& runs) {
  std::int64_t result = 0;
  int at = 0;
  for (const int length : runs) {
    result = std::max(result, std::accumulate(&costs[at], &costs[at] + length, std::int64_t{0}));
    at += length;
  }
  return result;
}

/// The best possible dearest run of costs[first..], by trying every split.
std::int64_t best_split(const std::vector<std::int64_t>& costs, std::size_t first, int runs) {
  if (runs == 1) return std::accumulate(costs.begin() + first, costs.end(), std::int64_t{0});
  std::int64_t best = INT64_MAX, sum = 0;
  for (std::size_t end = first + 1; costs.size() - end >= static_cast<std::size_t>(runs - 1); ++end) {
    sum += costs[end - 1];
    best = std::min(best, std::max(sum, best_split(costs, end, runs - 1)));
  }
  return best;
}

void expect_packed(const std::vector<Tensor>& tensors, std::int64_t elements) {
  std::int64_t end = 0;
  for (const Tensor& tensor : tensors) {
    EXPECT_EQ(tensor.offset % alignment, 0) << tensor.name;
    EXPECT_GE(tensor.offset, end) << tensor.name;
    EXPECT_LT(tensor.offset - end, alignment) << tensor.name;
    end = tensor.offset + tensor.size();
  }
  EXPECT_LE(end, elements);
  EXPECT_EQ(elements % alignment, 0);
}

TEST(Layout, EveryLayerIsInExactlyOneShard) {
  for (int layers = 1; layers <= 26; ++layers)
    for (int shards = 1; shards <= layers; ++shards) {
      const Layout layout = make_layout(odd_shape(layers), {shards, 1});
      ASSERT_EQ(layout.shards.size(), static_cast<std::size_t>(shards));
      int next = 0;
      std::set<std::string> names;
      for (const Shard& shard : layout.shards) {
        EXPECT_EQ(shard.first_layer, next);
        EXPECT_GE(shard.layers, 1);
        next += shard.layers;
        EXPECT_EQ(shard.tensors.size(), static_cast<std::size_t>(shard.layers * roles_per_block));
        for (const Tensor& tensor : shard.tensors)
          EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name;
      }
      EXPECT_EQ(next, layers);
    }
}

TEST(Layout, NoSplitHasACheaperDearestRun) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 400; ++trial) {
    std::vector<std::int64_t> costs(1 + random() % 10);
    for (std::int64_t& cost : costs) cost = 1 + random() % (trial % 2 ? 5 : 1000);
    for (int runs = 1; runs <= static_cast<int>(costs.size()); ++runs) {
      const std::vector<int> lengths = balanced_runs(costs, runs);
      ASSERT_EQ(lengths.size(), static_cast<std::size_t>(runs));
      EXPECT_EQ(std::accumulate(lengths.begin(), lengths.end(), 0), static_cast<int>(costs.size()));
      EXPECT_GE(*std::min_element(lengths.begin(), lengths.end()), 1);
      EXPECT_EQ(dearest(costs, lengths), best_split(costs, 0, runs));
    }
  }
}

TEST(Layout, EqualBlocksDifferByAtMostOnePerShard) {
  for (int layers = 1; layers <= 40; ++layers)
    for (int runs = 1; runs <= layers; ++runs) {
      const auto lengths = balanced_runs(std::vector<std::int64_t>(layers, 1000), runs);
      const auto [low, high] = std::minmax_element(lengths.begin(), lengths.end());
      EXPECT_LE(*high - *low, 1) << layers << " blocks in " << runs;
    }
}

TEST(Layout, TensorsAreAlignedDisjointAndShaped) {
  const Layout layout = make_layout(odd_shape(5), {2, 3});
  const Shape& shape = layout.shape;
  for (const Shard& shard : layout.shards) {
    expect_packed(shard.tensors, shard.elements);
    for (int block = 0; block < shard.layers; ++block) {
      const std::int64_t ffn = shape.ffn[shard.first_layer + block];
      EXPECT_EQ(shard.tensor(block, Role::wqkv).rows, (6 + 2 * 2) * 2);
      EXPECT_EQ(shard.tensor(block, Role::w13).rows, 2 * ffn);
      EXPECT_EQ(shard.tensor(block, Role::w2).cols, ffn);
      EXPECT_EQ(shard.tensor(block, Role::w2).layer, shard.first_layer + block);
      EXPECT_TRUE(shard.tensor(block, Role::w2).decay);
      EXPECT_FALSE(shard.tensor(block, Role::norm2).decay);
    }
  }
  EXPECT_EQ(layout.shards[0].tensors[1].name, "layers.0.wqkv");
}

TEST(Layout, EndsSplitIntoEqualAlignedSlices) {
  for (int slices = 1; slices <= 9; ++slices) {
    const Ends ends = make_layout(odd_shape(1), {1, slices}).ends;
    expect_packed(ends.tensors, ends.elements);
    EXPECT_EQ(ends.elements, slices * ends.slice);
    EXPECT_EQ(ends.slice % alignment, 0);
    EXPECT_EQ(ends.tensor(Role::head).rows, 7);
    EXPECT_FALSE(ends.tensor(Role::norm).decay);
  }
}

TEST(Layout, PartsOfShardsAreEqualAndAligned) {
  for (const int parts : {1, 2, 3, 5, 7})
    for (const Shard& shard : make_layout(odd_shape(5), {.shards = 2, .shard_parts = parts}).shards) {
      expect_packed(shard.tensors, shard.elements);
      EXPECT_EQ(shard.elements % (parts * alignment), 0) << parts;
    }
}

TEST(Layout, TheSecondOfTwoSplitEndsBeginsWithTheNorm) {
  const Ends ends = make_layout(odd_shape(2), {.slices = 2, .ends_split = true}).ends;
  EXPECT_EQ(ends.slice % alignment, 0);
  EXPECT_LE(ends.tensor(Role::head).offset + ends.tensor(Role::head).size(), ends.elements);
  EXPECT_EQ(ends.elements, 2 * ends.slice);
  EXPECT_EQ(ends.tensor(Role::embedding).offset, 0);
  EXPECT_LE(ends.tensor(Role::embedding).size(), ends.slice);
  EXPECT_EQ(ends.tensor(Role::norm).offset, ends.slice);
}

TEST(Layout, TheHeadShortensTheLastStage) {
  Shape shape = odd_shape(8);
  shape.ffn.assign(8, 8);
  const auto last = [&](std::int64_t vocab, bool split) {
    shape.vocab = vocab;
    return make_layout(shape, {.shards = 2, .slices = 2, .ends_split = split}).shards.back().layers;
  };
  EXPECT_EQ(last(1, true), 4);
  EXPECT_EQ(last(100000, true), 1);
  EXPECT_EQ(last(100000, false), 4);
}

TEST(Layout, MoreShardsThanLayersIsRefused) {
  EXPECT_THROW((void)make_layout(odd_shape(3), {4, 1}), InputError);
}

}  // namespace
}  // namespace minitaw::model
