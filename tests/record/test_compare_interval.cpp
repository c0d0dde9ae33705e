#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <string>

#include "record/compare/interval.hpp"
#include "seed.hpp"

namespace minitaw::record::compare {
namespace {

using Values = std::vector<double>;

/// 1 .. n, shuffled.
Values whole_numbers(int n) {
  Values values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), 1);
  std::ranges::shuffle(values, std::mt19937(test::seed()));
  return values;
}

// Ranks of the ends as scipy.stats.binom.cdf has them: how many values k may lie outside at each end while
// cdf(k - 1, n, 1/2) <= (1 - confidence) / 2; 0: too few.
TEST(MedianInterval, ends_at_the_ranks_of_the_binomial_distribution) {
  constexpr std::array sizes = {5, 6, 7, 8, 9, 12, 15, 17, 20, 25, 30, 100, 1500};
  const std::vector<std::pair<double, std::vector<int>>> expected = {
      {0.90, {1, 1, 1, 2, 2, 3, 4, 5, 6, 8, 11, 42, 718}},
      {0.95, {0, 1, 1, 1, 2, 3, 4, 5, 6, 8, 10, 40, 712}},
      {0.99, {0, 0, 0, 1, 1, 2, 3, 3, 4, 6, 8, 37, 700}}};
  for (const auto& [confidence, ranks] : expected)
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const auto interval = median_interval(whole_numbers(sizes[i]), confidence);
      ASSERT_EQ(interval.has_value(), ranks[i] > 0) << sizes[i] << " at " << confidence;
      if (!interval) continue;
      EXPECT_EQ(interval->low, ranks[i]) << sizes[i] << " at " << confidence;
      EXPECT_EQ(interval->high, sizes[i] + 1 - ranks[i]) << sizes[i] << " at " << confidence;
      EXPECT_EQ(interval->estimate, (sizes[i] + 1) / 2.0);
    }
}

// As scipy.stats.mannwhitneyu(method="exact") has them, up to 20 + 20; the differences of these samples are
// the numbers 0 .. n m - 1.
TEST(ShiftInterval, ends_at_the_ranks_of_the_mann_whitney_distribution) {
  struct Expected {
    int n, m, at_90, at_95, at_99;
  };
  for (const Expected& e : {Expected{3, 3, -1, 0, 0},
                            {4, 4, 2, 1, 0},
                            {5, 6, 6, 4, 2},
                            {3, 9, 4, 3, 1},
                            {7, 16, 31, 27, 19},
                            {20, 20, 139, 128, 106}})
    for (const auto& [confidence, rank] :
         {std::pair(0.9, e.at_90), std::pair(0.95, e.at_95), std::pair(0.99, e.at_99)}) {
      if (rank < 0) continue;
      Values base, fresh;
      for (int i = 0; i < e.n; ++i) base.push_back(-i);
      for (int j = 0; j < e.m; ++j) fresh.push_back(e.n * j);
      const auto interval = shift_interval(base, fresh, confidence);
      ASSERT_EQ(interval.has_value(), rank > 0) << e.n << ", " << e.m << " at " << confidence;
      if (!interval) continue;
      EXPECT_EQ(interval->low, rank - 1) << e.n << ", " << e.m << " at " << confidence;
      EXPECT_EQ(interval->high, e.n * e.m - rank) << e.n << ", " << e.m << " at " << confidence;
    }
}

TEST(ShiftInterval, of_a_worked_example) {
  // The middle ones of 30 differences are 2.7 and 2.7; the interval ends at the fourth from each end.
  const auto interval =
      shift_interval(Values{1.1, 3.4, 2.2, 5.0, 0.7}, Values{2.9, 4.1, 6.3, 5.5, 3.8, 7.7}, 0.95);
  ASSERT_TRUE(interval);
  EXPECT_NEAR(interval->estimate, 2.7, 1e-12);
  EXPECT_NEAR(interval->low, -0.5, 1e-12);
  EXPECT_NEAR(interval->high, 5.5, 1e-12);
}

TEST(ShiftInterval, of_many_is_near_the_exact_one) {
  // 24 + 25 are counted exactly, 25 + 25 are approximated: one more value must not move the ends by much.
  Values base, fresh, more;
  for (int i = 0; i < 25; ++i) (i < 24 ? base : more).push_back(i), fresh.push_back(i + 0.5);
  const auto exact = shift_interval(base, fresh, 0.95);
  base.push_back(12);
  const auto near = shift_interval(base, fresh, 0.95);
  ASSERT_TRUE(exact && near);
  EXPECT_NEAR(exact->low, near->low, 1.01);
  EXPECT_NEAR(exact->high, near->high, 1.01);
}

