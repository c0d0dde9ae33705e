#pragma once

#include <string>
#include <vector>

#include "record/columns.hpp"

namespace minitaw::record {

/// A figure of merit needs at least this many timed steps: with fewer, the quartiles say nothing.
inline constexpr int least_samples = 3;

/// Whether a result may be quoted.
struct Verdict {
  std::string reason;  ///< empty: valid

  [[nodiscard]] bool valid() const { return reason.empty(); }
  /// "VALID" or "INVALID: reason"
  [[nodiscard]] std::string text() const { return valid() ? "VALID" : "INVALID: " + reason; }
};

/// Of one case: it ended ok, with enough samples, and the bytes counted are those planned.
[[nodiscard]] Verdict verdict(const CaseResult& result);
/// Of a sweep: there is at least one case and all are valid.
[[nodiscard]] Verdict verdict(const std::vector<Row>& rows);

/// "figure of merit: 1234 tokens/s (tawpipe, 4 ranks in groups 2+2, 1024 tokens)", the fastest valid case;
/// and "RESULT: VALID" or "RESULT: INVALID: reason". Two lines.
[[nodiscard]] std::string closing_text(const std::vector<Row>& rows);

}  // namespace minitaw::record
