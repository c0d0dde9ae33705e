// Both halves of the backward pass, each in its own time, against the undivided one.
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "kokkos_listener.hpp"
#include "model/cases.hpp"
#include "model/trainer.hpp"

namespace minitaw::model {
namespace {

using test::Trainer;

constexpr int micro_batches = 3;
constexpr std::uint64_t seed = test::default_seed;

class SplitBackward : public ::testing::TestWithParam<test::Combination> {
protected:
  Layout layout_ = test::layout_of(std::get<0>(GetParam()), std::get<2>(GetParam()), std::get<1>(GetParam()));

  /// cuDNN's backward pass sums in any order.
  void expect_same(const Trainer& apart, const Trainer& together) const {
    if (apart.model().attention() == kernels::Attention::cudnn)
      return test::expect_tensors_close(layout_, apart.totals(), together.totals(), 2e-2);
    EXPECT_EQ(apart.totals().shards, together.totals().shards);
    EXPECT_EQ(apart.totals().ends, together.totals().ends);
  }
};

INSTANTIATE_TEST_SUITE_P(All, SplitBackward, test::all_combinations(), test::name_of);

TEST_P(SplitBackward, GivesTheSameBits) {
  Trainer apart(layout_, micro_batches, seed), together(layout_, micro_batches, seed);
  EXPECT_EQ(apart.gradient_apart(0, false), together.gradient(0));
  expect_same(apart, together);
}

TEST_P(SplitBackward, GivesTheSameBitsInTheComputeType) {
  Trainer apart(layout_, micro_batches, seed), together(layout_, micro_batches, seed);
  EXPECT_EQ(apart.gradient_apart(0, true), together.gradient_by_contributions(0));
  expect_same(apart, together);
}

TEST_P(SplitBackward, NeitherFencesNorAllocates) {
  const test::DeviceBuffer workspace(workspace_bytes(layout_)), x(flow_bytes(layout_.shape)),
      kept(kept_bytes(layout_, 0)), stash(stash_bytes(layout_, 0)),
      weights(layout_.shards[0].elements * bytes_of(layout_.shape.dtype)),
      total(layout_.shards[0].elements * sizeof(float));
  Model model({}, layout_, 1, workspace.get());
  const auto play = [&] {
    model.forward(0, x.get(), kept.get(), weights.get());
    model.backward_input(0, x.get(), kept.get(), stash.get(), weights.get());
    model.backward_weight(0, total.get(), Dtype::fp32, false, kept.get(), stash.get());
  };
  play();
  const test::KokkosListener listener;
  play();
  EXPECT_EQ(listener.seen(), test::KokkosListener::Seen());
}

TEST_P(SplitBackward, RefusesSmallBuffers) {
  const test::DeviceBuffer workspace(workspace_bytes(layout_)), x(flow_bytes(layout_.shape)),
      kept(kept_bytes(layout_, 0)), stash(stash_bytes(layout_, 0)),
      weights(layout_.shards[0].elements * bytes_of(layout_.shape.dtype)),
      total(layout_.shards[0].elements * sizeof(float));
  const auto less = [](const test::DeviceBuffer& all) { return Buffer{all.get().data, all.get().bytes - 1}; };
  Model model({}, layout_, 1, workspace.get());
  const Buffer k = kept.get(), s = stash.get();
  EXPECT_THROW(model.backward_input(0, less(x), k, s, weights.get()), LogicError);
  EXPECT_THROW(model.backward_input(0, x.get(), less(kept), s, weights.get()), LogicError);
  EXPECT_THROW(model.backward_input(0, x.get(), k, less(stash), weights.get()), LogicError);
  EXPECT_THROW(model.backward_input(0, x.get(), k, s, less(weights)), LogicError);
  EXPECT_THROW(model.backward_weight(0, less(total), Dtype::fp32, false, k, s), LogicError);
  EXPECT_THROW(model.backward_weight(0, total.get(), Dtype::fp32, false, less(kept), s), LogicError);
  EXPECT_THROW(model.backward_weight(0, total.get(), Dtype::fp32, false, k, less(stash)), LogicError);
  if (layout_.shape.dtype == Dtype::fp32) {
    EXPECT_THROW(model.backward_weight(0, total.get(), Dtype::bf16, false, k, s), LogicError);
  }
}

}  // namespace
}  // namespace minitaw::model
