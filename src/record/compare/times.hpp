#pragma once

#include <optional>
#include <string>
#include <vector>

#include "record/compare/interval.hpp"
#include "record/compare/match.hpp"

namespace minitaw::record::compare {

/// How step times are judged.
struct TimeRule {
  double threshold = 0.05;   ///< the least relative difference that matters
  double confidence = 0.95;  ///< of the interval of the ratio
  double quantile = 0;       ///< of the samples of a block, that stands for it; 0: the fastest
};

/// What one measurement of the step time is; see docs/decisions/0011-comparing-times.md.
enum class Unit {
  pair,        ///< of files, one of each side, that were measured side by side
  repetition,  ///< of a case in one file of each side
  sample,      ///< there is one repetition only
};
[[nodiscard]] std::string name_of(Unit unit);

/// Step times of a case on both sides: logarithms of seconds. With Unit::pair, values with the same index
/// belong together and `file` says which they are.
struct Times {
  Unit unit = Unit::sample;
  std::vector<double> base, fresh;
  std::vector<std::size_t> file;
};
/// Of the valid runs. A block with more samples than its counterpart could have the faster fastest one by
/// chance alone, so as many are taken of each as the smallest has.
[[nodiscard]] Times times_of(const Match& pair, double quantile);

/// Ratio fresh / base of the step times; nothing if there are too few measurements.
[[nodiscard]] std::optional<Interval> ratio_of(const Times& times, double confidence);
/// The geometric mean of the ratios of several cases, whose measurements came together; nothing if they did
/// not.
[[nodiscard]] std::optional<Interval> mean_ratio(const std::vector<Times>& cases, double confidence);

/// "5 pairs of files, at least 6 are needed for a confidence of 0.95"
[[nodiscard]] std::string too_few(const Times& times, double confidence);

}  // namespace minitaw::record::compare
