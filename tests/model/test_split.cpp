#include <gtest/gtest.h>

#include <cmath>

#include "base/error.hpp"
#include "kokkos_listener.hpp"
#include "model/cases.hpp"
#include "model/trainer.hpp"

// Both halves of the backward pass, each in its own time, against the undivided one.

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
    EXPECT_EQ(apart.totals().embeddings, together.totals().embeddings);
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
  EXPECT_EQ(apart.gradient_apart(0, true), together.gradient(0, true));
  expect_same(apart, together);
}

TEST_P(SplitBackward, NeitherFencesNorAllocates) {
  const test::DeviceBuffer workspace(workspace_bytes(layout_)), x(hidden_bytes(layout_.shape)),
      saved(saved_bytes(layout_, 0)), deferred(deferred_bytes(layout_, 0)),
      weights(layout_.shards[0].elements * bytes_of(layout_.shape.dtype)),
      total(layout_.shards[0].elements * sizeof(float));
  Model model({}, layout_, 1, workspace.get());
  const auto execute = [&] {
    model.forward(0, x.get(), saved.get(), weights.get());
    model.backward_input(0, x.get(), saved.get(), deferred.get(), weights.get());
    model.backward_weight(0, total.get(), Dtype::fp32, false, saved.get(), deferred.get());
  };
  execute();
  const test::KokkosListener listener;
  execute();
  EXPECT_EQ(listener.seen(), test::KokkosListener::Seen());
}

TEST_P(SplitBackward, RefusesSmallBuffers) {
  const test::DeviceBuffer workspace(workspace_bytes(layout_)), x(hidden_bytes(layout_.shape)),
      saved(saved_bytes(layout_, 0)), deferred(deferred_bytes(layout_, 0)),
      weights(layout_.shards[0].elements * bytes_of(layout_.shape.dtype)),
      total(layout_.shards[0].elements * sizeof(float));
  const auto less = [](const test::DeviceBuffer& all) { return Buffer{all.get().data, all.get().bytes - 1}; };
  Model model({}, layout_, 1, workspace.get());
  const Buffer k = saved.get(), s = deferred.get();
  EXPECT_THROW(model.backward_input(0, less(x), k, s, weights.get()), LogicError);
  EXPECT_THROW(model.backward_input(0, x.get(), less(saved), s, weights.get()), LogicError);
  EXPECT_THROW(model.backward_input(0, x.get(), k, less(deferred), weights.get()), LogicError);
  EXPECT_THROW(model.backward_input(0, x.get(), k, s, less(weights)), LogicError);
  EXPECT_THROW(model.backward_weight(0, less(total), Dtype::fp32, false, k, s), LogicError);
  EXPECT_THROW(model.backward_weight(0, total.get(), Dtype::fp32, false, less(saved), s), LogicError);
  EXPECT_THROW(model.backward_weight(0, total.get(), Dtype::fp32, false, k, less(deferred)), LogicError);
  if (layout_.shape.dtype == Dtype::fp32) {
    EXPECT_THROW(model.backward_weight(0, total.get(), Dtype::bf16, false, k, s), LogicError);
  }
}

}  // namespace

// Two ranks that hold the embedding and the head apart, against one that holds both.

namespace {

using test::DeviceBuffer;

Layout split_layout(const test::ModelCase& c, Dtype dtype) {
  Shape shape = c.shape;
  shape.dtype = dtype;
  return make_layout(shape, {.shards = 1, .slices = 2, .embeddings_split = true});
}

/// A slice of the embeddings with its gradient and optimiser state, and the model that works on it.
class HalfOfTheEnds {
public:
  HalfOfTheEnds(const Layout& layout, int slice)
      : layout_(layout), slice_(slice), workspace_(workspace_bytes(layout)),
        ends_(initial(), layout.shape.dtype), total_(layout.embeddings.slice * sizeof(float)),
        state_(moments_and_master()),
        model_({}, layout, 1.0 / static_cast<double>(layout.shape.tokens()), workspace_.get(),
               kernels::Attention::automatic, {slice * layout.embeddings.slice, layout.embeddings.slice}) {}

  [[nodiscard]] Buffer embeddings() const { return ends_.get(); }
  [[nodiscard]] Buffer total() const { return total_.get(); }
  [[nodiscard]] Model& model() { return model_; }
  [[nodiscard]] std::vector<double> gradient() const { return total_.values(Dtype::fp32); }
  [[nodiscard]] std::vector<double> weights() const { return ends_.values(layout_.shape.dtype); }
  void update() {
    const OptimiserState state = optimiser_state(state_.get(), layout_.shape.dtype, layout_.embeddings.slice);
    model_.update_embeddings(slice_, ends_.get(), state, total_.get(), {}, 1);
  }

private:
  [[nodiscard]] std::vector<float> initial() const {
    std::vector<float> all(layout_.embeddings.elements);
    initialise(all, layout_.embeddings, layout_.shape, seed);
    const auto first = all.begin() + slice_ * layout_.embeddings.slice;
    return {first, first + layout_.embeddings.slice};
  }
  [[nodiscard]] DeviceBuffer moments_and_master() const {
    std::vector<float> values(2 * layout_.embeddings.slice, 0.0F);
    const std::vector<float> master = initial();
    if (layout_.shape.dtype != Dtype::fp32) values.insert(values.end(), master.begin(), master.end());
    return {values, Dtype::fp32};
  }

