// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <functional>
#include <utility>
#include "model/layout.hpp"

/// FLOPs, bytes and seconds of the model's kernels, as docs/performance.md counts them.
namespace minitaw::model {
/// FLOP/s of one call over its FLOPs, points in ascending order: straight lines over their
/// logarithm, level outside.
struct Curve {
  std::vector<std::pair<double, double>> points;
  double at(double flops) const;
};

struct Speed {
  Curve products;   ///< of matrices
  Curve attention;  ///< forward
  Curve attention_backward;
};

/// Costs of a kernel's call, in some unit.
struct Price {
  std::function<double(double flops)> product, attention, attention_backward;
  std::function<double(double bytes)> memory;  ///< of kernels that compute little
};

/// Seconds on a device that outlives the result. `memory_rate`: bytes/s of kernels that compute
/// little.
Price in_seconds(const Speed& speed, double memory_rate);
/// FLOPs of products and attention alone.
Price in_flops();

/// Cost of the visits of one block with one micro-batch, by segment of Model.
struct BlockCost {
  double forward_keys = 0, forward_attend = 0;
  double forward_attention = 0;  ///< of forward_attend
  double backward_keys = 0;      ///< recomputed
  double backward_attend = 0;
  double backward_finish = 0;          ///< towards the input
  double backward_attend_weights = 0;  ///< of all matrices but that of queries, keys and values
  double backward_finish_weights = 0;  ///< of that

  double forward() const { return forward_keys + forward_attend; }

  double backward_input() const { return backward_keys + backward_attend + backward_finish; }

  double backward_weight() const { return backward_attend_weights + backward_finish_weights; }
};

/// F of a block: 2 T (weights of its matrices) + 2 T (a + b) A FLOPs with causal attention, for
/// tokens [a, b) of each sequence (a slice, or all: a + b = S), T = B (b - a) / n, A = heads
/// head_dim. Both halves of the backward pass have as many for the matrices again; the input half
/// has twice the attention of F, and the recomputation (without the last matrix product, whose
/// result is not needed). Scores that a kernel recomputes do not count.
BlockCost cost_of_block(const Shape& shape, const Price& price);
/// Cost of the loss of one micro-batch: the head's forward and backward.
double cost_of_loss(const Shape& shape, const Price& price);
}  // namespace minitaw::model
