#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "model/cases.hpp"
#include "model/data.hpp"
#include "model/model.hpp"
#include "model/trainer.hpp"
#include "seed.hpp"

namespace minitaw::model {

namespace {

/// Every tensor of every block ends beside padding.
Shard shard_of(int layers) {
  const Shape shape{layers, 10, 5, 1, std::vector<std::int64_t>(layers, 3), 2, 1, 1};
  return make_layout(shape, {1, 1}).shards[0];
}

/// 1 inside of tensors, 0 between them.
std::vector<int> map_of(const Shard& shard) {
  std::vector<int> map(static_cast<std::size_t>(shard.elements), 0);
  for (const Tensor& t : shard.tensors) std::fill_n(map.begin() + t.offset, t.size(), 1);
  return map;
}

TEST(Padding, IsAllThatTensorsLeave) {
  const Shard shard = shard_of(3);
  std::vector<int> map(static_cast<std::size_t>(shard.elements), 1);
  const std::vector<Range> padding = padding_of(shard.tensors, shard.elements);
  EXPECT_EQ(padding.size(), 3U * roles_per_block);
  for (const Range& range : padding) {
    std::fill_n(map.begin() + range.begin, range.count, 0);
  }
  EXPECT_EQ(map, map_of(shard));
}

template <class G>
class ClearedPadding : public ::testing::Test {};
using GradientTypes = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(ClearedPadding, GradientTypes, );

TYPED_TEST(ClearedPadding, AreZeroAndNothingElseChanges) {
  constexpr Dtype dtype = std::is_same_v<TypeParam, float> ? Dtype::fp32 : Dtype::bf16;
  for (const int layers : {1, 2, 3, 7}) {  // 6 ranges a block, 16 a kernel
    const Shard shard = shard_of(layers);
    const test::DeviceBuffer gradient(static_cast<std::size_t>(shard.elements) * sizeof(TypeParam));
    clear_padding(ExecutionSpace(), gradient.get().as<TypeParam>(),
                  padding_of(shard.tensors, shard.elements));
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
    Shape shape{
        3, 4 + 4 * draw_in(20), 2, 1, {1 + draw_in(60), 1 + draw_in(60), 1 + draw_in(60)}, 2 + draw_in(70), 1,
        1};
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
    compare(layout.embeddings);
  }
}

}  // namespace

// Weights over steps, and what bf16 leaves of gradients and weights.

namespace {

using test::expect_tensors_close;
using test::Trainer;

constexpr int micro_batches = test::default_batches;
constexpr std::uint64_t seed = test::default_seed;

class ModelSteps : public ::testing::TestWithParam<test::ModelAndType> {
protected:
  Dtype dtype_ = std::get<1>(GetParam());
  Layout layout_ = test::layout_of(std::get<0>(GetParam()), dtype_);
  Reference reference_{layout_, test::initial_weights(layout_, seed)};
  Trainer trainer_{layout_, micro_batches, seed};

  ReferenceTensors change_of(const ReferenceTensors& weights) const {
    const ReferenceTensors before = test::initial_weights(layout_, seed);
    ReferenceTensors change = weights;
    for (std::size_t s = 0; s < change.shards.size(); ++s)
      for (std::size_t i = 0; i < change.shards[s].size(); ++i) change.shards[s][i] -= before.shards[s][i];
    for (std::size_t i = 0; i < change.embeddings.size(); ++i) change.embeddings[i] -= before.embeddings[i];
    return change;
  }
};

INSTANTIATE_TEST_SUITE_P(All, ModelSteps, test::all_models(), test::name_of_model);

TEST_P(ModelSteps, LossesAndMasterWeightsFollowTheReference) {
  const bool fp32 = dtype_ == Dtype::fp32, large = test::has_meaningful_gradient(layout_);
  const double tolerance = fp32 ? 1e-5 : (large ? 5e-4 : 2e-2);
  for (int step = 0; step < 3; ++step) {
    const Reference computes(layout_, test::rounded_to(dtype_, reference_.weights()));
    ReferenceTensors gradient = reference_zeros(layout_);
    const double expected_loss = test::step_of(computes, gradient, step);
    EXPECT_NEAR(trainer_.gradient(step), expected_loss, tolerance * expected_loss);
    reference_.update(gradient, {}, step + 1);
    trainer_.update({}, step + 1);
  }
  if (large) expect_tensors_close(layout_, trainer_.master(), reference_.weights(), fp32 ? 1e-4 : 6e-3);
}

TEST_P(ModelSteps, MasterWeightsTakeChangesThatBf16Loses) {
  const AdamW small{.learning_rate = 1e-5F};
  for (int step = 0; step < 3; ++step) {
    trainer_.gradient(step);
    reference_.update(trainer_.totals(), small, step + 1);
    trainer_.update(small, step + 1);
  }
  expect_tensors_close(layout_, change_of(trainer_.master()), change_of(reference_.weights()), 1e-2);
}

TEST_P(ModelSteps, WeightsAreTheMasterWeightsRounded) {
  for (int step = 0; step < 2; ++step) {
    trainer_.gradient(step);
    trainer_.update({}, step + 1);
    const ReferenceTensors expected = test::rounded_to(dtype_, trainer_.master()), got = trainer_.weights();
    EXPECT_EQ(got.shards, expected.shards);
    EXPECT_EQ(got.embeddings, expected.embeddings);
  }
}

TEST_P(ModelSteps, ContributionsInTheComputeTypeAddUpToTheTotals) {
  Trainer other(layout_, micro_batches, seed);
  EXPECT_EQ(trainer_.gradient(0), other.gradient(0, true));
  // Each contribution is rounded once, by 2^-9 at most in bf16; measured: 2.7e-3 of a total in which two of
  // them partly cancel, 1.7e-3 where there is more to average over.
  expect_tensors_close(layout_, other.totals(), trainer_.totals(), dtype_ == Dtype::fp32 ? 1e-6 : 5e-3);
}

}  // namespace

}  // namespace minitaw::model
