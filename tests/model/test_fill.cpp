#include "model/gaps.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "model/initial.hpp"
#include "model/trainer.hpp"
#include "seed.hpp"

namespace minitaw::model {
namespace {

/// Every tensor of every block ends beside a gap.
Shard shard_of(int layers) {
  const Shape shape{.layers = layers,
                    .hidden = 10,
                    .heads = 5,
                    .kv_heads = 1,
                    .ffn = std::vector<std::int64_t>(static_cast<std::size_t>(layers), 3),
                    .vocab = 2,
                    .seq = 1,
                    .micro_batch = 1};
  return make_layout(shape, {1, 1}).shards[0];
}

/// 1 inside of tensors, 0 between them.
std::vector<int> map_of(const Shard& shard) {
  std::vector<int> map(static_cast<std::size_t>(shard.elements), 0);
  for (const Tensor& t : shard.tensors) std::fill_n(map.begin() + t.offset, t.size(), 1);
  return map;
}

TEST(Gaps, AreAllThatTensorsLeave) {
  const Shard shard = shard_of(3);
  std::vector<int> map(static_cast<std::size_t>(shard.elements), 1);
  const std::vector<Gap> gaps = gaps_of(shard.tensors, shard.elements);
  EXPECT_EQ(gaps.size(), 3U * roles_per_block);
  for (const Gap& gap : gaps) {
    std::fill_n(map.begin() + gap.begin, gap.elements, 0);
  }
  EXPECT_EQ(map, map_of(shard));
}

template <class G>
class ClearedGaps : public ::testing::Test {};
using GradientTypes = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(ClearedGaps, GradientTypes, );

TYPED_TEST(ClearedGaps, AreZeroAndNothingElseChanges) {
  constexpr Dtype dtype = std::is_same_v<TypeParam, float> ? Dtype::fp32 : Dtype::bf16;
  for (const int layers : {1, 2, 3, 7}) {  // 6 gaps a block, 16 a kernel
    const Shard shard = shard_of(layers);
    const test::DeviceBuffer gradient(static_cast<std::size_t>(shard.elements) * sizeof(TypeParam));
    clear_gaps(ExecutionSpace(), gradient.get().as<TypeParam>(), gaps_of(shard.tensors, shard.elements));
    std::vector<int> map;
    for (const double value : gradient.values(dtype)) {
      EXPECT_TRUE(std::isnan(value) || value == 0);
      map.push_back(std::isnan(value) ? 1 : 0);
    }
    EXPECT_EQ(map, map_of(shard)) << layers << " blocks";
  }
}

/// Parts begin and end anywhere, also inside a tensor and inside a block of four numbers.
TEST(Draw, GivesTheBitsOfTheReferenceOnEveryPart) {
  std::mt19937 random(test::seed());
  const auto draw_in = [&](std::int64_t bound) {
    return std::uniform_int_distribution<std::int64_t>(0, bound)(random);
  };
  for (int trial = 0; trial < 60; ++trial) {
    Shape shape{.layers = 3,
                .hidden = 4 + 4 * draw_in(20),
                .heads = 2,
                .kv_heads = 1,
                .ffn = {1 + draw_in(60), 1 + draw_in(60), 1 + draw_in(60)},
                .vocab = 2 + draw_in(70),
                .seq = 1,
                .micro_batch = 1};
    shape.dtype = trial % 2 == 0 ? Dtype::fp32 : Dtype::bf16;
    const Layout layout = make_layout(shape, {2, 1 + static_cast<int>(draw_in(3))});
    const auto compare = [&](const auto& whole) {
      std::vector<float> all(static_cast<std::size_t>(whole.elements));
      initialise(all, whole, shape, static_cast<std::uint64_t>(trial));
      const std::int64_t first = draw_in(whole.elements - 1), count = 1 + draw_in(whole.elements - first - 1);
      const test::DeviceBuffer weights(static_cast<std::size_t>(count) * bytes_of(shape.dtype)),
          master(static_cast<std::size_t>(count) * sizeof(float));
      draw(trial % 3 == 0 ? Buffer{} : weights.get(), trial % 3 == 1 ? Buffer{} : master.get(), whole.tensors,
           {first, count}, shape, static_cast<std::uint64_t>(trial));
      const std::vector<float> part(all.begin() + first, all.begin() + first + count);
      const std::vector<double> exact(part.begin(), part.end());
      if (trial % 3 != 0) {
        EXPECT_EQ(weights.values(shape.dtype), test::DeviceBuffer(part, shape.dtype).values(shape.dtype))
            << trial;
      }
      if (trial % 3 != 1) {
        EXPECT_EQ(master.values(Dtype::fp32), exact) << trial;
      }
    };
    for (const Shard& shard : layout.shards) compare(shard);
    compare(layout.ends);
  }
}

}  // namespace
}  // namespace minitaw::model
