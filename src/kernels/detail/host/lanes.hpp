#pragma once

#include "kernels/detail/scalar.hpp"

/// Loops over short rows in a form that compilers turn into vector code. Sums run in 16 lanes, so their order
/// depends on nothing but the count.
namespace minitaw::kernels::detail::host {

inline constexpr int lanes = 16;

inline float largest_of(const float* row, int count, float least) {
  float best[lanes];
  for (float& value : best) value = least;
  int i = 0;
  for (; i + lanes <= count; i += lanes)
    for (int lane = 0; lane < lanes; ++lane)
      best[lane] = row[i + lane] > best[lane] ? row[i + lane] : best[lane];
  for (; i < count; ++i) best[0] = row[i] > best[0] ? row[i] : best[0];
  for (const float value : best) least = value > least ? value : least;
  return least;
}

inline float sum_of_lanes(float* sums) {
  for (int width = lanes / 2; width > 0; width /= 2)
    for (int lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
  return sums[0];
}

inline float dot_of(const float* a, const float* b, int count) {
  float sums[lanes] = {};
  int i = 0;
  for (; i + lanes <= count; i += lanes)
    for (int lane = 0; lane < lanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  for (int lane = 0; i + lane < count; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  return sum_of_lanes(sums);
}

}  // namespace minitaw::kernels::detail::host