  const Layout& layout_;
  int slice_;
  DeviceBuffer workspace_, ends_, total_, state_;
  Model model_;
};

class SplitEnds : public ::testing::TestWithParam<test::ModelAndType> {
protected:
  Layout layout_ = split_layout(std::get<0>(GetParam()), std::get<1>(GetParam()));
  HalfOfTheEnds first_{layout_, 0}, last_{layout_, 1};
  DeviceBuffer x_{hidden_bytes(layout_.shape)};
  MicroBatch batch_{layout_.shape};
  Kokkos::View<double, kernels::MemorySpace> loss_{"loss"};

  void SetUp() override {
    TokenSource tokens(layout_.shape, "synthetic", seed);
    batch_.fill(tokens, 0, 0);
  }
  /// Forward and backward of one micro-batch, the blocks on the first rank.
  void execute() {
    const Shard& shard = layout_.shards[0];
    std::vector<float> values(shard.elements);
    initialise(values, shard, layout_.shape, seed);
    const DeviceBuffer weights(values, layout_.shape.dtype), saved(saved_bytes(layout_, 0)),
        gradient(shard.elements * sizeof(float));
    first_.model().embed(x_.get(), first_.embeddings(), batch_);
    first_.model().forward(0, x_.get(), saved.get(), weights.get());
    last_.model().loss(x_.get(), last_.total(), false, loss_.data(), last_.embeddings(), batch_);
    first_.model().backward(0, x_.get(), gradient.get(), Dtype::fp32, false, saved.get(), weights.get());
    first_.model().embed_backward(first_.total(), false, x_.get(), batch_);
    Kokkos::fence();
  }
  static std::vector<double> joined(std::vector<double> front, const std::vector<double>& back) {
    front.insert(front.end(), back.begin(), back.end());
    return front;
  }
};

INSTANTIATE_TEST_SUITE_P(All, SplitEnds, test::all_models(), test::name_of_model);

TEST_P(SplitEnds, TrainLikeWholeOnes) {
  Trainer whole(layout_, 1, seed);
  const double expected = whole.gradient(0);
  execute();
  double loss = 0;
  Kokkos::deep_copy(loss, loss_);
  EXPECT_EQ(loss, expected);
  const bool any_order = whole.model().attention() == kernels::Attention::cudnn;
  const auto expect_equal = [&](const std::vector<double>& got, const std::vector<double>& wanted) {
    if (any_order) EXPECT_LT(test::relative_error(got, wanted), 2e-2);
    else EXPECT_EQ(got, wanted);
  };
  expect_equal(joined(first_.gradient(), last_.gradient()), whole.totals().embeddings);
  whole.update({}, 1);
  first_.update();
  last_.update();
  Kokkos::fence();
  expect_equal(joined(first_.weights(), last_.weights()), whole.weights().embeddings);
}

TEST_P(SplitEnds, RefuseWhatTheOtherRankHolds) {
  const Buffer x = x_.get();
  EXPECT_THROW(last_.model().embed(x, last_.embeddings(), batch_), LogicError);
  EXPECT_THROW(last_.model().embed_backward(last_.total(), true, x, batch_), LogicError);
  EXPECT_THROW(first_.model().loss(x, first_.total(), true, loss_.data(), first_.embeddings(), batch_),
               LogicError);
  const DeviceBuffer space(optimiser_bytes(layout_.shape.dtype, layout_.embeddings.slice));
  const OptimiserState state = optimiser_state(space.get(), layout_.shape.dtype, layout_.embeddings.slice);
  EXPECT_THROW(last_.model().update_embeddings(0, last_.embeddings(), state, last_.total(), {}, 1),
               LogicError);
  EXPECT_THROW(first_.model().update_embeddings(1, first_.embeddings(), state, first_.total(), {}, 1),
               LogicError);
}

TEST_P(SplitEnds, RefuseSmallBuffersAndPartsOutside) {
  const auto less = [](Buffer buffer) { return Buffer{buffer.data, buffer.bytes - 1}; };
  EXPECT_THROW(first_.model().embed(x_.get(), less(first_.embeddings()), batch_), LogicError);
  EXPECT_THROW(
      last_.model().loss(x_.get(), less(last_.total()), true, loss_.data(), last_.embeddings(), batch_),
      LogicError);
  const DeviceBuffer workspace(workspace_bytes(layout_));
  const auto with = [&](EmbeddingsPart part) {
    const Model model({}, layout_, 1, workspace.get(), kernels::Attention::automatic, part);
  };
  EXPECT_THROW(with({layout_.embeddings.slice, layout_.embeddings.slice + 1}), LogicError);
  EXPECT_THROW(with({-1, 1}), LogicError);
}

}  // namespace

}  // namespace minitaw::model
