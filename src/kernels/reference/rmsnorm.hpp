#pragma once

#include <cmath>

#include "kernels/reference/types.hpp"

namespace minitaw::kernels::reference {

/// 1 / sqrt(mean(x^2) + 1e-5) of one row (Zhang & Sennrich 2019).
inline double reciprocal_rms(In row) {
  double sum = 0;
  for (const double value : row) sum += value * value;
  return 1 / std::sqrt(sum / static_cast<double>(row.size()) + 1e-5);
}

/// y [rows, width] = x reciprocal_rms(x) gain [width].
inline void rmsnorm_forward(Out y, In x, In gain, std::int64_t rows, std::int64_t width) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const double scale = reciprocal_rms(x.subspan(r * width, width));
    for (std::int64_t i = 0; i < width; ++i) y[r * width + i] = x[r * width + i] * scale * gain[i];
  }
}

/// dx [rows, width] is overwritten; dgain [width] adds to.
inline void rmsnorm_backward(Out dx, Out dgain, In dy, In x, In gain, std::int64_t rows, std::int64_t width) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const double scale = reciprocal_rms(x.subspan(r * width, width));
    double dot = 0;
    for (std::int64_t i = 0; i < width; ++i) dot += dy[r * width + i] * gain[i] * x[r * width + i];
    for (std::int64_t i = 0; i < width; ++i) {
      const std::int64_t at = r * width + i;
      dgain[i] += dy[at] * x[at] * scale;
      dx[at] = scale * (dy[at] * gain[i] - x[at] * scale * scale * dot / static_cast<double>(width));
    }
  }
}

}  // namespace minitaw::kernels::reference
