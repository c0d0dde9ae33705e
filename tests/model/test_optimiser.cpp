// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <random>

#include "model/cases.hpp"
#include "model/data.hpp"
#include "model/model.hpp"
#include "model/training_loop.hpp"
#include "seed.hpp"

namespace minitaw::model {
namespace {
/// Parts begin and end anywhere, also inside a tensor and inside a block of four numbers.
TEST(Draw, GivesTheBitsOfTheReferenceOnEveryPart) {
  std::mt19937 random(test::seed());
  const auto draw_in = [&](std::int64_t bound) {
    return std::uniform_int_distribution<std::int64_t>(0, bound)(random);
  };
  for (int trial = 0; trial < 60; ++trial) {
    Shape shape{3, 4 + 4 * draw_in(20), 2, 1, {1 + draw_in(60), 1 + draw_in(60), 1 + draw_in(60)},
        2 + draw_in(70), 1, 1};
    shape.dtype = trial % 2 == 0 ? Dtype::fp32 : Dtype::bf16;
    const Layout layout = make_layout(shape, {2, 1 + static_cast<int>(draw_in(3))});
    const auto compare = [&](const Flat& whole) {
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
    for (const Flat* part : layout.parts()) compare(*part);
  }
}

// Weights over steps, and what bf16 leaves of gradients and weights.

using test::expect_tensors_close;
using test::TrainingLoop;

constexpr int micro_batches = test::default_batches;
constexpr std::uint64_t seed = test::default_seed;

class ModelSteps : public ::testing::TestWithParam<test::Combination> {
protected:
  Dtype dtype_ = std::get<2>(GetParam());
  Layout layout_ = test::layout_of(std::get<0>(GetParam()), dtype_);
  Reference reference_{layout_, initial_weights(layout_, seed)};
  TrainingLoop loop_{layout_, micro_batches, seed};

  ReferenceTensors change_of(const ReferenceTensors& weights) const {
    const ReferenceTensors before = initial_weights(layout_, seed);
    ReferenceTensors change = weights;
    for (std::size_t p = 0; p < change.size(); ++p)
      for (std::size_t i = 0; i < change[p].size(); ++i) change[p][i] -= before[p][i];
    return change;
  }
};

INSTANTIATE_TEST_SUITE_P(All, ModelSteps, test::all_models(Recompute::block), test::name_of);

TEST_P(ModelSteps, LossesAndMasterWeightsFollowTheReference) {
  const bool fp32 = dtype_ == Dtype::fp32, large = test::has_meaningful_gradient(layout_);
  const double tolerance = fp32 ? 1e-5 : (large ? 5e-4 : 2e-2);
  for (int step = 0; step < 3; ++step) {
    const Reference computes(layout_, test::rounded_to(dtype_, reference_.weights()));
    ReferenceTensors gradient = reference_zeros(layout_);
    const double expected_loss = test::step_of(computes, gradient, step);
    EXPECT_NEAR(loop_.gradient(step), expected_loss, tolerance * expected_loss);
    reference_.update(gradient, {}, step + 1);
    loop_.update({}, step + 1);
  }
  if (large) expect_tensors_close(layout_, loop_.master(), reference_.weights(), fp32 ? 1e-4 : 6e-3);
}

TEST_P(ModelSteps, MasterWeightsTakeChangesThatBf16Loses) {
  const AdamW small{.learning_rate = 1e-5F};
  for (int step = 0; step < 3; ++step) {
    loop_.gradient(step);
    reference_.update(loop_.totals(), small, step + 1);
    loop_.update(small, step + 1);
  }
  expect_tensors_close(layout_, change_of(loop_.master()), change_of(reference_.weights()), 1e-2);
}

TEST_P(ModelSteps, ContributionsInTheComputeTypeAddUpToTheTotals) {
  TrainingLoop other(layout_, micro_batches, seed);
  EXPECT_EQ(loop_.gradient(0), other.gradient(0, true));
  // Each contribution is rounded once, by 2^-9 at most in bf16; measured: 2.7e-3 of a total in which two of
  // them partly cancel, 1.7e-3 where there is more to average over.
  expect_tensors_close(layout_, other.totals(), loop_.totals(), dtype_ == Dtype::fp32 ? 1e-6 : 5e-3);
}
}  // namespace
}  // namespace minitaw::model
