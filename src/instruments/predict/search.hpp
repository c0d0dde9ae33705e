// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>
#include "instruments/predict/predict.hpp"

namespace minitaw::predict {
using Clock = std::chrono::steady_clock;
inline constexpr double never = std::numeric_limits<double>::infinity();

/// The moment in so many seconds.
inline Clock::time_point deadline_in(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

struct SearchOptions {
  bool shares_sequences = true;         ///< ranks may share a sequence
  std::vector<std::string> families{};  ///< nothing: all
  /// Seconds of a step: what is not clearly faster than that, and than what was found, is of no
  /// interest, in no family. Nothing: the fastest of each family is searched for.
  std::optional<double> faster_than{};
  Clock::time_point deadline = Clock::time_point::max();
};

/// The fastest way that was found to spread the sequences of a step by one family: the schedules of
/// one name.
struct Found {
  std::string family;
  Case asked{};
  std::optional<Prediction> prediction{};  ///< without spans
  std::string why{};    ///< it has none: "cannot be run", "does not fit", "slower" or "not tried"
  int tried = 0;        ///< cases that were planned
  bool in_time = true;  ///< all that it wanted to try was tried
};

/// Searches in each family for the fastest case of the sequences of a step of `base` that fits the
/// machine. One setting after the other gets its best value, until none is better: replicas,
/// micro-batches, recomputation, options of the schedule (what ranks keep, chunks, slices, rails),
/// ranks that share a sequence, groups. Returns these families, the fastest first.
std::vector<Found> search(
    const Case& base, const Machine& machine, const SearchOptions& options = {});
}  // namespace minitaw::predict
