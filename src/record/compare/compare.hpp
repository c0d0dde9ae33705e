#pragma once

#include <limits>
#include <set>
#include <string>
#include <vector>

#include "record/compare/match.hpp"
#include "record/compare/times.hpp"

namespace minitaw::record::compare {

/// What became of a figure from the base to the new side.
enum class Outcome {
  same,
  better,
  worse,      ///< a regression
  ambiguous,  ///< the measurements do not say
  none,       ///< there is nothing to compare
};
[[nodiscard]] std::string name_of(Outcome outcome);
/// Regressions first, then what is open, then what is better, then what is the same.
[[nodiscard]] bool more_serious(Outcome a, Outcome b);

/// How two sides are compared.
struct Rules {
  TimeRule time;
  double memory_threshold = 0.05;  ///< least relative difference that matters
  std::set<std::string> allowed;   ///< names of what_matters() that may differ
};

/// One thing that is compared of a case. `base` and `fresh` are NaN where they are no numbers.
struct Aspect {
  std::string name = {};  ///< "time", "memory", ...
  Outcome outcome = Outcome::none;
  std::string word = {};    ///< "SLOWER"
  std::string reason = {};  ///< one sentence, for outcomes that need one
  double base = std::numeric_limits<double>::quiet_NaN();
  double fresh = std::numeric_limits<double>::quiet_NaN();
  std::string units = {};
  std::optional<Interval> ratio = {};  ///< of the time: new / base
};

/// Everything about one case.
struct CaseComparison {
  Row row;            ///< of the first base file
  std::string label;  ///< label_of(), and what else tells it from the others
  std::vector<std::string> differs;
  std::vector<Aspect> aspects;  ///< always the same ones in the same order
  Times times;

  [[nodiscard]] const Aspect& aspect(const std::string& name) const;
  /// The worst of all aspects.
  [[nodiscard]] const Aspect& worst() const;
};

struct Comparison {
  Rules rules;
  std::vector<CaseComparison> cases;
  std::vector<std::string> only_base, only_fresh;  ///< labels
  std::optional<Interval> mean;                    ///< geometric mean of the ratios of all cases
  std::vector<std::string> notes;                  ///< what differs without mattering; one line each

  /// Of all cases: a regression counts most, then an ambiguous one, then one that is faster.
  [[nodiscard]] Outcome outcome() const;
  /// "SAME", "REGRESSION: 1 of 6 cases slower, first tawpipe, ...: ..."
  [[nodiscard]] std::string text() const;
};

/// Throws InputError if the two cannot be compared.
[[nodiscard]] Comparison compare(const Side& base, const Side& fresh, const Rules& rules);

/// What a ratio means: SAME, FASTER and SLOWER where its whole interval says so.
[[nodiscard]] Aspect judge(const std::optional<Interval>& ratio, const TimeRule& rule);

}  // namespace minitaw::record::compare
