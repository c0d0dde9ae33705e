// The training step as kernels against the double-precision reference, tensor by tensor.
#include "model/model.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "base/error.hpp"
#include "kernels/device_matrix.hpp"
#include "model/reference_weights.hpp"
#include "model/trainer.hpp"

namespace minitaw::model {
namespace {

using test::Trainer;

constexpr int micro_batches = 2;
constexpr std::uint64_t seed = 11;

struct ModelCase {
  std::string name;
  Shape shape;
  int shards;
  int slices;
};

void PrintTo(const ModelCase& c, std::ostream* out) { *out << c.name; }

const std::vector<ModelCase> cases = {{"one_token",
                                       {.layers = 1,
                                        .hidden = 2,
                                        .heads = 1,
                                        .kv_heads = 1,
                                        .ffn = {1},
                                        .vocab = 3,
                                        .seq = 1,
                                        .micro_batch = 1},
                                       1,
                                       1},
                                      {"grouped",
                                       {.layers = 3,
                                        .hidden = 48,
                                        .heads = 6,
                                        .kv_heads = 2,
                                        .ffn = {64, 33, 100},
                                        .vocab = 101,
                                        .seq = 37,
                                        .micro_batch = 2},
                                       2,
                                       3},
                                      {"one_key_head",
                                       {.layers = 2,
                                        .hidden = 64,
                                        .heads = 4,
                                        .kv_heads = 1,
                                        .ffn = {31, 96},
                                        .vocab = 257,
                                        .seq = 150,
                                        .micro_batch = 1},
                                       2,
                                       2},
                                      {"wide_batch",
                                       {.layers = 2,
                                        .hidden = 40,
                                        .heads = 2,
                                        .kv_heads = 2,
                                        .ffn = {80, 80},
                                        .vocab = 64,
                                        .seq = 65,
                                        .micro_batch = 3},
                                       1,
                                       5}};

double step_of(const Reference& reference, ReferenceTensors& gradient, int step) {
  const Shape& shape = reference.layout().shape;
  std::vector<std::int32_t> tokens(shape.tokens()), targets = tokens;
  TokenSource source(shape, "synthetic", seed);
  double loss = 0;
  for (int m = 0; m < micro_batches; ++m) {
    source.fill(tokens, targets, step, m);
    loss += reference.accumulate(gradient, tokens, targets,
                                 1.0 / static_cast<double>(shape.tokens() * micro_batches));
  }
  return loss;
}

/// check(tensor, its values in a, its values in b) for every tensor of the model.
void for_each_tensor(
    const Layout& layout, const ReferenceTensors& a, const ReferenceTensors& b,
    const std::function<void(const Tensor&, const std::vector<double>&, const std::vector<double>&)>& check) {
  for (std::size_t s = 0; s < layout.shards.size(); ++s)
    for (const Tensor& t : layout.shards[s].tensors)
      check(t, test::tensor_of(a.shards[s], t), test::tensor_of(b.shards[s], t));
  for (const Tensor& t : layout.ends.tensors)
    check(t, test::tensor_of(a.ends, t), test::tensor_of(b.ends, t));
}

void expect_tensors_close(const Layout& layout, const ReferenceTensors& a, const ReferenceTensors& b,
                          double tolerance) {
  for_each_tensor(layout, a, b, [&](const Tensor& t, const auto& x, const auto& y) {
    EXPECT_LT(test::relative_error(x, y), tolerance) << t.name;
  });
}

class ModelStep : public ::testing::TestWithParam<std::tuple<ModelCase, Recompute>> {
protected:
  ModelStep() : case_(std::get<0>(GetParam())) {
    case_.shape.recompute = std::get<1>(GetParam());
    layout_ = make_layout(case_.shape, case_.shards, case_.slices);
  }
  ModelCase case_;
  Layout layout_;
};

INSTANTIATE_TEST_SUITE_P(All, ModelStep,
                         ::testing::Combine(::testing::ValuesIn(cases),
                                            ::testing::Values(Recompute::block, Recompute::keep_attention,
                                                              Recompute::none)),
                         [](const auto& param_info) {
                           return std::get<0>(param_info.param).name + "_" +
                                  std::to_string(static_cast<int>(std::get<1>(param_info.param)));
                         });

TEST_P(ModelStep, LossAndEveryGradientTensorMatchTheReference) {
  const Reference reference(layout_, test::initial_weights(layout_, seed));
  ReferenceTensors expected = reference_zeros(layout_);
  const double expected_loss = step_of(reference, expected, 0);
  Trainer trainer(layout_, micro_batches, seed);
  EXPECT_NEAR(trainer.gradient(0), expected_loss, 1e-6 * expected_loss);
  if (case_.shape.hidden > 2)  // the gradient through a norm of two numbers is mostly rounding
    expect_tensors_close(layout_, trainer.totals(), expected, 1e-5);
}

TEST_P(ModelStep, WeightsFollowTheReferenceOverSteps) {
  Reference reference(layout_, test::initial_weights(layout_, seed));
  Trainer trainer(layout_, micro_batches, seed);
  for (int step = 0; step < 3; ++step) {
    ReferenceTensors gradient = reference_zeros(layout_);
    const double expected_loss = step_of(reference, gradient, step);
    EXPECT_NEAR(trainer.gradient(step), expected_loss, 1e-5 * expected_loss);
    reference.update(gradient, {}, step + 1);
    trainer.update({}, step + 1);
  }
  if (case_.shape.hidden > 2) expect_tensors_close(layout_, trainer.weights(), reference.weights(), 1e-4);
}

TEST_P(ModelStep, EveryPolicyAndShardingGivesTheSameBits) {
  ModelCase other = case_;
  other.shape.recompute = Recompute::block;
  const Layout one_shard = make_layout(other.shape, 1, 1);
  Trainer trainer(layout_, micro_batches, seed), plain(one_shard, micro_batches, seed);
  EXPECT_EQ(trainer.gradient(0), plain.gradient(0));
  const ReferenceTensors split = trainer.totals(), whole = plain.totals();
  for (const Shard& shard : layout_.shards)
    for (const Tensor& t : shard.tensors) {
      const auto& all = one_shard.shards[0].tensors;
      const auto same =
          std::find_if(all.begin(), all.end(), [&](const Tensor& o) { return o.name == t.name; });
      EXPECT_EQ(test::tensor_of(split.shards[&shard - layout_.shards.data()], t),
                test::tensor_of(whole.shards[0], *same))
          << t.name;
    }
}

TEST_P(ModelStep, GapsOfAWrittenGradientAreZero) {
  Trainer trainer(layout_, 1, seed);
  trainer.gradient(0);
  const ReferenceTensors totals = trainer.totals();
  for (std::size_t s = 0; s < layout_.shards.size(); ++s) {
    std::vector<bool> inside(layout_.shards[s].elements, false);
    for (const Tensor& t : layout_.shards[s].tensors) std::fill_n(inside.begin() + t.offset, t.size(), true);
    for (std::size_t i = 0; i < inside.size(); ++i) {
      EXPECT_TRUE(inside[i] || totals.shards[s][i] == 0) << "shard " << s << " element " << i;
    }
  }
}

TEST(Model, PortableAttentionGivesTheSameGradients) {
  const Layout layout = make_layout(cases[1].shape, 2, 1);
  Trainer automatic(layout, 1, seed), portable(layout, 1, seed, kernels::Attention::portable);
  EXPECT_NEAR(automatic.gradient(0), portable.gradient(0), 1e-6);
  expect_tensors_close(layout, automatic.totals(), portable.totals(), 1e-5);
}

TEST(Model, LossInSlicesOfTokens) {
  // 2^26 / 2^21 = 32 tokens a slice; the second slice has one.
  Shape shape{.layers = 1,
              .hidden = 2,
              .heads = 1,
              .kv_heads = 1,
              .ffn = {4},
              .vocab = 1 << 21,
              .seq = 33,
              .micro_batch = 1};
  const Layout layout = make_layout(shape, 1, 1);
  ASSERT_EQ(loss_slice(shape), 32);
  const Reference reference(layout, test::initial_weights(layout, seed));
  Trainer trainer(layout, 1, seed);
  ReferenceTensors expected = reference_zeros(layout);
  std::vector<std::int32_t> tokens(33), targets(33);
  TokenSource(shape, "synthetic", seed).fill(tokens, targets, 0, 0);
  const double expected_loss = reference.accumulate(expected, tokens, targets, 1.0 / 33);
  EXPECT_NEAR(trainer.gradient(0), expected_loss, 1e-6 * expected_loss);
  expect_tensors_close(layout, trainer.totals(), expected, 1e-5);
}

TEST(Model, OneThreadGivesTheGradientsOfMany) {
  const ExecutionSpace whole;
  if (whole.concurrency() < 2) GTEST_SKIP() << "one thread only";
  const auto parts = Kokkos::Experimental::partition_space(whole, 1, 1);
  const Layout layout = make_layout(cases[1].shape, 2, 1);
  Trainer many(layout, micro_batches, seed),
      one(layout, micro_batches, seed, kernels::Attention::automatic, parts[0]);
  EXPECT_NEAR(many.gradient(0), one.gradient(0), 1e-6);
  expect_tensors_close(layout, many.totals(), one.totals(), 1e-6);
}

TEST(Model, RefusesWhatItCannotCompute) {
  Shape shape = cases[1].shape;
  const test::DeviceBuffer workspace(workspace_bytes(make_layout(shape, 1, 1)));
  EXPECT_THROW(Model({}, make_layout(shape, 1, 1), 1, {workspace.get().data, workspace.get().bytes - 1}),
               LogicError);
  shape.dtype = Dtype::bf16;
  EXPECT_THROW(Model({}, make_layout(shape, 1, 1), 1, workspace.get()), InputError);
}

TEST(Model, TooSmallABufferIsRefused) {
  const Layout layout = make_layout(cases[1].shape, 1, 1);
  const test::DeviceBuffer workspace(workspace_bytes(layout)), x(flow_bytes(layout.shape)),
      kept(kept_bytes(layout, 0) - 1), weights(layout.shards[0].elements * sizeof(float));
  Model model({}, layout, 1, workspace.get());
  EXPECT_THROW(model.forward(0, x.get(), kept.get(), weights.get()), LogicError);
}

}  // namespace
}  // namespace minitaw::model
