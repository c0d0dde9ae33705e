// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <span>
#include <vector>

namespace minitaw {
/// The quantile `q`, 0 .. 1, of samples in rising order, interpolated linearly as by numpy. NaN
/// without samples.
double quantile(std::span<const double> sorted, double q);
double median(std::vector<double> samples);
}  // namespace minitaw
