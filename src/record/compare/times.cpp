#include "record/compare/times.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "record/quantile.hpp"
#include "record/verdict.hpp"

namespace minitaw::record::compare {

namespace {

/// Logarithms of the samples that belong together, in the order of measurement; a sample is the slowest rank.
using Block = std::vector<double>;

void add(std::vector<Block>& repetitions, const Run& run) {
  const StoredCase& c = *run.stored;
  if (!is_valid(c.row)) return;
  const std::size_t before = repetitions.size();
  for (std::size_t i = 0; i < c.seconds.size(); ++i) {
    const std::size_t at = before + static_cast<std::size_t>(c.repetition[i]);
    if (repetitions.size() <= at) repetitions.resize(at + 1);
    repetitions[at].push_back(std::log(*std::ranges::max_element(c.seconds[i])));
  }
  std::erase_if(repetitions, [](const Block& block) { return block.empty(); });
}

std::vector<Block> repetitions_of(const std::vector<Run>& file) {
  std::vector<Block> repetitions;
  for (const Run& run : file) add(repetitions, run);
  return repetitions;
}

Block joined(const std::vector<Block>& blocks) {
  Block all;
  for (const Block& block : blocks) all.insert(all.end(), block.begin(), block.end());
  return all;
}

std::size_t shortest(const std::vector<Block>& a, const std::vector<Block>& b) {
  std::size_t least = std::size_t(-1);
  for (const auto* blocks : {&a, &b})
    for (const Block& block : *blocks) least = std::min(least, block.size());
  return least;
}

/// Of the first `count` samples.
double quantile_of(const Block& block, std::size_t count, double q) {
  Block sorted(block.begin(), block.begin() + static_cast<std::ptrdiff_t>(count));
  std::ranges::sort(sorted);
  return quantile(sorted, q);
}

std::vector<double> quantiles_of(const std::vector<Block>& blocks, std::size_t count, double quantile) {
  std::vector<double> values;
  for (const Block& block : blocks) values.push_back(quantile_of(block, count, quantile));
  return values;
}

/// Files in pairs, if there are several.
Times pairs_of(const Match& pair, double quantile) {
  Times times{Unit::pair, {}, {}, {}};
  std::vector<Block> base, fresh;
  for (std::size_t f = 0; f < pair.base.size(); ++f) {
    Block a = joined(repetitions_of(pair.base[f])), b = joined(repetitions_of(pair.fresh[f]));
    if (a.empty() || b.empty()) continue;
    base.push_back(std::move(a));
    fresh.push_back(std::move(b));
    times.file.push_back(f);
  }
  const std::size_t count = shortest(base, fresh);
  times.base = quantiles_of(base, count, quantile);
  times.fresh = quantiles_of(fresh, count, quantile);
  return times;
}

/// At most a thousand of many samples, evenly over their order: the interval looks at all differences of two,
/// and more would not narrow it by anything that matters.
Block thinned(Block samples) {
  constexpr std::size_t most = 1000;
  if (samples.size() <= most) return samples;
  std::ranges::sort(samples);
  Block kept;
  for (std::size_t i = 0; i < most; ++i) kept.push_back(samples[i * samples.size() / most]);
  return kept;
}

std::vector<Block> all_of(const Runs& runs) {
  std::vector<Block> blocks;
  for (const std::vector<Run>& file : runs)
    for (Block& block : repetitions_of(file)) blocks.push_back(std::move(block));
  return blocks;
}

Interval exponential(const Interval& i) { return {std::exp(i.low), std::exp(i.estimate), std::exp(i.high)}; }

std::optional<Interval> exponential(const std::optional<Interval>& interval) {
  return interval ? std::optional(exponential(*interval)) : std::nullopt;
}

std::vector<double> differences(const Times& times) {
  std::vector<double> found;
  for (std::size_t i = 0; i < times.base.size(); ++i) found.push_back(times.fresh[i] - times.base[i]);
  return found;
}

/// Whether value i of every case was measured in the same run.
bool came_together(const std::vector<Times>& cases) {
  return !cases.empty() && std::ranges::all_of(cases, [&](const Times& times) {
    return times.unit != Unit::sample && times.unit == cases.front().unit &&
           times.file == cases.front().file && times.base.size() == cases.front().base.size() &&
           times.fresh.size() == cases.front().fresh.size();
  });
}

std::vector<double> mean(const std::vector<Times>& cases, std::vector<double> Times::* side) {
  std::vector<double> sum((cases.front().*side).size(), 0);
  for (const Times& times : cases)
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += (times.*side)[i];
  for (double& value : sum) value /= static_cast<double>(cases.size());
  return sum;
}

}  // namespace

std::string name_of(Unit unit) {
  switch (unit) {
  case Unit::pair:
    return "pairs of files";
  case Unit::repetition:
    return "repetitions";
  case Unit::sample:
    return "samples";
  }
  throw LogicError("unit without a name");
}

Times times_of(const Match& pair, double quantile) {
  if (pair.base.size() > 1 && pair.base.size() == pair.fresh.size()) return pairs_of(pair, quantile);
  const std::vector<Block> base = all_of(pair.base), fresh = all_of(pair.fresh);
  if (base.size() < 2 || fresh.size() < 2)
    return {Unit::sample, thinned(joined(base)), thinned(joined(fresh)), {}};
  const std::size_t count = shortest(base, fresh);
  return {Unit::repetition, quantiles_of(base, count, quantile), quantiles_of(fresh, count, quantile), {}};
}

std::optional<Interval> ratio_of(const Times& times, double confidence) {
  return exponential(times.unit == Unit::pair ? median_interval(differences(times), confidence)
                                              : shift_interval(times.base, times.fresh, confidence));
}

std::optional<Interval> mean_ratio(const std::vector<Times>& cases, double confidence) {
  if (!came_together(cases)) return std::nullopt;
  return ratio_of({cases.front().unit, mean(cases, &Times::base), mean(cases, &Times::fresh), {}},
                  confidence);
}

std::string too_few(const Times& times, double confidence) {
  if (times.unit == Unit::pair)
    return fmt::format("{} pairs of files, at least {} are needed for a confidence of {}", times.base.size(),
                       least_pairs(confidence), confidence);
  return fmt::format("{} and {} {}, at least {} each are needed for a confidence of {}", times.base.size(),
                     times.fresh.size(), name_of(times.unit), least_each(confidence), confidence);
}

}  // namespace minitaw::record::compare
