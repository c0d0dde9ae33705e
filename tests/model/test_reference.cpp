// SPDX-License-Identifier: BSD-3-Clause
// The composed double-precision step against finite differences of the loss.
#include "model/reference.hpp"

#include <gtest/gtest.h>

#include "kernels/finite_difference.hpp"
#include "model/data.hpp"

namespace minitaw::model {
namespace {
using test::Doubles;

class ReferenceStep : public ::testing::Test {
protected:
  double loss(const ReferenceTensors& weights) const {
    ReferenceTensors ignored = reference_zeros(layout_);
    return Reference(layout_, weights).accumulate(ignored, tokens_, targets_, 0.1);
  }
  void SetUp() override { TokenSource(shape_, "synthetic", 1).fill(tokens_, targets_, 0, 0); }

  Shape shape_{3, 8, 4, 2, {5, 6, 7}, 9, 4, 2};
  Layout layout_ = make_layout(shape_, {2, 1});
  std::vector<std::int32_t> tokens_ = std::vector<std::int32_t>(8), targets_ = tokens_;
};

TEST_F(ReferenceStep, GradientIsTheSlopeOfTheLoss) {
  const ReferenceTensors weights = initial_weights(layout_, 3);
  ReferenceTensors gradient = reference_zeros(layout_);
  Reference(layout_, weights).accumulate(gradient, tokens_, targets_, 0.1);
  for (std::size_t part = 0; part < weights.size(); ++part)
    test::expect_gradient(
        [&](const Doubles& values) {
          ReferenceTensors moved = weights;
          moved[part] = values;
          return loss(moved);
        },
        weights[part], gradient[part]);
}

TEST_F(ReferenceStep, MicroBatchesAddUp) {
  const Reference reference(layout_, initial_weights(layout_, 3));
  ReferenceTensors once = reference_zeros(layout_), twice = once;
  reference.accumulate(once, tokens_, targets_, 0.1);
  reference.accumulate(twice, tokens_, targets_, 0.1);
  reference.accumulate(twice, tokens_, targets_, 0.1);
  for (std::size_t part = 0; part < once.size(); ++part)
    for (std::size_t i = 0; i < once[part].size(); ++i) EXPECT_NEAR(2 * once[part][i], twice[part][i], 1e-14);
}

TEST_F(ReferenceStep, TrainingLowersTheLoss) {
  Reference reference(layout_, initial_weights(layout_, 3));
  const double before = loss(reference.weights());
  for (int step = 1; step <= 20; ++step) {
    ReferenceTensors gradient = reference_zeros(layout_);
    reference.accumulate(gradient, tokens_, targets_, 0.1);
    reference.update(gradient, {.learning_rate = 1e-2F}, step);
  }
  EXPECT_LT(loss(reference.weights()), 0.5 * before);
}
}  // namespace
}  // namespace minitaw::model
