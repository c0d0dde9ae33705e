#pragma once

#include <cmath>

#include "kernels/reference/types.hpp"

namespace minitaw::kernels::reference {

/// y [rows, width] = silu(gate) up (Shazeer 2020); x [rows, 2 width]: gate columns, then up columns.
inline void swiglu_forward(Out y, In x, std::int64_t rows, std::int64_t width) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t i = 0; i < width; ++i) {
      const double gate = x[r * 2 * width + i], up = x[r * 2 * width + width + i];
      y[r * width + i] = gate / (1 + std::exp(-gate)) * up;
    }
}

/// dx [rows, 2 width] is overwritten.
inline void swiglu_backward(Out dx, In dy, In x, std::int64_t rows, std::int64_t width) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t i = 0; i < width; ++i) {
      const std::int64_t at = r * 2 * width + i;
      const double gate = x[at], up = x[at + width], sigmoid = 1 / (1 + std::exp(-gate));
      dx[at] = dy[r * width + i] * up * sigmoid * (1 + gate * (1 - sigmoid));
      dx[at + width] = dy[r * width + i] * gate * sigmoid;
    }
}

}  // namespace minitaw::kernels::reference
