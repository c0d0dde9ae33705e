// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <optional>
#include <string>
#include <vector>
#include "instruments/predict/predict.hpp"

namespace minitaw::predict {
/// A way to spread the same sequences of a step over a machine.
struct Candidate {
  Case asked;
  Floor floor{};
  std::optional<Prediction> prediction{};  ///< without program and spans
  /// Why it is not predicted: such candidates "do not fit".
  std::string why{};
};

/// Tries what fits ranks and layers: all schedules with prefetch, rails, slices and what ranks
/// keep, replicas, ranks that share a sequence, groups of a node and of half a node, micro-batches,
/// recomputation; for the sequences of a step of `base`. It first bounds the step of every
/// candidate from below, then predicts those that could be among the `best`. Returns all
/// candidates, those predicted first, by their seconds. What is not begun in that many `seconds` is
/// left out.
std::vector<Candidate> search(
    const Case& base, const Machine& machine, std::size_t best, double seconds);
}  // namespace minitaw::predict
