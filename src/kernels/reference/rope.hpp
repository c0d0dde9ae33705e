#pragma once

#include <cmath>

#include "kernels/reference/types.hpp"

namespace minitaw::kernels::reference {

/// Turns the pairs (2i, 2i+1) of every head of x [batch, seq, heads, head_dim] in place by the angle
/// direction * position * 10000^(-2i / head_dim) (Su et al. 2021). direction 1: forward; -1: backward,
/// because the transpose of a rotation is its inverse. `stride`: elements from one token to the next, at
/// least heads head_dim.
inline void rope(Out x, std::int64_t batch, std::int64_t seq, std::int64_t heads, std::int64_t head_dim,
                 std::int64_t stride, double direction) {
  for (std::int64_t token = 0; token < batch * seq; ++token)
    for (std::int64_t head = 0; head < heads; ++head)
      for (std::int64_t i = 0; i < head_dim / 2; ++i) {
        const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
        const double angle = direction * static_cast<double>(token % seq) * std::pow(10000.0, exponent);
        double& even = x[token * stride + head * head_dim + 2 * i];
        double& odd = x[token * stride + head * head_dim + 2 * i + 1];
        const double turned = even * std::cos(angle) - odd * std::sin(angle);
        odd = even * std::sin(angle) + odd * std::cos(angle);
        even = turned;
      }
}

}  // namespace minitaw::kernels::reference
