// SPDX-License-Identifier: BSD-3-Clause
#include "base/error.hpp"
#include "kokkos_listener.hpp"
#include "model/cases.hpp"
#include "this_run.hpp"

namespace minitaw::model {
namespace {
using enum Recompute;
using test::bf16, test::fp32, test::expect_tensors_close, test::grouped, test::StepCase,
    test::TrainingLoop;
constexpr int micro_batches = test::default_batches;
constexpr std::uint64_t seed = test::default_seed;

/// Measured in bf16, with the same rounded weights: loss 4e-5, gradients 1.0e-2 (each activation
/// rounds by up to 2e-3), and 7e-3 of a loss over two tokens.
test::Tolerance tolerance_of(const Layout& layout) {
  if (layout.shape.dtype == fp32)
    return {1e-6, 1e-5};
  return {test::has_meaningful_gradient(layout) ? 5e-4 : 2e-2, 2e-2};
}

void expect_zero_padding(const Layout& layout, ReferenceTensors written) {
  for (std::size_t p = 0; const Flat* part : layout.parts()) {
    test::Doubles& padding = written[p++];
    for (const Tensor& t : part->tensors)
      std::fill_n(padding.begin() + t.offset, t.size(), 0.0);
    EXPECT_THAT(padding, testing::Each(0.0)) << "part " << p;
  }
}

class ModelStep : public testing::TestWithParam<StepCase> {
protected:
  test::ModelCase case_ = GetParam().model;
  Layout layout_ = test::layout_of(case_, GetParam().dtype, GetParam().recompute);
};

// Every policy and every model in both types, not each with each.
INSTANTIATE_TEST_SUITE_P(All,
    ModelStep,
    testing::Values(StepCase{test::one_token, none, fp32},
        StepCase{test::one_token, block, bf16},
        StepCase{grouped, none, fp32},
        StepCase{grouped, block, bf16},
        StepCase{test::one_key_head, block, fp32},
        StepCase{test::one_key_head, keep_attention, bf16},
        StepCase{test::wide_batch, keep_attention, fp32},
        StepCase{test::wide_batch, none, bf16},
        StepCase{test::with_heads(grouped, "wide_heads", 14), block, fp32},
        StepCase{test::with_heads(grouped, "narrow_heads", 6), keep_attention, bf16},
        StepCase{test::tied(grouped, "tied"), block, fp32},
        StepCase{test::tied(test::wide_batch, "tied_wide_batch"), none, bf16}),
    test::name_of);

TEST_P(ModelStep, LossAndEveryGradientTensorMatchTheReference) {
  TrainingLoop loop(layout_, micro_batches, seed);
  const double loss = loop.gradient(0);
  test::expect_first_step(layout_, loss, loop.totals(), tolerance_of(layout_));
  expect_zero_padding(layout_, loop.totals());
}

/// cuDNN's backward pass sums in any order.
void expect_same_gradients(const Layout& layout,
    const TrainingLoop& loop,
    const Layout& other_layout,
    const TrainingLoop& other) {
  const bool in_order = loop.model().attention().kernel != kernels::Attention::cudnn;
  const auto expected = test::by_name(other_layout, other.totals());
  const double tolerance = in_order ? 0 : tolerance_of(layout).gradient;
  for (const auto& [name, values] : test::by_name(layout, loop.totals()))
    EXPECT_LE(test::relative_error(values, expected.at(name)), tolerance) << name;
}

TEST_P(ModelStep, EveryPolicyAndShardingGivesTheSameBits) {
  test::ModelCase other = case_;
  other.shards = other.embeddings_parts = 1;
  const Layout one_shard = test::layout_of(other, layout_.shape.dtype);
  TrainingLoop loop(layout_, micro_batches, seed), plain(one_shard, micro_batches, seed);
  EXPECT_EQ(loop.gradient(0), plain.gradient(0));
  expect_same_gradients(layout_, loop, one_shard, plain);
}

TEST_P(ModelStep, BothHalvesOfTheBackwardPassApartGiveTheSameBits) {
  for (const bool by_contributions : {false, true}) {
    TrainingLoop apart(layout_, 3, seed), together(layout_, 3, seed);
    apart.by_contributions = together.by_contributions = by_contributions;
    EXPECT_EQ(apart.gradient_apart(0), together.gradient(0));
    expect_same_gradients(layout_, apart, layout_, together);
    expect_zero_padding(layout_, apart.totals());
  }
}

/// As Kokkos sees it.
TEST_P(ModelStep, AfterWarmUpNeitherFencesNorAllocates) {
  TrainingLoop loop(layout_, micro_batches, seed);
  const auto execute = [&](int step) {
    loop.execute();
    loop.update({}, step);
    loop.execute(Direction::backward_input);
    loop.execute_towards_weights();
  };
  loop.prepare(0);
  execute(1);
  loop.prepare(1);
  const test::KokkosListener listener;
  execute(2);
  EXPECT_EQ(listener.seen(), test::KokkosListener::Seen());
}

TEST(Loss, InSlicesOfTokens) {
  // 2^26 / 65001 = 1032 tokens, in whole tiles 1024 a slice; the second slice has one.
  const Layout layout = test::layout_of({"", {1, 4, 1, 1, 4, 65'001, 1025, 1}, 1, 1}, fp32);
  ASSERT_EQ(loss_tile(layout.shape), 1024);
  TrainingLoop loop(layout, 1, seed);
  const double loss = loop.gradient(0);
  test::expect_first_step(layout, loss, loop.totals(), {1e-6, 1e-5}, 1);
}

class AnyDtype : public testing::TestWithParam<Dtype> {
protected:
  Dtype dtype_ = GetParam();
  Layout layout_ = test::layout_of(grouped, dtype_);
};

const auto both_types = testing::Values(fp32, bf16);
const auto name_of_type = [](const auto& param_info) { return name_of(param_info.param); };

INSTANTIATE_TEST_SUITE_P(All, AnyDtype, both_types, name_of_type);

TEST_P(AnyDtype, PortableAttentionGivesTheSameGradients) {
  TrainingLoop automatic(layout_, 1, seed),
      portable(layout_, 1, seed, kernels::Attention::portable);
  EXPECT_NE(automatic.model().attention().kernel, kernels::Attention::automatic);
  EXPECT_EQ(portable.model().attention().kernel, kernels::Attention::portable);
  const auto [of_loss, of_gradient] = tolerance_of(layout_);
  EXPECT_NEAR(automatic.gradient(0), portable.gradient(0), of_loss);
  expect_tensors_close(layout_, automatic.totals(), portable.totals(), of_gradient);
}

TEST_P(AnyDtype, OneThreadGivesTheGradientsOfMany) {
  const ExecutionSpace whole;
  if (!kernels::on_host || whole.concurrency() < 2)
    GTEST_SKIP() << "no threads to choose from";
  const auto parts = Kokkos::Experimental::partition_space(whole, 1, 1);
  TrainingLoop many(layout_, micro_batches, seed),
      one(layout_, micro_batches, seed, kernels::Attention::automatic, parts[0]);
  EXPECT_NEAR(many.gradient(0), one.gradient(0), 1e-6);
  expect_tensors_close(layout_, many.totals(), one.totals(), 1e-6);
}

// What a model refuses.
class Refusals : public AnyDtype {
protected:
  Refusals() { rank_.turns[0].batch.fill(rank_.tokens, 0, 0); }

  /// Every action refuses a quarter of each buffer that it needs.
  template <class B>
  static void expect_needs(
      const B& all, const std::vector<Buffer B::*>& members, const auto& action) {
    EXPECT_NO_THROW(action(all));
    for (const auto member : members) {
      B less = all;
      (less.*member).bytes /= 4;
      EXPECT_THROW(action(less), LogicError);
    }
  }

  test::Rank rank_{
      make_layout(layout_.shape, {.shards = 2, .embeddings_parts = 2, .embeddings_split = true}),
      0,
      1,
      seed};
  Model& model_ = rank_.model;
  EndBuffers ends_ = rank_.ends(0, true);
  const MicroBatch& batch_ = rank_.turns[0].batch;
  double* loss_ = rank_.loss.data();
};

INSTANTIATE_TEST_SUITE_P(All, Refusals, both_types, name_of_type);

TEST_P(Refusals, OfBuffersThatAreTooSmall) {
  using P = PassBuffers;
  using E = EndBuffers;
  using U = UpdateBuffers;
  const Gradient gradient{rank_.totals[0].get()};
  for (const auto& [direction, members] :
      std::initializer_list<std::pair<Direction, std::vector<Buffer P::*>>>{
          {Direction::backward, {&P::hidden, &P::saved, &P::weights}},
          {Direction::backward_input, {&P::hidden, &P::saved, &P::deferred, &P::weights}},
          {Direction::backward_weight, {&P::saved, &P::deferred}}}) {
    const ShardPass pass{.direction = direction};
    P all = rank_.buffers(pass, 0, gradient);
    expect_needs(all, members, [&](const P& b) { model_.run(pass, b); });
    if (!pass.towards_weights())
      continue;
    all.gradient.buffer.bytes /= 4;
    EXPECT_THROW(model_.run(pass, all), LogicError);
  }
  expect_needs(ends_, {&E::hidden, &E::gradient, &E::weights}, [&](const E& b) {
    model_.loss(b, loss_, batch_);
  });
  const auto [weights, totals, states] = std::tie(rank_.weights, rank_.totals, rank_.states);
  const std::vector all = {&U::weights, &U::gradient, &U::state};
  expect_needs(U{weights[0].get(), totals[0].get(), states[0].get()}, all, [&](const U& b) {
    model_.update(0, {}, b, {}, 1);
  });
  expect_needs(U{ends_.weights, ends_.gradient, states.back().get()}, all, [&](const U& b) {
    model_.update_embeddings(1, b, {}, 1);
  });
  const Buffer workspace = rank_.workspace.get();
  EXPECT_THROW(Model({}, rank_.layout, 1, {workspace.data, workspace.bytes / 4}), LogicError);
}

TEST_P(Refusals, OfWhatAnotherRankHolds) {
  const std::int64_t slice = rank_.layout.embeddings.part;
  const auto holder_of = [&](Range part) {
    return Model({}, rank_.layout, 1, rank_.workspace.get(), kernels::Attention::automatic, part);
  };
  Model first = holder_of({0, slice}), last = holder_of({slice, slice});
  const UpdateBuffers of_update{ends_.weights, ends_.gradient, rank_.states.back().get()};
  EXPECT_THROW(last.embed(ends_, batch_), LogicError);
  EXPECT_THROW(last.embed_backward(ends_, batch_), LogicError);
  EXPECT_THROW(first.loss(ends_, loss_, batch_), LogicError);
  for (const auto& [model, other] : {std::pair{&first, 1}, {&last, 0}}) {
    EXPECT_THROW(model->update_embeddings(other, of_update, {}, 1), LogicError);
    EXPECT_NO_THROW(model->update_embeddings(1 - other, of_update, {}, 1));
  }
  for (const Range part : {Range{slice, slice + 1}, {-1, 1}})
    EXPECT_THROW((void)holder_of(part), LogicError);
}

/// Parts begin and end anywhere, also inside a tensor and inside a block of four numbers.
TEST(Draw, GivesTheBitsOfTheReferenceOnEveryPart) {
  std::mt19937 random(test::seed());
  const auto draw_in = [&](std::int64_t bound) {
    return std::uniform_int_distribution<std::int64_t>(0, bound)(random);
  };
  for (int trial = 0; trial < 24; ++trial) {
    Shape shape{3, 4 + 4 * draw_in(20), 2, 1, 1 + draw_in(60), 2 + draw_in(70), 1, 1};
    shape.dtype = trial % 2 == 0 ? fp32 : bf16;
    const Layout layout = make_layout(shape, {2, 1 + static_cast<int>(draw_in(3))});
    for (const Flat* whole : layout.parts()) {
      std::vector<float> all(whole->elements);
      initialise(all, *whole, shape, trial);
      const std::int64_t first = draw_in(whole->elements - 1),
                         count = 1 + draw_in(whole->elements - first - 1);
      const test::DeviceBuffer weights(count * bytes_of(shape.dtype)),
          master(count * sizeof(float));
      draw(trial % 3 == 0 ? Buffer{} : weights.get(),
          trial % 3 == 1 ? Buffer{} : master.get(),
          whole->tensors,
          {first, count},
          shape,
          trial);
      const test::Doubles exact(all.begin() + first, all.begin() + first + count);
      const test::Doubles narrow = test::DeviceBuffer(exact, shape.dtype).values(shape.dtype);
      EXPECT_EQ(trial % 3 == 0 ? narrow : weights.values(shape.dtype), narrow) << trial;
      EXPECT_EQ(trial % 3 == 1 ? exact : master.values(fp32), exact) << trial;
    }
  }
}

// Weights over steps, and what bf16 leaves of gradients and weights.
class ModelSteps : public AnyDtype {
protected:
  Reference reference_{layout_, initial_weights(layout_, seed)};
  TrainingLoop loop_{layout_, micro_batches, seed};

  ReferenceTensors change_of(ReferenceTensors weights) const {
    const ReferenceTensors before = initial_weights(layout_, seed);
    for (std::size_t p = 0; p < weights.size(); ++p)
      std::ranges::transform(weights[p], before[p], weights[p].begin(), std::minus());
    return weights;
  }
};

INSTANTIATE_TEST_SUITE_P(All, ModelSteps, both_types, name_of_type);

TEST_P(ModelSteps, LossesAndMasterWeightsFollowTheReference) {
  const double tolerance = dtype_ == fp32 ? 1e-5 : 5e-4;
  for (int step = 0; step < 3; ++step) {
    const Reference computes(layout_, test::rounded_to(dtype_, reference_.weights()));
    ReferenceTensors gradient = reference_zeros(layout_);
    const double expected_loss = test::step_of(computes, gradient, step);
    EXPECT_NEAR(loop_.gradient(step), expected_loss, tolerance * expected_loss);
    reference_.update(gradient, {}, step + 1);
    loop_.update({}, step + 1);
  }
  expect_tensors_close(layout_, loop_.master(), reference_.weights(), dtype_ == fp32 ? 1e-4 : 6e-3);
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
  other.by_contributions = true;
  EXPECT_EQ(loop_.gradient(0), other.gradient(0));
  // Each contribution is rounded once, by 2^-9 at most in bf16; measured: 2.7e-3 of a total that
  // partly cancels.
  expect_tensors_close(layout_, other.totals(), loop_.totals(), dtype_ == fp32 ? 1e-6 : 5e-3);
}
}  // namespace
}  // namespace minitaw::model
