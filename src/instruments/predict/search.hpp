// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>
#include "instruments/predict/predict.hpp"

namespace minitaw::predict {
/// A way to spread the same sequences of a step over a machine.
struct Candidate {
  Case settings;
  Floor floor{};
  std::optional<Prediction> prediction{};  ///< without program and spans
  /// Why it is not predicted: it does not fit ("memory"), its "adapter" or its "computing" alone
  /// takes longer than the step of the last of the best, its number of "groups" makes no
  /// difference, there was no "time".
  std::string why{};
};

/// Where a search is: first it bounds the step of every candidate from below, then it predicts the
/// promising ones.
struct SearchProgress {
  std::string_view part;
  std::size_t done = 0, of = 0;
  const Candidate* best = nullptr;  ///< so far; nullptr: none
};

struct SearchOptions {
  std::size_t best = 10;  ///< so many are wanted
  double seconds = 60;    ///< small programs come first; what does not end in time is left out
  /// Told before each candidate; the search ends with what it has if this returns false.
  std::function<bool(const SearchProgress&)> go_on = [](const SearchProgress&) { return true; };
};

/// Tries what fits ranks and layers: all schedules with prefetch, rails, slices and what ranks
/// keep, replicas, ranks that share a sequence, groups of a node and of half a node, micro-batches,
/// recomputation; for the sequences of a step of `base`. Then other values of prefetch and
/// grad_ticks for the best. Returns all candidates, those predicted first, by their seconds.
[[nodiscard]] std::vector<Candidate> search(
    const Case& base, const Machine& machine, const SearchOptions& options);
}  // namespace minitaw::predict
