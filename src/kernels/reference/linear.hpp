#pragma once

#include "kernels/reference/types.hpp"

namespace minitaw::kernels::reference {

/// y [rows, out] = x [rows, in] w [out, in]^T.
inline void linear_forward(Out y, In x, In w, std::int64_t rows, std::int64_t out, std::int64_t in) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t o = 0; o < out; ++o) {
      double sum = 0;
      for (std::int64_t i = 0; i < in; ++i) sum += x[r * in + i] * w[o * in + i];
      y[r * out + o] = sum;
    }
}

/// dx [rows, in] = dy [rows, out] w [out, in]; dw [out, in] adds to dy^T x.
inline void linear_backward(Out dx, Out dw, In dy, In x, In w, std::int64_t rows, std::int64_t out,
                            std::int64_t in) {
  for (std::int64_t i = 0; i < rows * in; ++i) dx[i] = 0;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t o = 0; o < out; ++o)
      for (std::int64_t i = 0; i < in; ++i) {
        dx[r * in + i] += dy[r * out + o] * w[o * in + i];
        dw[o * in + i] += dy[r * out + o] * x[r * in + i];
      }
}

}  // namespace minitaw::kernels::reference
