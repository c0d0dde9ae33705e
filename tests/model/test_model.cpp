#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include "base/error.hpp"
#include "kokkos_listener.hpp"
#include "model/cases.hpp"
#include "model/model.hpp"
#include "model/trainer.hpp"

namespace minitaw::model {

namespace {

using List = std::vector<std::int32_t>;
List list(MicroBatch::Tokens values) { return {values.begin(), values.end()}; }

/// For tests of tokens, whom the model behind them does not concern.
Shape shape_of(std::int64_t vocab, std::int64_t seq, std::int64_t micro_batch) {
  return {1, 2, 1, 1, {1}, vocab, seq, micro_batch};
}

class FilledBatch : public ::testing::TestWithParam<Shape> {
protected:
  FilledBatch() : source_(GetParam(), "synthetic", 5), batch_(GetParam()) {}
  TokenSource source_;
  MicroBatch batch_;
};

INSTANTIATE_TEST_SUITE_P(All, FilledBatch,
                         ::testing::Values(shape_of(1, 1, 1), shape_of(3, 37, 2), shape_of(101, 37, 3),
                                           shape_of(997, 13, 1), shape_of(257, 257, 1)));

TEST_P(FilledBatch, HasTheTokensOfItsSource) {
  List tokens(GetParam().tokens()), targets = tokens;
  for (int step = 0; step < 3; ++step) {
    source_.fill(tokens, targets, step, 7 - step);
    batch_.fill(source_, step, 7 - step);
    EXPECT_EQ(list(batch_.inputs()), tokens);
    EXPECT_EQ(list(batch_.targets()), targets);
  }
}

TEST_P(FilledBatch, OrdersPositionsStablyByToken) {
  for (int step = 0; step < 3; ++step) {  // the memory is used again
    batch_.fill(source_, step, 0);
    List expected(GetParam().tokens());
    std::iota(expected.begin(), expected.end(), 0);
    std::ranges::stable_sort(expected, {}, [&](std::int32_t p) { return batch_.inputs()[p]; });
    EXPECT_EQ(list(batch_.order()), expected);
  }
}

TEST_P(FilledBatch, EachSegmentIsAllOfOneToken) {
  for (int step = 0; step < 3; ++step) {
    batch_.fill(source_, step, 0);
    List begins = {0};
    const auto token = [&](std::int32_t i) { return batch_.inputs()[batch_.order()[i]]; };
    for (std::int32_t i = 1; i < GetParam().tokens(); ++i)
      if (token(i) != token(i - 1)) begins.push_back(i);
    begins.push_back(static_cast<std::int32_t>(GetParam().tokens()));
    EXPECT_EQ(list(batch_.segments()), begins);
  }
}

TEST_P(FilledBatch, IndexIsInputsOrderAndSegmentsInOnePiece) {
  batch_.fill(source_, 0, 0);
  List together = list(batch_.inputs());
  for (const auto part : {batch_.order(), batch_.segments()})
    together.insert(together.end(), part.begin(), part.end());
  EXPECT_EQ(list(batch_.index()), together);
}

}  // namespace

// The training step as kernels against the double-precision reference, tensor by tensor.

namespace {

using test::expect_tensors_close;
using test::Trainer;

constexpr int micro_batches = test::default_batches;
constexpr std::uint64_t seed = test::default_seed;

/// Relative: of the loss, of each gradient tensor's norm. Measured in bf16, against the reference with the
/// same rounded weights: loss 4e-5, gradients 1.0e-2 (each activation rounds by up to 2^-9 = 2e-3). A loss
/// over two tokens is that of a few rounded logits: 7e-3.
struct Tolerance {
  double loss, gradient;
};
Tolerance tolerance_of(const Layout& layout) {
  if (layout.shape.dtype == Dtype::fp32) return {1e-6, 1e-5};
  return {test::has_meaningful_gradient(layout) ? 5e-4 : 2e-2, 2e-2};
}

class ModelStep : public ::testing::TestWithParam<test::Combination> {
protected:
  ModelStep()
      : case_(std::get<0>(GetParam())), dtype_(std::get<2>(GetParam())),
        layout_(test::layout_of(case_, dtype_, std::get<1>(GetParam()))), tolerance_(tolerance_of(layout_)) {}
  test::ModelCase case_;
  Dtype dtype_;
  Layout layout_;
  Tolerance tolerance_;
};

INSTANTIATE_TEST_SUITE_P(All, ModelStep, test::all_combinations(), test::name_of);

TEST_P(ModelStep, LossAndEveryGradientTensorMatchTheReference) {
  const Reference reference(layout_, test::rounded_to(dtype_, test::initial_weights(layout_, seed)));
  ReferenceTensors expected = reference_zeros(layout_);
  const double expected_loss = test::step_of(reference, expected, 0);
  Trainer trainer(layout_, micro_batches, seed);
  const double error = std::abs(trainer.gradient(0) - expected_loss) / expected_loss;
  EXPECT_LT(error, tolerance_.loss);
  RecordProperty("loss_error", std::to_string(error * 1e9) + "e-9");
  if (test::has_meaningful_gradient(layout_))
    expect_tensors_close(layout_, trainer.totals(), expected, tolerance_.gradient);
}

/// The tensors by name, wherever a layout has put them.
std::map<std::string, std::vector<double>> by_name(const Layout& layout, const ReferenceTensors& tensors) {
  std::map<std::string, std::vector<double>> result;
  test::for_each_tensor(layout, tensors, tensors,
                        [&](const Tensor& t, const auto& values, const auto&) { result[t.name] = values; });
  return result;
}

TEST_P(ModelStep, EveryPolicyAndShardingGivesTheSameBits) {
  test::ModelCase other = case_;
  other.shards = other.slices = 1;
  const Layout one_shard = test::layout_of(other, dtype_);
  Trainer trainer(layout_, micro_batches, seed), plain(one_shard, micro_batches, seed);
  EXPECT_EQ(trainer.gradient(0), plain.gradient(0));
  const auto expected = by_name(one_shard, plain.totals());
  for (const auto& [name, values] : by_name(layout_, trainer.totals())) {
    if (trainer.model().attention() == kernels::Attention::cudnn)  // its backward pass sums in any order
      EXPECT_LT(test::relative_error(values, expected.at(name)), tolerance_.gradient) << name;
    else EXPECT_EQ(values, expected.at(name)) << name;
  }
}

TEST_P(ModelStep, GapsOfAWrittenGradientAreZero) {
  Trainer total(layout_, 1, seed), contribution(layout_, 1, seed);
  total.gradient(0);
  contribution.gradient(0, true);
  for (const ReferenceTensors& written : {total.totals(), contribution.totals()})
    for (std::size_t s = 0; s < layout_.shards.size(); ++s) {
      std::vector<double> gaps = written.shards[s];
      for (const Tensor& t : layout_.shards[s].tensors) std::fill_n(gaps.begin() + t.offset, t.size(), 0.0);
      EXPECT_EQ(gaps, std::vector<double>(gaps.size(), 0.0)) << "shard " << s;
    }
}

class AnyDtype : public ::testing::TestWithParam<Dtype> {
protected:
  Dtype dtype_ = GetParam();
};

INSTANTIATE_TEST_SUITE_P(All, AnyDtype, ::testing::Values(Dtype::fp32, Dtype::bf16),
                         [](const auto& param_info) { return name_of(param_info.param); });

TEST_P(AnyDtype, PortableAttentionGivesTheSameGradients) {
  const Layout layout = test::layout_of(test::grouped, dtype_);
  Trainer automatic(layout, 1, seed), portable(layout, 1, seed, kernels::Attention::portable);
  EXPECT_NEAR(automatic.gradient(0), portable.gradient(0), tolerance_of(layout).loss);
  expect_tensors_close(layout, automatic.totals(), portable.totals(), tolerance_of(layout).gradient);
}

TEST_P(AnyDtype, LossInSlicesOfTokens) {
  if (dtype_ == Dtype::bf16 && kernels::on_host) GTEST_SKIP() << "half a minute without a bf16 BLAS";
  // 2^26 / 2^21 = 32 tokens a slice; the second slice has one.
  const test::ModelCase sliced = {"sliced", {1, 2, 1, 1, {4}, 1 << 21, 33, 1}, 1, 1};
  const Layout layout = test::layout_of(sliced, dtype_);
  ASSERT_EQ(loss_slice(layout.shape), 32);
  const Reference reference(layout, test::rounded_to(dtype_, test::initial_weights(layout, seed)));
  Trainer trainer(layout, 1, seed);
  ReferenceTensors expected = reference_zeros(layout);
  const double expected_loss = test::step_of(reference, expected, 0, 1);
  EXPECT_NEAR(trainer.gradient(0), expected_loss, tolerance_of(layout).loss * expected_loss);
  expect_tensors_close(layout, trainer.totals(), expected, dtype_ == Dtype::fp32 ? 1e-5 : 5e-2);
}

TEST_P(AnyDtype, OneThreadGivesTheGradientsOfMany) {
  const ExecutionSpace whole;
  if (!kernels::on_host || whole.concurrency() < 2) GTEST_SKIP() << "no threads to choose from";
  const auto parts = Kokkos::Experimental::partition_space(whole, 1, 1);
  const Layout layout = test::layout_of(test::grouped, dtype_);
  Trainer many(layout, micro_batches, seed),
      one(layout, micro_batches, seed, kernels::Attention::automatic, parts[0]);
  EXPECT_NEAR(many.gradient(0), one.gradient(0), 1e-6);
  expect_tensors_close(layout, many.totals(), one.totals(), 1e-6);
}

TEST_P(AnyDtype, NamesTheAttentionThatItUses) {
  const Layout layout = test::layout_of(test::grouped, dtype_);
  EXPECT_NE(Trainer(layout, 1, seed).model().attention(), kernels::Attention::automatic);
  const Trainer portable(layout, 1, seed, kernels::Attention::portable);
  EXPECT_EQ(portable.model().attention(), kernels::Attention::portable);
}

TEST(Model, RefusesWhatItCannotCompute) {
  const Layout layout = test::layout_of(test::grouped, Dtype::bf16);
  const test::DeviceBuffer workspace(workspace_bytes(layout));
  EXPECT_THROW(Model({}, layout, 1, {workspace.get().data, workspace.get().bytes - 1}), LogicError);
  EXPECT_THROW(Model({}, layout, 1, workspace.get(), kernels::Attention::host), InputError);
}

class SmallBuffers : public AnyDtype {
protected:
  Layout layout_ = test::layout_of(test::grouped, dtype_);
  std::size_t element_ = bytes_of(dtype_);
  test::DeviceBuffer workspace_{workspace_bytes(layout_)}, x_{hidden_bytes(layout_.shape)},
      saved_{saved_bytes(layout_, 0)}, weights_{layout_.shards[0].elements * element_},
      ends_{layout_.embeddings.elements * element_}, total_{layout_.shards[0].elements * sizeof(float)},
      embeddings_accumulator_{layout_.embeddings.elements * sizeof(float)};
  double* loss_ = nullptr;
  MicroBatch batch_{layout_.shape};
  Model model_{{}, layout_, 1, workspace_.get()};

