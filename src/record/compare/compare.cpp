#include "record/compare/compare.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "record/compare/aspects.hpp"
#include "record/compare/notes.hpp"

namespace minitaw::record::compare {

namespace {

/// The largest resident set and the device hold more than the step: libraries, the launcher, whatever the
/// system gave. Below this many bytes a difference says nothing.
constexpr double noise_of_process = 32.0 * 1024 * 1024;

CaseComparison compare_case(const Match& match, const Rules& rules) {
  const Row& row = first_of(match.base).stored->row;
  CaseComparison found{row, label_of(row), match.differs, {}, times_of(match, rules.time.quantile)};
  found.aspects = {
      compare_verdicts(match),
      compare_times(found.times, rules.time),
      compare_memory(match, "memory", "memory_measured", rules.memory_threshold, 0),
      compare_memory(match, "process peak", "process_peak", rules.memory_threshold, noise_of_process),
      compare_memory(match, "device memory", "device_used", rules.memory_threshold, noise_of_process),
      compare_bytes(match, "bytes inside", "bytes_inside"),
      compare_bytes(match, "bytes between", "bytes_between"),
  };
  for (Aspect& loss : compare_losses(match)) found.aspects.push_back(std::move(loss));
  return found;
}

int weight(Outcome outcome) {
  constexpr std::array order = {Outcome::none, Outcome::same, Outcome::better, Outcome::ambiguous,
                                Outcome::worse};
  return static_cast<int>(std::ranges::find(order, outcome) - order.begin());
}

/// Labels say what cases of most sweeps differ in; what else tells the cases of this one apart is added, so
/// that no two of them are equal.
void distinguish(std::vector<CaseComparison>& cases) {
  constexpr std::array said = {"schedule", "ranks",       "groups",        "group_count", "replicas",
                               "seq",      "micro_batch", "micro_batches", "parameters",  "identity",
                               "steps",    "warmup",      "repeats"};
  for (std::size_t i = 0; i < columns().size(); ++i) {
    const Column& column = columns()[i];
    if (!column.setting || std::ranges::find(said, column.name) != said.end()) continue;
    const auto differs = [&](const CaseComparison& c) { return c.row.cells()[i] != cases[0].row.cells()[i]; };
    if (std::ranges::none_of(cases, differs)) continue;
    for (CaseComparison& c : cases) c.label += fmt::format(", {} {}", column.name, to_text(c.row.cells()[i]));
  }
}

/// What the interval cannot know.
void warn_of_single_runs(Comparison& comparison) {
  const auto single = [](const CaseComparison& c) {
    return c.times.unit == Unit::sample && c.aspect("time").ratio;
  };
  if (std::ranges::any_of(comparison.cases, single))
    comparison.notes.emplace_back("there is one repetition only: the interval knows how samples of a run "
                                  "scatter, not how runs differ; measure "
                                  "base and new in turn, in several files of each");
}

std::optional<Interval> mean_of(const std::vector<CaseComparison>& cases, double confidence) {
  std::vector<Times> times;
  for (const CaseComparison& c : cases)
    if (!c.times.base.empty() && !c.times.fresh.empty()) times.push_back(c.times);
  return mean_ratio(times, confidence);
}

std::string percent(double share) { return fmt::format("{:.4g} %", 100 * share); }

}  // namespace

std::string name_of(Outcome outcome) {
  switch (outcome) {
  case Outcome::same:
    return "same";
  case Outcome::better:
    return "better";
  case Outcome::worse:
    return "worse";
  case Outcome::ambiguous:
    return "ambiguous";
  case Outcome::none:
    return "none";
  }
  throw LogicError("outcome without a name");
}

bool more_serious(Outcome a, Outcome b) { return weight(a) > weight(b); }

const Aspect& CaseComparison::aspect(const std::string& name) const {
  const auto at = std::ranges::find(aspects, name, &Aspect::name);
  if (at == aspects.end()) throw LogicError(fmt::format("a comparison has no aspect \"{}\"", name));
  return *at;
}

const Aspect& CaseComparison::worst() const {
  return *std::ranges::max_element(aspects, {}, [](const Aspect& aspect) { return weight(aspect.outcome); });
}

Outcome Comparison::outcome() const {
  Outcome found = Outcome::none;
  for (const CaseComparison& c : cases) {
    Outcome outcome = c.worst().outcome;
    // Less memory alone, or a case that is valid again, makes nothing faster.
    if (outcome == Outcome::better && c.aspect("time").outcome != Outcome::better) outcome = Outcome::same;
    if (more_serious(outcome, found)) found = outcome;
  }
  return found;
}

std::string Comparison::text() const {
  const Outcome all = outcome();
  if (all == Outcome::same || all == Outcome::none) return "SAME";
  if (all == Outcome::better) return "FASTER";
  const auto has = [all](const CaseComparison& c) { return c.worst().outcome == all; };
  const auto first = std::ranges::find_if(cases, has);
  return fmt::format("{}: {} of {} case{}, first case {} ({}): {}",
                     all == Outcome::worse ? "REGRESSION" : "AMBIGUOUS", std::ranges::count_if(cases, has),
                     cases.size(), cases.size() == 1 ? "" : "s", first->row.integer("case"), first->label,
                     first->worst().reason);
}

Comparison compare(const Side& base, const Side& fresh, const Rules& rules) {
  const Matches matches = match(base, fresh, rules.allowed);
  Comparison found{rules, {}, matches.only_base, matches.only_fresh, {}, notes_on(base, fresh, matches)};
  for (const Match& pair : matches.both) found.cases.push_back(compare_case(pair, rules));
  if (found.outcome() == Outcome::none)
    throw InputError(fmt::format("{} and {} have no case in common that is valid on either side",
                                 base.front().path, fresh.front().path));
  distinguish(found.cases);
  warn_of_single_runs(found);
  found.mean = mean_of(found.cases, rules.time.confidence);
  return found;
}

Aspect judge(const std::optional<Interval>& ratio, const TimeRule& rule) {
  Aspect aspect{
      .name = "time", .outcome = Outcome::ambiguous, .word = "AMBIGUOUS", .units = "s", .ratio = ratio};
  if (!ratio) return aspect;
  const double slow = 1 + rule.threshold, fast = 1 / slow;
  const std::string interval =
      fmt::format("new / base = {:.4g}, from {:.4g} to {:.4g}", ratio->estimate, ratio->low, ratio->high);
  aspect.reason = "step time: " + interval;
  if (ratio->low > slow) {
    aspect.outcome = Outcome::worse;
    aspect.word = "SLOWER";
  } else if (ratio->high < fast) {
    aspect.outcome = Outcome::better;
    aspect.word = "FASTER";
  } else if (ratio->low >= fast && ratio->high <= slow) {
    aspect.outcome = Outcome::same;
    aspect.word = "SAME";
    aspect.reason.clear();
  } else {
    aspect.reason += fmt::format("; neither within {} nor beyond", percent(rule.threshold));
  }
  return aspect;
}

}  // namespace minitaw::record::compare
