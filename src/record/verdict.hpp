#pragma once

#include <string>
#include <vector>

#include "record/columns.hpp"

namespace minitaw::record {

/// A figure of merit needs at least this many timed steps: with fewer, the quartiles say nothing.
inline constexpr int least_samples = 3;

/// Quartiles of the samples further apart than this share of the median make a result noisy.
inline constexpr double widest_spread = 0.1;

/// Whether a result may be quoted.
struct Verdict {
  std::string reason;  ///< why it is invalid; empty: valid
  std::string doubt;   ///< what to know about a valid one: too noisy, no warm-up

  [[nodiscard]] bool valid() const { return reason.empty(); }
  /// "VALID", "VALID (doubt)" or "INVALID: reason"
  [[nodiscard]] std::string text() const;
};

/// Of one case: it ended ok, with all repetitions and enough samples, and the bytes counted are those
/// planned.
[[nodiscard]] Verdict verdict(const CaseResult& result);
/// Of a sweep: there is at least one case and all are valid.
[[nodiscard]] Verdict verdict(const std::vector<Row>& rows);

/// Cases of a sweep that are not finished.
struct Missing {
  std::size_t cases = 0;
  std::string why;  ///< "stopped by SIGTERM"
};
/// Of a sweep of which some cases are missing.
[[nodiscard]] Verdict verdict(const std::vector<Row>& rows, const Missing& missing);

[[nodiscard]] bool is_valid(const Row& row);

/// "figure of merit: 1234 tokens/s (tawpipe, 4 ranks in groups 2+2, 1024 tokens)", the fastest valid case;
/// and "RESULT: VALID" or "RESULT: INVALID: reason". Two lines.
[[nodiscard]] std::string closing_text(const std::vector<Row>& rows, const Missing& missing = {});

}  // namespace minitaw::record