  static Buffer less(const test::DeviceBuffer& buffer) { return {buffer.get().data, buffer.get().bytes - 1}; }
};

INSTANTIATE_TEST_SUITE_P(All, SmallBuffers, ::testing::Values(Dtype::fp32, Dtype::bf16),
                         [](const auto& param_info) { return name_of(param_info.param); });

TEST_P(SmallBuffers, AreRefused) {
  const Buffer x = x_.get(), saved = saved_.get(), weights = weights_.get(), total = total_.get();
  EXPECT_THROW(model_.forward(0, less(x_), saved, weights), LogicError);
  EXPECT_THROW(model_.forward(0, x, less(saved_), weights), LogicError);
  EXPECT_THROW(model_.forward(0, x, saved, less(weights_)), LogicError);
  EXPECT_THROW(model_.backward(0, x, less(total_), Dtype::fp32, false, saved, weights), LogicError);
  EXPECT_THROW(model_.backward(0, x, {total.data, weights.bytes - 1}, dtype_, false, saved, weights),
               LogicError);
  TokenSource source(layout_.shape, "synthetic", seed);
  batch_.fill(source, 0, 0);
  EXPECT_THROW(model_.embed(x, less(ends_), batch_), LogicError);
  EXPECT_THROW(model_.loss(x, less(embeddings_accumulator_), true, loss_, ends_.get(), batch_), LogicError);
  EXPECT_THROW(model_.embed_backward(less(embeddings_accumulator_), true, x, batch_), LogicError);
}

TEST_P(SmallBuffers, AndAStateWithoutMasterWeightsToo) {
  OptimiserState state{total_.get(), total_.get(), {}};
  if (dtype_ == Dtype::fp32) state.moment2 = less(total_);
  EXPECT_THROW(model_.update(0, weights_.get(), state, total_.get(), {}, 1), LogicError);
}

TEST_P(SmallBuffers, AndMicroBatchesOfAnotherShapeOrStillEmpty) {
  EXPECT_THROW(model_.embed(x_.get(), ends_.get(), batch_), LogicError);
  Shape shape = layout_.shape;
  ++shape.seq;
  MicroBatch longer(shape);
  TokenSource source(shape, "synthetic", seed);
  longer.fill(source, 0, 0);
  EXPECT_THROW(model_.embed(x_.get(), ends_.get(), longer), LogicError);
}

TEST(Model, RefusesAGradientInBf16WhenItComputesInFp32) {
  const Layout layout = test::layout_of(test::grouped, Dtype::fp32);
  const test::DeviceBuffer workspace(workspace_bytes(layout)), x(hidden_bytes(layout.shape)),
      saved(saved_bytes(layout, 0)), weights(layout.shards[0].elements * sizeof(float));
  Model model({}, layout, 1, workspace.get());
  EXPECT_THROW(model.backward(0, x.get(), weights.get(), Dtype::bf16, false, saved.get(), weights.get()),
               LogicError);
}

}  // namespace

// A step calls nothing that stops the host or takes memory, as Kokkos sees it.

namespace {

using Listener = test::KokkosListener;

TEST(Listener, HearsFencesMemoryAndCopies) {
  const Listener listener;
  Kokkos::fence("a fence");
  {
    const Kokkos::View<int*, kernels::MemorySpace> view("a view", 3), other("more", 3);
    Kokkos::deep_copy(ExecutionSpace(), view, other);
  }
  EXPECT_EQ(listener.seen().count("fence a fence"), 1U);
  EXPECT_EQ(listener.seen().count("allocation a view"), 1U);
  EXPECT_EQ(listener.seen().count("deallocation a view"), 1U);
  EXPECT_EQ(listener.copies(), 1);
}

class Asynchronous : public ::testing::TestWithParam<test::Combination> {};

INSTANTIATE_TEST_SUITE_P(All, Asynchronous, test::all_combinations(), test::name_of);

TEST_P(Asynchronous, AStepAfterWarmUpNeitherFencesNorAllocates) {
  const auto& [model_case, recompute, dtype] = GetParam();
  Trainer trainer(test::layout_of(model_case, dtype, recompute), test::default_batches, test::default_seed);
  trainer.gradient(0);
  trainer.update({}, 1);
  trainer.prepare(1);
  const Listener listener;
  trainer.execute();
  trainer.update({}, 2);
  EXPECT_EQ(listener.seen(), Listener::Seen());
}

}  // namespace

}  // namespace minitaw::model
