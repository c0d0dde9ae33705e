#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "deck/settings.hpp"
#include "record/columns.hpp"

namespace minitaw::record {

/// One repetition of a case.
struct Run {
  std::size_t index = 0;  ///< of the case in the deck
  int repetition = 0;
  friend bool operator==(const Run&, const Run&) = default;
};

struct TodoOptions {
  bool retry = false;                         ///< run those again that ended wrong, oom, timeout or error
  std::optional<std::uint64_t> interleave{};  ///< seed of a random order over all repetitions of all cases
  std::string interrupted{};  ///< identity of the case that ran when the last job died; it comes last
};

/// What a sweep has still to do.
struct Todo {
  std::vector<Run> runs;           ///< in order
  std::vector<std::string> notes;  ///< what is not run again and why, one sentence each
};
/// `rows` is what the result file holds. Repetitions of a case that are missing are run; a case that failed
/// is left alone unless `retry`, one that was skipped for want of memory is tried again.
[[nodiscard]] Todo make_todo(const std::vector<deck::Case>& cases, const std::vector<Row>& rows,
                             const TodoOptions& options);

/// Repetitions of its case that a row holds.
[[nodiscard]] int repetitions_of(const Row& row);
/// Whether a row needs no further run: ended ok, with all repetitions.
[[nodiscard]] bool is_finished(const Row& row);

}  // namespace minitaw::record
