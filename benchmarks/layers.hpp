// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "plan.hpp"

namespace minitaw::bench {
/// Every kernel at every shape; those that two shapes share once.
[[nodiscard]] Kernels kernels_of(const std::vector<Shape>& shapes);

using Row = std::vector<double>;

inline Row sum_of(Row a, const Row& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    a[i] += b[i];
  return a;
}

/// Sum of term(i) for i in [0, count).
inline double sum_over(std::int64_t count, const auto& term) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i)
    sum += term(i);
  return sum;
}

/// Adds the kernels of one layer: "swiglu/fp32" with "/forward", "/backward".
struct Layer {
  Kernels& kernels;
  std::string name, shape;
  model::Dtype dtype;

  /// `near`: the largest error that is right.
  void add(const std::string& pass, Cost cost, double near, std::function<Problem()> make) const {
    kernels.push_back({name + pass, shape, dtype, cost, near, std::move(make)});
  }
};

// Those of a layer at one shape.
void add_attention(Kernels& kernels, const Shape& shape);
void add_loss(Kernels& kernels, const Shape& shape);
void add_embedding(Kernels& kernels, const Shape& shape);
/// AdamW, and the sum of gradients.
void add_updates(Kernels& kernels, const Shape& shape);
}  // namespace minitaw::bench
