// SPDX-License-Identifier: BSD-3-Clause
#include <deque>
#include "base/error.hpp"
#include "kokkos_listener.hpp"
#include "model/cases.hpp"
#include "model/model.hpp"
#include "model/training_loop.hpp"
#include "this_run.hpp"

namespace minitaw::model {
namespace {
using test::expect_tensors_close, test::TrainingLoop;
constexpr int micro_batches = test::default_batches;
constexpr std::uint64_t seed = test::default_seed;

/// Relative, of the loss and of each gradient's norm. Measured in bf16, with the same rounded
/// weights: loss 4e-5, gradients 1.0e-2 (each activation rounds by up to 2e-3), and 7e-3 of a loss
/// over two tokens.
struct Tolerance {
  double loss, gradient;
};

Tolerance tolerance_of(const Layout& layout) {
  if (layout.shape.dtype == Dtype::fp32)
    return {1e-6, 1e-5};
  return {test::has_meaningful_gradient(layout) ? 5e-4 : 2e-2, 2e-2};
}

void expect_zero_padding(const Layout& layout, ReferenceTensors written) {
  for (std::size_t p = 0; const Flat* part : layout.parts()) {
    std::vector<double>& padding = written[p++];
    for (const Tensor& t : part->tensors)
      std::fill_n(padding.begin() + t.offset, t.size(), 0.0);
    EXPECT_EQ(padding, std::vector<double>(padding.size(), 0.0)) << "part " << p;
  }
}

class ModelStep : public ::testing::TestWithParam<test::Combination> {
protected:
  test::ModelCase case_ = std::get<0>(GetParam());
  Dtype dtype_ = std::get<2>(GetParam());
  Layout layout_ = test::layout_of(case_, dtype_, std::get<1>(GetParam()));
  Tolerance tolerance_ = tolerance_of(layout_);
};

INSTANTIATE_TEST_SUITE_P(All, ModelStep, test::combinations(), test::name_of);

TEST_P(ModelStep, LossAndEveryGradientTensorMatchTheReference) {
  TrainingLoop loop(layout_, micro_batches, seed);
  const double loss = loop.gradient(0);
  test::expect_first_step(layout_, loss, loop.totals(), tolerance_.loss, tolerance_.gradient);
  expect_zero_padding(layout_, loop.totals());
}

/// cuDNN's backward pass sums in any order.
void expect_same_gradients(const Layout& layout,
    const TrainingLoop& loop,
    const Layout& other_layout,
    const TrainingLoop& other) {
  const bool in_order = loop.model().attention().kernel != kernels::Attention::cudnn;
  const auto expected = test::by_name(other_layout, other.totals());
  for (const auto& [name, values] : test::by_name(layout, loop.totals()))
    if (in_order)
      EXPECT_EQ(values, expected.at(name)) << name;
    else
      EXPECT_LT(test::relative_error(values, expected.at(name)), tolerance_of(layout).gradient)
          << name;
}

TEST_P(ModelStep, EveryPolicyAndShardingGivesTheSameBits) {
  test::ModelCase other = case_;
  other.shards = other.embeddings_parts = 1;
  const Layout one_shard = test::layout_of(other, dtype_);
  TrainingLoop loop(layout_, micro_batches, seed), plain(one_shard, micro_batches, seed);
  EXPECT_EQ(loop.gradient(0), plain.gradient(0));
  expect_same_gradients(layout_, loop, one_shard, plain);
}

TEST_P(ModelStep, BothHalvesOfTheBackwardPassApartGiveTheSameBits) {
  for (const bool by_contributions : {false, true}) {
    TrainingLoop apart(layout_, 3, seed), together(layout_, 3, seed);
    EXPECT_EQ(apart.gradient_apart(0, by_contributions), together.gradient(0, by_contributions));
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
    loop.execute_towards_inputs();
    loop.execute_towards_weights();
  };
  loop.prepare(0);
  execute(1);
  loop.prepare(1);
  const test::KokkosListener listener;
  execute(2);
  EXPECT_EQ(listener.seen(), test::KokkosListener::Seen());
}

class AnyDtype : public ::testing::TestWithParam<Dtype> {
protected:
  Dtype dtype_ = GetParam();
};

INSTANTIATE_TEST_SUITE_P(
    All, AnyDtype, ::testing::Values(Dtype::fp32, Dtype::bf16), [](const auto& param_info) {
      return name_of(param_info.param);
    });

TEST_P(AnyDtype, PortableAttentionGivesTheSameGradients) {
  const Layout layout = test::layout_of(test::grouped, dtype_);
  TrainingLoop automatic(layout, 1, seed), portable(layout, 1, seed, kernels::Attention::portable);
  EXPECT_NE(automatic.model().attention().kernel, kernels::Attention::automatic);
  EXPECT_EQ(portable.model().attention().kernel, kernels::Attention::portable);
  EXPECT_NEAR(automatic.gradient(0), portable.gradient(0), tolerance_of(layout).loss);
  expect_tensors_close(
      layout, automatic.totals(), portable.totals(), tolerance_of(layout).gradient);
}

TEST(Loss, InSlicesOfTokens) {
  // 2^26 / 65001 = 1032 tokens, in whole tiles 1024 a slice; the second slice has one.
  const test::ModelCase sliced = {"sliced", {1, 4, 1, 1, 4, 65'001, 1025, 1}, 1, 1};
  const Layout layout = test::layout_of(sliced, Dtype::fp32);
  ASSERT_EQ(loss_tile(layout.shape), 1024);
  TrainingLoop loop(layout, 1, seed);
  const double loss = loop.gradient(0);
  test::expect_first_step(layout, loss, loop.totals(), 1e-6, 1e-5, 1);
}

TEST_P(AnyDtype, OneThreadGivesTheGradientsOfMany) {
  const ExecutionSpace whole;
  if (!kernels::on_host || whole.concurrency() < 2)
    GTEST_SKIP() << "no threads to choose from";
  const auto parts = Kokkos::Experimental::partition_space(whole, 1, 1);
  const Layout layout = test::layout_of(test::grouped, dtype_);
  TrainingLoop many(layout, micro_batches, seed),
      one(layout, micro_batches, seed, kernels::Attention::automatic, parts[0]);
  EXPECT_NEAR(many.gradient(0), one.gradient(0), 1e-6);
  expect_tensors_close(layout, many.totals(), one.totals(), 1e-6);
}

// What a model refuses.
/// The buffers of a rank that holds all, in exactly the planned sizes.
struct Buffers {
  Buffer workspace, x, saved, deferred, weights, total, state, embeddings, embeddings_total,
      embeddings_state;
};

class Refusals : public AnyDtype {
protected:
  Refusals() {
    using B = Buffers;
    const Shard& shard = layout_.shards[0];
    const std::int64_t slice = layout_.embeddings.part;
    for (const auto& [member, bytes] : std::initializer_list<std::pair<Buffer B::*, std::size_t>>{
             {&B::workspace, plan_workspace(layout_).bytes},
             {&B::x, hidden_bytes(layout_.shape)},
             {&B::saved, shard.layers * plan_saved(layout_.shape).bytes},
             {&B::deferred, shard.layers * plan_deferred(layout_.shape).bytes},
             {&B::weights, shard.elements * bytes_of(dtype_)},
             {&B::total, shard.elements * sizeof(float)},
             {&B::state, optimiser_bytes(dtype_, shard.elements)},
             {&B::embeddings, layout_.embeddings.elements * bytes_of(dtype_)},
             {&B::embeddings_total, layout_.embeddings.elements * sizeof(float)},
             {&B::embeddings_state, optimiser_bytes(dtype_, slice)}})
      all_.*member = memory_.emplace_back(bytes).get();
    TokenSource source(layout_.shape, "synthetic", seed);
    batch_.fill(source, 0, 0);
  }

  static EndBuffers embeddings(const Buffers& b) {
    return {
        .weights = b.embeddings, .hidden = b.x, .gradient = b.embeddings_total, .accumulate = true};
  }

  /// Too small for what the least of the actions does with it.
  static Buffer less(Buffer buffer) { return {buffer.data, buffer.bytes / 4}; }

  [[nodiscard]] Model model(std::optional<Range> part = {}) const {
    return {{}, layout_, 1, all_.workspace, kernels::Attention::automatic, part};
  }

  Layout layout_ = make_layout(test::layout_of(test::grouped, dtype_).shape,
      {.shards = 2, .embeddings_parts = 2, .embeddings_split = true});
  std::deque<test::DeviceBuffer> memory_;
  Buffers all_;
  MicroBatch batch_{layout_.shape};
  Kokkos::View<double, kernels::MemorySpace> loss_{"loss"};
};

INSTANTIATE_TEST_SUITE_P(
    All, Refusals, ::testing::Values(Dtype::fp32, Dtype::bf16), [](const auto& param_info) {
      return name_of(param_info.param);
    });

TEST_P(Refusals, OfBuffersThatAreTooSmall) {
  using B = Buffers;
  Model m = model();
  const auto expect_needs =
      [&](const char* name, const std::vector<Buffer B::*>& members, const auto& action) {
        EXPECT_NO_THROW(action(all_)) << name;
        for (const auto member : members) {
          Buffers one_less = all_;
          one_less.*member = less(all_.*member);
          EXPECT_THROW(action(one_less), LogicError) << name;
        }
      };
  const auto run = [&](Direction direction) {
    return [&m, direction](const B& b) {
      const bool half = direction != Direction::backward;
      m.run({.direction = direction},
          {.weights = direction == Direction::backward_weight ? Buffer{} : b.weights,
              .saved = b.saved,
              .hidden = b.x,
              .deferred = half ? b.deferred : Buffer{},
              .gradient = {b.total}});
    };
  };
  expect_needs("backward", {&B::x, &B::total, &B::saved, &B::weights}, run(Direction::backward));
  expect_needs("backward_input",
      {&B::x, &B::saved, &B::deferred, &B::weights},
      run(Direction::backward_input));
  expect_needs(
      "backward_weight", {&B::total, &B::saved, &B::deferred}, run(Direction::backward_weight));
  expect_needs("loss", {&B::x, &B::embeddings_total, &B::embeddings}, [&](const B& b) {
    m.loss(embeddings(b), loss_.data(), batch_);
  });
  expect_needs("update", {&B::weights, &B::state, &B::total}, [&](const B& b) {
    m.update(0, {}, {b.weights, b.total, b.state}, {}, 1);
  });
  expect_needs("update_embeddings",
      {&B::embeddings, &B::embeddings_state, &B::embeddings_total},
      [&](const B& b) {
        m.update_embeddings(1, {b.embeddings, b.embeddings_total, b.embeddings_state}, {}, 1);
      });
  EXPECT_THROW(Model({}, layout_, 1, less(all_.workspace)), LogicError);
}

TEST_P(Refusals, OfWhatAnotherRankHolds) {
  const std::int64_t slice = layout_.embeddings.part;
  Model first = model(Range{0, slice}), last = model(Range{slice, slice});
  const UpdateBuffers of_update{all_.embeddings, all_.embeddings_total, all_.embeddings_state};
  EXPECT_THROW(last.embed(embeddings(all_), batch_), LogicError);
  EXPECT_THROW(last.embed_backward(embeddings(all_), batch_), LogicError);
  EXPECT_THROW(first.loss(embeddings(all_), loss_.data(), batch_), LogicError);
  for (const auto& [model, other] : {std::pair{&first, 1}, {&last, 0}}) {
    EXPECT_THROW(model->update_embeddings(other, of_update, {}, 1), LogicError);
    EXPECT_NO_THROW(model->update_embeddings(1 - other, of_update, {}, 1));
  }
  for (const Range part : {Range{slice, slice + 1}, {-1, 1}})
    EXPECT_THROW((void)model(part), LogicError);
}

/// Parts begin and end anywhere, also inside a tensor and inside a block of four numbers.
TEST(Draw, GivesTheBitsOfTheReferenceOnEveryPart) {
  std::mt19937 random(test::seed());
  const auto draw_in = [&](std::int64_t bound) {
    return std::uniform_int_distribution<std::int64_t>(0, bound)(random);
  };
  for (int trial = 0; trial < 24; ++trial) {
    Shape shape{3, 4 + 4 * draw_in(20), 2, 1, 1 + draw_in(60), 2 + draw_in(70), 1, 1};
    shape.dtype = trial % 2 == 0 ? Dtype::fp32 : Dtype::bf16;
    const Layout layout = make_layout(shape, {2, 1 + static_cast<int>(draw_in(3))});
    const auto compare = [&](const Flat& whole) {
      std::vector<float> all(static_cast<std::size_t>(whole.elements));
      initialise(all, whole, shape, static_cast<std::uint64_t>(trial));
      const std::int64_t first = draw_in(whole.elements - 1),
                         count = 1 + draw_in(whole.elements - first - 1);
      const test::DeviceBuffer weights(static_cast<std::size_t>(count) * bytes_of(shape.dtype)),
          master(static_cast<std::size_t>(count) * sizeof(float));
      draw(trial % 3 == 0 ? Buffer{} : weights.get(),
          trial % 3 == 1 ? Buffer{} : master.get(),
          whole.tensors,
          {first, count},
          shape,
          static_cast<std::uint64_t>(trial));
      const std::vector<float> part(all.begin() + first, all.begin() + first + count);
      const std::vector<double> exact(part.begin(), part.end());
      const std::vector<double> narrow = test::DeviceBuffer(part, shape.dtype).values(shape.dtype);
      EXPECT_EQ(trial % 3 == 0 ? narrow : weights.values(shape.dtype), narrow) << trial;
      EXPECT_EQ(trial % 3 == 1 ? exact : master.values(Dtype::fp32), exact) << trial;
    };
    for (const Flat* part : layout.parts())
      compare(*part);
  }
}

// Weights over steps, and what bf16 leaves of gradients and weights.
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
      for (std::size_t i = 0; i < change[p].size(); ++i)
        change[p][i] -= before[p][i];
    return change;
  }
};

INSTANTIATE_TEST_SUITE_P(All,
    ModelSteps,
    ::testing::Combine(::testing::Values(test::grouped),
        ::testing::Values(Recompute::block),
        ::testing::Values(Dtype::fp32, Dtype::bf16)),
    test::name_of);

TEST_P(ModelSteps, LossesAndMasterWeightsFollowTheReference) {
  const bool fp32 = dtype_ == Dtype::fp32;
  const double tolerance = fp32 ? 1e-5 : 5e-4;
  for (int step = 0; step < 3; ++step) {
    const Reference computes(layout_, test::rounded_to(dtype_, reference_.weights()));
    ReferenceTensors gradient = reference_zeros(layout_);
    const double expected_loss = test::step_of(computes, gradient, step);
    EXPECT_NEAR(loop_.gradient(step), expected_loss, tolerance * expected_loss);
    reference_.update(gradient, {}, step + 1);
    loop_.update({}, step + 1);
  }
  expect_tensors_close(layout_, loop_.master(), reference_.weights(), fp32 ? 1e-4 : 6e-3);
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
  // Each contribution is rounded once, by 2^-9 at most in bf16; measured: 2.7e-3 of a total that
  // partly cancels.
  expect_tensors_close(
      layout_, other.totals(), loop_.totals(), dtype_ == Dtype::fp32 ? 1e-6 : 5e-3);
  expect_zero_padding(layout_, other.totals());
}
}  // namespace
}  // namespace minitaw::model
