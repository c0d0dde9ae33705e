#include "model/gaps.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "model/trainer.hpp"

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
  const std::vector<Gap> gaps = gaps_of(shard);
  EXPECT_EQ(gaps.size(), 3U * roles_per_block);
  for (const Gap& gap : gaps) {
    EXPECT_LT(gap.elements, alignment);
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
    clear_gaps(ExecutionSpace(), gradient.get().as<TypeParam>(), gaps_of(shard));
    std::vector<int> map;
    for (const double value : gradient.values(dtype)) {
      EXPECT_TRUE(std::isnan(value) || value == 0);
      map.push_back(std::isnan(value) ? 1 : 0);
    }
    EXPECT_EQ(map, map_of(shard)) << layers << " blocks";
  }
}

}  // namespace
}  // namespace minitaw::model