TEST(Intervals, need_as_many_values_as_they_say) {
  EXPECT_EQ(least_pairs(0.95), 6);
  EXPECT_EQ(least_pairs(0.99), 8);
  EXPECT_EQ(least_each(0.95), 4);
  EXPECT_EQ(least_each(0.99), 5);
  EXPECT_FALSE(median_interval({}, 0.95));
  EXPECT_FALSE(shift_interval({}, Values{1}, 0.95));
  EXPECT_FALSE(shift_interval(Values{1, 2, 3}, Values{1, 2, 3}, 0.95));
}

TEST(MedianInterval, is_not_moved_by_two_of_twelve_that_are_wild) {
  Values values = whole_numbers(12);
  for (double& value : values)
    if (value > 10) value = 1e9;
  const auto interval = median_interval(values, 0.95);
  ASSERT_TRUE(interval);
  EXPECT_EQ(interval->low, 3);
  EXPECT_EQ(interval->high, 10);
}

/// Distributions around 0: what step times look like, and worse.
struct Distribution {
  std::string name;
  std::function<double(std::mt19937&)> draw;
};
std::vector<Distribution> distributions() {
  return {{"normal", [](std::mt19937& r) { return std::normal_distribution<>(0, 1)(r); }},
          {"log-normal", [](std::mt19937& r) { return std::lognormal_distribution<>(0, 1)(r) - 1; }},
          {"Cauchy", [](std::mt19937& r) { return std::cauchy_distribution<>(0, 1)(r); }},
          {"a few wild", [](std::mt19937& r) {
             const double spread = std::bernoulli_distribution(0.1)(r) ? 100 : 1;
             return std::normal_distribution<>(0, spread)(r);
           }}};
}

/// How often `covers` holds, as a share of the tries.
template <class Covers>
double share(int tries, const Covers& covers) {
  int held = 0;
  for (int i = 0; i < tries; ++i) held += covers() ? 1 : 0;
  return static_cast<double>(held) / tries;
}

constexpr int tries = 3000;
const double five_deviations = 5 * std::sqrt(0.05 * 0.95 / tries);

TEST(MedianInterval, covers_the_median_as_often_as_it_promises) {
  const unsigned seed = test::seed();
  std::mt19937 random(seed);
  // 1 - 2 cdf(k - 1, n, 1/2), whatever the distribution
  for (const auto& [n, exact] :
       {std::pair(6, 1 - 2 / 64.0), std::pair(9, 1 - 20 / 512.0), std::pair(12, 1 - 158 / 4096.0)})
    for (const Distribution& d : distributions()) {
      const double covered = share(tries, [&, n = n] {
        Values values(static_cast<std::size_t>(n));
        for (double& value : values) value = d.draw(random);
        const auto interval = median_interval(values, 0.95);
        return interval->low <= 0 && 0 <= interval->high;
      });
      EXPECT_NEAR(covered, exact, five_deviations) << d.name << ", " << n << ", seed " << seed;
    }
}

TEST(ShiftInterval, covers_the_shift_at_least_as_often_as_it_promises) {
  const unsigned seed = test::seed();
  std::mt19937 random(seed);
  constexpr double shift = 0.3;
  for (const auto& [n, m] : {std::pair(4, 4), std::pair(5, 9), std::pair(12, 12), std::pair(30, 25)})
    for (const Distribution& d : distributions()) {
      const double covered = share(tries, [&, n = n, m = m] {
        Values base(static_cast<std::size_t>(n)), fresh(static_cast<std::size_t>(m));
        for (double& value : base) value = d.draw(random);
        for (double& value : fresh) value = d.draw(random) + shift;
        const auto interval = shift_interval(base, fresh, 0.95);
        return interval->low <= shift && shift <= interval->high;
      });
      EXPECT_GT(covered, 0.95 - five_deviations) << d.name << ", " << n << ", " << m << ", seed " << seed;
      EXPECT_LT(covered, 0.985 + five_deviations) << d.name << ", " << n << ", " << m << ", seed " << seed;
    }
}

}  // namespace
}  // namespace minitaw::record::compare
