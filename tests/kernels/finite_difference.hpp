// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <random>
#include <vector>

namespace minitaw::test {
using Doubles = std::vector<double>;

inline Doubles random_doubles(std::int64_t count, unsigned seed, double scale = 1) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(-scale, scale);
  Doubles values(static_cast<std::size_t>(count));
  for (double& value : values)
    value = uniform(random);
  return values;
}

inline double dot(const Doubles& a, const Doubles& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum += a[i] * b[i];
  return sum;
}

/// Compares at most 200 elements of `gradient`, spread over x, with central differences of f at x.
inline void expect_gradient(const std::function<double(const Doubles&)>& f,
    Doubles x,
    const Doubles& gradient,
    double tolerance = 1e-6) {
  ASSERT_EQ(x.size(), gradient.size());
  const double step = 1e-5;
  const std::size_t stride = std::max<std::size_t>(1, x.size() / 200);
  for (std::size_t i = 0; i < x.size(); i += stride) {
    const double at = x[i];
    x[i] = at + step;
    const double above = f(x);
    x[i] = at - step;
    const double below = f(x);
    x[i] = at;
    const double difference = (above - below) / (2 * step);
    EXPECT_NEAR(gradient[i], difference, tolerance * (1 + std::abs(difference))) << "element " << i;
  }
}
}  // namespace minitaw::test
