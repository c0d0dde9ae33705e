// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <fmt/format.h>
#include <map>
#include <tuple>
#include "kernels/device_matrix.hpp"
#include "model/data.hpp"
#include "model/reference.hpp"
#include "this_run.hpp"

/// Models that the tests of the training step share, and their double-precision reference.
namespace minitaw::test {
inline constexpr int default_batches = 2;
inline constexpr std::uint64_t default_seed = 11;

struct ModelCase {
  std::string name;
  model::Shape shape;
  int shards, embeddings_parts;
};

inline void PrintTo(const ModelCase& c, std::ostream* out) {
  *out << c.name;
}

// Shapes: layers, H, heads, key/value heads, F, V, S, B.
inline const ModelCase one_token = {"one_token", {1, 2, 1, 1, 1, 3, 1, 1}, 1, 1};
inline const ModelCase grouped = {"grouped", {3, 48, 6, 2, 33, 101, 37, 2}, 2, 3};
inline const ModelCase one_key_head = {"one_key_head", {2, 64, 4, 1, 31, 257, 150, 1}, 2, 2};
inline const ModelCase wide_batch = {"wide_batch", {2, 40, 2, 2, 80, 64, 65, 3}, 1, 5};

/// A model, what its backward pass computes again, and its type.
using Combination = std::tuple<ModelCase, model::Recompute, model::Dtype>;

/// Every policy and every model in both types, not each with each.
inline auto combinations() {
  using enum model::Recompute;
  using enum model::Dtype;
  return ::testing::Values(Combination{one_token, none, fp32},
      Combination{one_token, block, bf16},
      Combination{grouped, none, fp32},
      Combination{grouped, block, bf16},
      Combination{one_key_head, block, fp32},
      Combination{one_key_head, keep_attention, bf16},
      Combination{wide_batch, keep_attention, fp32},
      Combination{wide_batch, none, bf16});
}

inline std::string name_of(const ::testing::TestParamInfo<Combination>& info) {
  const auto& [model_case, recompute, dtype] = info.param;
  return model_case.name + "_" + std::to_string(static_cast<int>(recompute)) + "_" +
         model::name_of(dtype);
}

/// A model whose sequences are divided, into how many parts, what is recomputed, type, gradients of
/// keys in fp32, backward passes in halves.
using Divided = std::tuple<ModelCase, int, model::Recompute, model::Dtype, bool, bool>;

inline std::string divided_name(const ::testing::TestParamInfo<Divided>& info) {
  const auto& [model_case, count, recompute, dtype, fp32_keys, halves] = info.param;
  return fmt::format("{}_{}_{}_{}{}{}",
      model_case.name,
      count,
      static_cast<int>(recompute),
      model::name_of(dtype),
      fp32_keys ? "_fp32" : "",
      halves ? "_halves" : "");
}

inline model::Layout layout_of(
    ModelCase c, model::Dtype dtype, model::Recompute recompute = model::Recompute::block) {
  c.shape.dtype = dtype;
  c.shape.recompute = recompute;
  return model::make_layout(c.shape, {c.shards, c.embeddings_parts});
}

/// The gradient through a norm of two numbers is mostly rounding.
inline bool has_meaningful_gradient(const model::Layout& layout) {
  return layout.shape.hidden > 2;
}

/// Loss of step `step` (from 0); its gradient is added to `gradient`.
inline double step_of(const model::Reference& reference,
    model::ReferenceTensors& gradient,
    int step,
    int count = default_batches) {
  const model::Shape& shape = reference.layout().shape;
  std::vector<std::int32_t> tokens(shape.tokens()), targets = tokens;
  model::TokenSource source(shape, "synthetic", default_seed);
  double loss = 0;
  for (int m = 0; m < count; ++m) {
    source.fill(tokens, targets, step, m * shape.micro_batch, runs_of(shape));
    loss += reference.accumulate(
        gradient, tokens, targets, 1.0 / static_cast<double>(shape.tokens() * count));
  }
  return loss;
}

/// The weights as a model computes with them.
inline model::ReferenceTensors rounded_to(model::Dtype dtype, model::ReferenceTensors weights) {
  for (Doubles& part : weights)
    part = dtype == model::Dtype::fp32 ? rounded<float>(part) : rounded<Bf16>(part);
  return weights;
}

/// The tensors by name, wherever a layout has put them.
inline std::map<std::string, Doubles> by_name(
    const model::Layout& layout, const model::ReferenceTensors& tensors) {
  std::map<std::string, Doubles> result;
  for (std::size_t p = 0; const model::Flat* part : layout.parts()) {
    const auto begin = tensors[p++].begin();
    for (const model::Tensor& t : part->tensors)
      result[t.name].assign(begin + t.offset, begin + t.offset + t.size());
  }
  return result;
}

/// Every tensor by relative norm.
inline void expect_tensors_close(const model::Layout& layout,
    const model::ReferenceTensors& a,
    const model::ReferenceTensors& b,
    double tolerance) {
  const auto expected = by_name(layout, b);
  for (const auto& [name, values] : by_name(layout, a))
    EXPECT_LT(relative_error(values, expected.at(name)), tolerance) << name;
}

/// Loss and gradient of the first step, from the weights that the model computes with.
inline void expect_first_step(const model::Layout& layout,
    double loss,
    const model::ReferenceTensors& gradient,
    double of_loss,
    double of_gradient,
    int count = default_batches) {
  const model::ReferenceTensors weights = model::initial_weights(layout, default_seed);
  const model::Reference reference(layout, rounded_to(layout.shape.dtype, weights));
  model::ReferenceTensors expected = model::reference_zeros(layout);
  const double expected_loss = step_of(reference, expected, 0, count);
  EXPECT_NEAR(loss, expected_loss, of_loss * expected_loss);
  if (has_meaningful_gradient(layout))
    expect_tensors_close(layout, gradient, expected, of_gradient);
}
}  // namespace minitaw::test
