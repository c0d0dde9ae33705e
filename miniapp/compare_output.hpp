#pragma once

#include <string>

#include "record/compare/compare.hpp"

namespace minitaw::app {

/// What two files were compared with: shown beside the figures.
struct CompareHeading {
  std::string base, fresh;  ///< "a.h5", "a1.h5 and 11 more"
};

/// For people: notes behind #, one aligned row per case, the closing line.
[[nodiscard]] std::string compare_text(const record::compare::Comparison& comparison,
                                       const CompareHeading& heading);

/// One JSON object; figures that do not exist are null.
[[nodiscard]] std::string compare_json(const record::compare::Comparison& comparison,
                                       const CompareHeading& heading);

/// JUnit's XML as Jenkins and GitLab read it: a suite for each case, a test for each thing compared. What is
/// AMBIGUOUS counts as skipped, with `strict` as failed.
[[nodiscard]] std::string compare_junit(const record::compare::Comparison& comparison, bool strict);

/// A heading, a table and the reasons, for the summary of a CI job or a note on a merge request.
[[nodiscard]] std::string compare_markdown(const record::compare::Comparison& comparison,
                                           const CompareHeading& heading);

/// "new / base 1.003, from 0.991 to 1.014 (3 cases, geometric mean)", or why there is none.
[[nodiscard]] std::string mean_text(const record::compare::Comparison& comparison);

/// "threshold 5 %, confidence 95 %"
[[nodiscard]] std::string rules_text(const record::compare::Rules& rules);

/// Of several aspects of a case the one that matters most.
[[nodiscard]] const record::compare::Aspect& worst_of(const record::compare::CaseComparison& c,
                                                      std::initializer_list<const char*> names);

}  // namespace minitaw::app
