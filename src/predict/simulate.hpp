// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <vector>
#include "predict/machine.hpp"
#include "schedule/account.hpp"
#include "schedule/simulate.hpp"
#include "trace/account.hpp"

namespace minitaw::predict {
/// Traffic of an adapter in a step.
struct AdapterUse {
  double out = 0, in = 0;  ///< bytes
};

/// A step of a case on a machine.
struct Prediction {
  double seconds = 0;
  double tokens_per_s = 0;  ///< of all ranks
  double mfu = 0;           ///< matrices and causal attention over the peak; 0: the peak is not known
  trace::StepAccount account;
  std::vector<AdapterUse> adapters;         ///< of all nodes, or of one replica's if all are alike
  std::vector<schedule::Footprint> memory;  ///< per rank, likewise
  std::optional<bool> fits;                 ///< nothing: the machine does not say what it has
  schedule::Program program;                ///< that was simulated: of all ranks, or of one replica, likewise
  trace::StepSpans spans;

  [[nodiscard]] std::size_t worst_memory() const;
};

/// Simulates a step of a program whose actions have the durations `costs`. Collectives of one member stand
/// for a ring through so many replicas on other nodes.
[[nodiscard]] Prediction simulate(const schedule::Program& program, const model::Layout& layout, const Machine& machine,
    const schedule::Costs& costs, int replicas = 1);
}  // namespace minitaw::predict
