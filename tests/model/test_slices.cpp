// SPDX-License-Identifier: BSD-3-Clause
// A model whose sequences come in slices, against a reference that sees them whole.
#include <cmath>
#include <deque>
#include "base/error.hpp"
#include "model/cases.hpp"
#include "model/cost.hpp"
#include "model/model.hpp"
#include "model/training_loop.hpp"

namespace minitaw::model {
namespace {
using test::DeviceBuffer, test::Divided;
constexpr int micro_batches = test::default_batches;
constexpr std::uint64_t seed = test::default_seed;

/// One rank that passes slices: its buffers in just the planned sizes, full of NaN.
class SlicedModel {
public:
  explicit SlicedModel(const Layout& layout)
      : layout_(layout),
        workspace_(plan_workspace(layout).bytes),
        tokens_(layout.shape, "synthetic", seed),
        model_({},
            layout,
            1.0 / static_cast<double>(layout.shape.tokens() * micro_batches),
            workspace_.get()) {
    for (const Flat* flat : layout.parts()) {
      std::vector<float> values(flat->elements);
      initialise(values, *flat, layout.shape, seed);
      weights_.emplace_back(values, layout.shape.dtype);
      totals_.emplace_back(flat->elements * sizeof(float));
    }
    for (const Shard& shard : layout.shards) {
      const auto elements = static_cast<std::size_t>(prefix_elements(layout.shape) * shard.layers);
      prefix_.emplace_back(elements * bytes_of(layout.shape.dtype));
      prefix_gradient_.emplace_back(elements * bytes_of(layout.shape.key_gradient_dtype()));
    }
    for (int j = 0; j < slices(); ++j) {
      hidden_.emplace_back(hidden_bytes(layout.shape_of(j)));
      for (const Shard& shard : layout.shards) {
        saved_.emplace_back(shard.layers * plan_saved(layout.shape_of(j)).bytes);
        deferred_.emplace_back(shard.layers * plan_deferred(layout.shape_of(j)).bytes);
      }
    }
  }

  /// Slices forward one by one, back in the reverse order, in halves with W last.
  void step(int m, bool halves) {
    std::deque<MicroBatch> batches;
    for (int j = 0; j < slices(); ++j) {
      batches.emplace_back(layout_.shape_of(j)).fill(tokens_, 0, m * layout_.shape.micro_batch);
      model_.embed(ends(j, false), batches[j]);
      for (int s = 0; s < shards(); ++s)
        model_.run({.shard = s, .slice = j}, buffers(s, j, m, false));
      model_.loss(ends(j, m > 0 || j > 0), loss_.data(), batches[j]);
    }
    for (int j = slices() - 1; j >= 0; --j) {
      for (int s = shards() - 1; s >= 0; --s)
        model_.run({halves ? Direction::backward_input : Direction::backward, s, j},
            buffers(s, j, m, halves));
      model_.embed_backward(ends(j, m > 0 || j + 1 < slices()), batches[j]);
    }
    for (int j = slices() - 1; j >= 0 && halves; --j)
      for (int s = 0; s < shards(); ++s) {
        PassBuffers b = buffers(s, j, m, true);
        b.weights = {};
        b.of_slices = {};
        model_.run({Direction::backward_weight, s, j}, b);
      }
    Kokkos::fence();
  }

  [[nodiscard]] double loss() const {
    double loss = 0;
    Kokkos::deep_copy(loss, loss_);
    return loss;
  }

  [[nodiscard]] ReferenceTensors totals() const {
    ReferenceTensors all;
    for (const DeviceBuffer& total : totals_)
      all.push_back(total.values(Dtype::fp32));
    return all;
  }

private:
  [[nodiscard]] int slices() const { return layout_.shape.slices; }

  [[nodiscard]] int shards() const { return static_cast<int>(layout_.shards.size()); }

  [[nodiscard]] EndBuffers ends(int j, bool accumulate) const {
    return {.weights = weights_.back().get(),
        .hidden = hidden_[j].get(),
        .gradient = totals_.back().get(),
        .accumulate = accumulate,
        .slice = j};
  }

  [[nodiscard]] PassBuffers buffers(int s, int j, int m, bool halves) const {
    const std::size_t at = j * layout_.shards.size() + s;
    return {.weights = weights_[s].get(),
        .saved = saved_[at].get(),
        .hidden = hidden_[j].get(),
        .deferred = halves ? deferred_[at].get() : Buffer{},
        .of_slices = {prefix_[s].get(), prefix_gradient_[s].get()},
        .gradient = {.buffer = totals_[s].get(), .accumulate = m > 0 || j + 1 < slices()}};
  }

  Layout layout_;
  DeviceBuffer workspace_;
  TokenSource tokens_;
  Model model_;
  Kokkos::View<double, kernels::MemorySpace> loss_{"loss"};
  std::deque<DeviceBuffer> weights_, totals_;           ///< of each part of the model
  std::deque<DeviceBuffer> prefix_, prefix_gradient_;   ///< of each shard
  std::deque<DeviceBuffer> hidden_, saved_, deferred_;  ///< of each slice (and shard)
};

class Slices : public ::testing::TestWithParam<Divided> {};

// 37 tokens of grouped heads; 150 of one key head; 200, which some granule divides.
const test::ModelCase three = {"three", {2, 40, 4, 1, 31, 53, 200, 3}, 1, 1};

INSTANTIATE_TEST_SUITE_P(All,
    Slices,
    ::testing::Values(Divided{test::grouped, 2, Recompute::none, Dtype::fp32, false, false},
        Divided{test::grouped, 3, Recompute::block, Dtype::bf16, true, true},
        Divided{test::grouped, 8, Recompute::keep_attention, Dtype::bf16, false, true},
        Divided{test::one_key_head, 2, Recompute::block, Dtype::fp32, false, true},
        Divided{test::one_key_head, 3, Recompute::keep_attention, Dtype::fp32, false, false},
        Divided{test::one_key_head, 8, Recompute::none, Dtype::bf16, true, false},
        Divided{three, 3, Recompute::none, Dtype::fp32, false, true},
        Divided{three, 8, Recompute::block, Dtype::bf16, false, false}),
    test::divided_name);

TEST_P(Slices, TogetherComputeTheStepOfTheWhole) {
  const auto& [model_case, count, recompute, dtype, fp32_keys, halves] = GetParam();
  const Layout whole = test::layout_of(model_case, dtype, recompute);
  test::ModelCase sliced = model_case;
  sliced.shape.slices = count;
  sliced.shape.even_slices = halves;
  sliced.shape.fp32_key_gradients = fp32_keys && dtype == Dtype::bf16;

  SlicedModel model(test::layout_of(sliced, dtype, recompute));
  for (int m = 0; m < micro_batches; ++m)
    model.step(m, halves);

  const bool fp32 = dtype == Dtype::fp32;
  test::expect_first_step(
      whole, model.loss(), model.totals(), fp32 ? 1e-6 : 2e-4, fp32 ? 1e-5 : 2e-2);
}

}  // namespace
}  // namespace minitaw::model
