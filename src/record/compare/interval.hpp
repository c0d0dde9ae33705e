#pragma once

#include <optional>
#include <span>

/// How much two sets of measurements differ, as intervals that hold for any distribution: step times of a
/// shared machine are far from normal, and a few of them are always wild.
namespace minitaw::record::compare {

/// Of a difference: what was estimated, and where the true one lies with at least the confidence asked for.
struct Interval {
  double low, estimate, high;
};

/// The median of `differences`, of pairs that are independent of each other. The interval ends at order
/// statistics that follow from the binomial distribution alone (the sign test turned round: Thompson, "On
/// confidence ranges for the median", Annals of Mathematical Statistics 7, 1936; Hollander, Wolfe and
/// Chicken, "Nonparametric Statistical Methods", section 3.6). Of 12 pairs two on each side may be wrong by
/// any amount without moving the interval beyond the others. Nothing if there are too few for the confidence:
/// six are needed for 0.95.
[[nodiscard]] std::optional<Interval> median_interval(std::span<const double> differences, double confidence);

/// By how much `fresh` is shifted against `base`, two independent samples of the same shape: the median of
/// all differences between one of each (Hodges and Lehmann, "Estimates of location based on rank tests",
/// Annals of Mathematical Statistics 34, 1963), and the differences at which the Mann-Whitney test turns
/// (Hollander, Wolfe and Chicken, sections 4.2 and 4.3); by its normal approximation from 50 values on.
/// Nothing if they are too few: four each are needed for 0.95.
[[nodiscard]] std::optional<Interval> shift_interval(std::span<const double> base,
                                                     std::span<const double> fresh, double confidence);

/// How many pairs median_interval() needs, and how many values of each side shift_interval().
[[nodiscard]] int least_pairs(double confidence);
[[nodiscard]] int least_each(double confidence);

}  // namespace minitaw::record::compare
