// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "plan.hpp"

namespace minitaw::bench {
/// Every kernel at every shape; those that two shapes share once.
[[nodiscard]] Kernels kernels_of(const std::vector<Shape>& shapes);

inline void add_kernel(Kernels& kernels,
    const std::string& name,
    const std::string& shape,
    model::Dtype dtype,
    Cost cost,
    double near,
    std::function<Problem()> make) {
  kernels.push_back({name, shape, dtype, cost, near, std::move(make)});
}

/// Those of attention at one shape.
void add_attention(Kernels& kernels, const Shape& shape);
}  // namespace minitaw::bench
