#include "record/compare/aspects.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "record/verdict.hpp"

namespace minitaw::record::compare {

namespace {

std::vector<Run> all_of(const Runs& runs) {
  std::vector<Run> all;
  for (const std::vector<Run>& file : runs) all.insert(all.end(), file.begin(), file.end());
  return all;
}

const Run* first_invalid(const std::vector<Run>& runs) {
  const auto at = std::ranges::find_if(runs, [](const Run& run) { return !is_valid(run.stored->row); });
  return at == runs.end() ? nullptr : &*at;
}

double median(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// Of the valid runs; NaN if there is none or it is not known.
double bytes_of(const Runs& runs, const std::string& column) {
  std::vector<double> values;
  for (const Run& run : all_of(runs))
    if (is_valid(run.stored->row)) values.push_back(static_cast<double>(run.stored->row.integer(column)));
  return median(values);
}

std::string mebibytes(double bytes) { return fmt::format("{:.4g} MiB", bytes / (1024.0 * 1024.0)); }

/// Outcome, word and reason for a number of bytes that should not grow.
void judge_bytes(Aspect& aspect, bool matters) {
  if (!std::isfinite(aspect.base) || !std::isfinite(aspect.fresh)) return;
  const bool more = aspect.fresh > aspect.base;
  aspect.outcome = !matters ? Outcome::same : more ? Outcome::worse : Outcome::better;
  aspect.word = !matters ? "SAME" : more ? "MORE" : "LESS";
  if (matters)
    aspect.reason = fmt::format("{} {} -> {}", aspect.name, mebibytes(aspect.base), mebibytes(aspect.fresh));
}

/// How far losses of the same computation may lie apart, relatively: what `run` allows against the serial
/// reference, in the first step; a hundred times that after steps that feed the differences back.
struct LossTolerance {
  double first, last;
};
LossTolerance tolerance_of(const std::string& dtype) {
  return dtype == "bf16" ? LossTolerance{1e-3, 1e-2} : LossTolerance{1e-6, 1e-4};
}

Aspect compare_loss(const std::string& name, double base, double fresh, double tolerance) {
  Aspect aspect{name, Outcome::same, "SAME", "", base, fresh, "nat/token", {}};
  const double difference = std::abs(fresh - base);
  if (difference <= tolerance * std::abs(base) || !std::isfinite(base)) return aspect;
  aspect.outcome = Outcome::worse;
  aspect.word = "WRONG";
  aspect.reason =
      fmt::format("{} {:.9g} -> {:.9g} nat/token, more than {:.0e} apart", name, base, fresh, tolerance);
  return aspect;
}

/// Samples of one repetition scatter less than runs do: two runs of the same program came out SLOWER or
/// FASTER in up to 40 of 100 comparisons on a busy machine (docs/decisions/0011-comparing-times.md).
void doubt_single_runs(Aspect& aspect) {
  if (aspect.outcome != Outcome::worse && aspect.outcome != Outcome::better) return;
  aspect.outcome = Outcome::ambiguous;
  aspect.word = "AMBIGUOUS";
  aspect.reason += "; one repetition of each does not show how much runs differ";
}

bool contains(const std::vector<std::string>& list, const std::string& name) {
  return std::ranges::find(list, name) != list.end();
}

/// The valid run that has taken the most steps.
const StoredCase* longest(const Runs& runs) {
  const StoredCase* found = nullptr;
  for (const Run& run : all_of(runs))
    if (is_valid(run.stored->row) && (!found || run.stored->losses.size() > found->losses.size()))
      found = run.stored;
  return found;
}

}  // namespace

Aspect compare_verdicts(const Match& match) {
  const std::vector<Run> base = all_of(match.base), fresh = all_of(match.fresh);
  const Run* was = first_invalid(base);
  const Run* is = first_invalid(fresh);
  Aspect aspect{.name = "verdict"};
  const auto why = [](const Run& run) { return run.stored->row.text("verdict") + " in " + run.file->path; };
  if (was != nullptr && is != nullptr) {
    aspect.word = "INVALID";
    aspect.reason = "invalid on both sides: " + why(*is);
    return aspect;
  }
  aspect.outcome = is != nullptr ? Outcome::worse : was != nullptr ? Outcome::better : Outcome::same;
  aspect.word = is != nullptr ? "BROKEN" : was != nullptr ? "REPAIRED" : "VALID";
  if (is != nullptr) aspect.reason = why(*is);
  if (is == nullptr && was != nullptr) aspect.reason = why(*was);
  return aspect;
}

Aspect compare_times(const Times& times, const TimeRule& rule) {
  Aspect aspect{.name = "time", .units = "s"};
  if (times.base.empty() || times.fresh.empty()) return aspect;
  const std::optional<Interval> ratio = ratio_of(times, rule.confidence);
  aspect = judge(ratio, rule);
  if (!ratio) aspect.reason = too_few(times, rule.confidence);
  if (times.unit == Unit::sample) doubt_single_runs(aspect);
  aspect.base = std::exp(median(times.base));
  aspect.fresh = std::exp(median(times.fresh));
  return aspect;
}

Aspect compare_memory(const Match& match, const std::string& name, const std::string& column,
                      double threshold, double floor) {
  Aspect aspect{.name = name,
                .base = bytes_of(match.base, column),
                .fresh = bytes_of(match.fresh, column),
                .units = "B"};
  const double difference = std::abs(aspect.fresh - aspect.base);
  const bool known = aspect.base > 0 && aspect.fresh > 0;  // older files have 0 for what they do not know
  if (known) judge_bytes(aspect, difference > threshold * aspect.base && difference > floor);
  return aspect;
}

Aspect compare_bytes(const Match& match, const std::string& name, const std::string& column) {
  Aspect aspect{.name = name,
                .base = bytes_of(match.base, column),
                .fresh = bytes_of(match.fresh, column),
                .units = "B/step"};
  judge_bytes(aspect, aspect.base != aspect.fresh);
  return aspect;
}

std::vector<Aspect> compare_losses(const Match& match) {
  const StoredCase* base = longest(match.base);
  const StoredCase* fresh = longest(match.fresh);
  const bool comparable = base && fresh && !base->losses.empty() && !fresh->losses.empty();
  for (const char* name : {"dtype", "seed", "learning_rate"})
    if (!comparable || contains(match.differs, name))
      return {{.name = "first loss", .units = "nat/token"}, {.name = "last loss", .units = "nat/token"}};
  const LossTolerance tolerance = tolerance_of(base->row.text("dtype"));
  const std::size_t last = std::min(base->losses.size(), fresh->losses.size()) - 1;
  return {compare_loss("first loss", base->losses[0], fresh->losses[0], tolerance.first),
          compare_loss("last loss", base->losses[last], fresh->losses[last], tolerance.last)};
}

}  // namespace minitaw::record::compare
