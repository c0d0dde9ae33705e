#include "record/compare/interval.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace minitaw::record::compare {

namespace {

double median(const std::vector<double>& sorted) {
  const std::size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

/// How many values may be left out at each end: the most whose probability stays within (1 - confidence) / 2;
/// `probability(i)` is that of exactly i.
template <class Probability>
std::size_t left_out(std::size_t most, double confidence, const Probability& probability) {
  const double tail = (1 - confidence) / 2;
  double sum = 0;
  for (std::size_t i = 0; i <= most; ++i) {
    sum += probability(i);
    if (sum > tail) return i;
  }
  return most;
}

/// P(i of n fair coins show heads).
double binomial(std::size_t n, std::size_t i) {
  const auto log_factorial = [](std::size_t k) { return std::lgamma(static_cast<double>(k) + 1); };
  return std::exp(log_factorial(n) - log_factorial(i) - log_factorial(n - i) -
                  static_cast<double>(n) * std::log(2.0));
}

/// The interval between sorted values, `out` of which are left out at each end.
std::optional<Interval> between(const std::vector<double>& sorted, std::size_t out) {
  if (out == 0) return std::nullopt;
  return Interval{sorted[out - 1], median(sorted), sorted[sorted.size() - out]};
}

std::size_t pairs_left_out(std::size_t n, double confidence) {
  return left_out(n / 2, confidence, [n](std::size_t i) { return binomial(n, i); });
}

/// P(U = u) of the Mann-Whitney statistic for u = 0 .. n m / 2, when both samples come from one distribution:
/// in how many orders of n and m values does a value of the second lie below one of the first u times?
std::vector<double> mann_whitney(std::size_t n, std::size_t m) {
  const std::size_t half = n * m / 2;
  // counts[j][u]: with the values of the first sample seen so far and j of the second
  std::vector<std::vector<double>> counts(m + 1, std::vector<double>(half + 1, 0));
  for (std::size_t j = 0; j <= m; ++j) counts[j][0] = 1;
  for (std::size_t i = 1; i <= n; ++i)
    for (std::size_t j = 1; j <= m; ++j) {
      // The largest value is one of the first sample, above all j of the second; or it is of the second.
      std::vector<double> here(half + 1, 0);
      for (std::size_t u = 0; u <= half; ++u) here[u] = counts[j - 1][u] + (u >= j ? counts[j][u - j] : 0);
      counts[j] = std::move(here);
    }
  double orders = 1;
  for (std::size_t i = 1; i <= n; ++i) orders *= static_cast<double>(m + i) / static_cast<double>(i);
  for (double& count : counts[m]) count /= orders;
  return counts[m];
}

/// The z that a standard normal variable exceeds with probability `tail`.
double normal_quantile(double tail) {
  double low = 0, high = 40;
  for (int i = 0; i < 80; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(middle / std::sqrt(2.0)) / 2 > tail ? low : high) = middle;
  }
  return low;
}

std::size_t differences_left_out(std::size_t n, std::size_t m, double confidence) {
  constexpr std::size_t exact_up_to = 50;
  if (n + m < exact_up_to) {
    const std::vector<double> probability = mann_whitney(n, m);
    return left_out(probability.size() - 1, confidence, [&](std::size_t u) { return probability[u]; });
  }
  const double both = static_cast<double>(n) * static_cast<double>(m);
  const double deviation = std::sqrt(both * static_cast<double>(n + m + 1) / 12);
  return static_cast<std::size_t>(
      std::max(0.0, both / 2 - normal_quantile((1 - confidence) / 2) * deviation));
}

template <class Enough>
int least(const Enough& enough) {
  int n = 1;
  while (!enough(static_cast<std::size_t>(n))) ++n;
  return n;
}

}  // namespace

std::optional<Interval> median_interval(std::span<const double> differences, double confidence) {
  std::vector<double> sorted(differences.begin(), differences.end());
  std::ranges::sort(sorted);
  return between(sorted, pairs_left_out(sorted.size(), confidence));
}

std::optional<Interval> shift_interval(std::span<const double> base, std::span<const double> fresh,
                                       double confidence) {
  if (base.empty() || fresh.empty()) return std::nullopt;
  std::vector<double> sorted;
  sorted.reserve(base.size() * fresh.size());
  for (const double b : base)
    for (const double f : fresh) sorted.push_back(f - b);
  std::ranges::sort(sorted);
  return between(sorted, differences_left_out(base.size(), fresh.size(), confidence));
}

int least_pairs(double confidence) {
  return least([&](std::size_t n) { return pairs_left_out(n, confidence) > 0; });
}

int least_each(double confidence) {
  return least([&](std::size_t n) { return differences_left_out(n, n, confidence) > 0; });
}

}  // namespace minitaw::record::compare
