#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "record/columns.hpp"
#include "record/provenance.hpp"

/// What of docs/run-rules.md the program can check by itself.
namespace minitaw::record {

/// inputs/acceptance/NAME.toml as it was when the program was built.
struct NamedDeck {
  std::string name, text;
};
[[nodiscard]] const std::vector<NamedDeck>& acceptance_decks();

/// A result of these sizes needs so many seconds of timed steps in every case (small: any).
inline constexpr double least_timed_seconds = 10;

/// The fastest valid case of a sequence length.
struct Best {
  std::int64_t seq = 0;
  double tokens = 0;   ///< of a step
  double seconds = 0;  ///< median of its steps
  std::string schedule;
};

/// Whether a result is one of a named size, by the rules.
struct Official {
  std::string size;         ///< small, medium or large; empty: the model is that of none
  std::string reason;       ///< why it is not official; empty: it is
  std::vector<Best> bests;  ///< a line for each sequence length of the size; empty if one has no valid case

  [[nodiscard]] bool yes() const { return reason.empty(); }
  /// Tokens of a step of every length over the seconds of these steps, token/s; NaN without bests.
  [[nodiscard]] double rate() const;
  /// "official: yes (medium)" or "official: no: reason", and with bests how the rate of the size comes about.
  [[nodiscard]] std::string text() const;
};
[[nodiscard]] Official official(const std::vector<Row>& rows, const std::vector<Provenance>& sessions);

}  // namespace minitaw::record
