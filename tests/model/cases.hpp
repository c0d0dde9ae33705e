// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <fmt/format.h>
#include <map>
#include "model/training_loop.hpp"

/// Models that the tests of the training step share, and their double-precision reference.
namespace minitaw::test {
using enum model::Recompute;
using enum model::Dtype;
inline constexpr int default_batches = 2;
inline constexpr std::uint64_t default_seed = 11;

struct ModelCase {
  std::string name;
  model::Shape shape;
  int shards, embeddings_parts;
};

// Shapes: layers, H, heads, key/value heads, F, V, S, B.
inline const ModelCase one_token = {"one_token", {1, 2, 1, 1, 1, 3, 1, 1}, 1, 1};
inline const ModelCase grouped = {"grouped", {3, 48, 6, 2, 33, 101, 37, 2}, 2, 3};
inline const ModelCase one_key_head = {"one_key_head", {2, 64, 4, 1, 31, 257, 150, 1}, 2, 2};
inline const ModelCase wide_batch = {"wide_batch", {2, 40, 2, 2, 80, 64, 65, 3}, 1, 5};

/// The same with heads of this width.
inline ModelCase with_heads(ModelCase c, const std::string& name, std::int64_t head_dim) {
  c.name = name;
  c.shape.given_head_dim = head_dim;
  return c;
}

inline ModelCase tied(ModelCase c, const std::string& name) {
  c.name = name;
  c.shape.tied = true;
  return c;
}

/// A model, what its backward pass computes again, and its type.
struct StepCase {
  ModelCase model;
  model::Recompute recompute;
  Dtype dtype;
  int ranks = 1, slices = 1;  ///< that its sequences are divided among
  bool fp32_keys = false;     ///< gradients of keys
  bool halves = false;        ///< of the backward passes
};

inline std::string name_of(const testing::TestParamInfo<StepCase>& info) {
  const auto& [of, recompute, dtype, ranks, slices, fp32_keys, halves] = info.param;
  return fmt::format("{}_{}_{}_{}_{}", of.name, name_of(dtype), info.index, ranks, slices);
}

inline Layout layout_of(const ModelCase& c, Dtype dtype, model::Recompute recompute = block) {
  model::Shape shape = c.shape;
  shape.dtype = dtype;
  shape.recompute = recompute;
  return make_layout(shape, {c.shards, c.embeddings_parts});
}

/// The gradient through a norm of two numbers is mostly rounding.
inline bool has_meaningful_gradient(const Layout& layout) {
  return layout.shape.hidden > 2;
}

/// Loss of step `step` (from 0); its gradient is added to `gradient`.
inline double step_of(const model::Reference& reference,
    ReferenceTensors& gradient,
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
inline ReferenceTensors rounded_to(Dtype dtype, ReferenceTensors weights) {
  for (Doubles& part : weights)
    part = dtype == fp32 ? rounded<float>(part) : rounded<Bf16>(part);
  return weights;
}

/// The tensors by name, wherever a layout has put them.
inline std::map<std::string, Doubles> by_name(
    const Layout& layout, const ReferenceTensors& tensors) {
  std::map<std::string, Doubles> result;
  for (std::size_t p = 0; const model::Flat* part : layout.parts()) {
    const auto begin = tensors[p++].begin();
    for (const model::Tensor& t : part->tensors)
      result[t.name].assign(begin + t.offset, begin + t.offset + t.size());
  }
  return result;
}

/// Every tensor by relative norm.
inline void expect_tensors_close(
    const Layout& layout, const ReferenceTensors& a, const ReferenceTensors& b, double tolerance) {
  const auto expected = by_name(layout, b);
  for (const auto& [name, values] : by_name(layout, a))
    EXPECT_LT(relative_error(values, expected.at(name)), tolerance) << name;
}

/// Relative, of the loss and of each gradient's norm.
struct Tolerance {
  double loss, gradient;
};

/// Loss and gradient of the first step, from the weights that the model computes with.
inline void expect_first_step(const Layout& layout,
    double loss,
    const ReferenceTensors& gradient,
    Tolerance tolerance,
    int count = default_batches) {
  const model::Reference reference(
      layout, rounded_to(layout.shape.dtype, model::initial_weights(layout, default_seed)));
  ReferenceTensors expected = reference_zeros(layout);
  const double expected_loss = step_of(reference, expected, 0, count);
  EXPECT_NEAR(loss, expected_loss, tolerance.loss * expected_loss);
  if (has_meaningful_gradient(layout))
    expect_tensors_close(layout, gradient, expected, tolerance.gradient);
}
}  // namespace minitaw::test
