// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <limits>
#include "case/case.hpp"
#include "instruments/predict/machine.hpp"
#include "trace/account.hpp"

namespace minitaw::predict {
/// Bytes of a step that the adapters carry.
struct AdapterBytes {
  double busiest = 0;  ///< of the busiest direction of any adapter
  double between = 0;  ///< of all together, each byte once
};

/// A step of a case on a machine.
struct Prediction {
  double seconds = 0;
  double tokens_per_s = 0;  ///< of all ranks
  /// Matrices and causal attention over the peak; NaN: the peak is not known.
  double mfu = std::numeric_limits<double>::quiet_NaN();
  trace::StepAccount account{};
  /// Seconds that transfers occupy lanes of a rank, the mean over ranks; waits for the other side
  /// count, as in NCCL.
  double transfer = 0;
  AdapterBytes traffic{};
  std::size_t memory = 0;    ///< bytes, of the rank that needs most
  trace::StepSpans spans{};  ///< of all ranks, or of one replica if all are alike
};

/// What a simulation executes.
struct SimulatedStep {
  Plan plan;
  Machine machine;
  /// All replicas are simulated; else one, whose sums over replicas stand for a ring through other
  /// nodes.
  bool all_replicas = true;

  int replicas() const { return all_replicas ? plan->program->replicas : 1; }
};

/// Simulates a step whose actions have the durations `costs`.
Prediction simulate(const SimulatedStep& step, const schedule::Costs& costs);
/// Simulates one step on the machine. A run's steps begin together, after a barrier, so all are
/// alike. Throws InputError for a precision that the machine's file does not rate.
Prediction predict(const SimulatedStep& step);
/// The same of the replicas that differ. Throws InputError also if the case has more ranks than the
/// machine.
Prediction predict(const Plan& plan, const Machine& machine);

/// Lower bounds of a step: what it needs if nothing ever waits.
struct Floor {
  std::size_t memory = 0;  ///< bytes, of the rank that needs most
  double compute = 0;      ///< seconds, of the rank that computes most
  /// Seconds, of the node that sends or receives most over all of its adapters, and of all nodes
  /// together.
  double network = 0;

  double seconds() const { return compute > network ? compute : network; }
};

Floor floor_of(const Plan& plan, const Machine& machine);
/// Returns whether every replica has nodes of its own. All replicas then do the same at the same
/// time, and each sends to the next one what it gets from the one before: one is simulated.
bool replicas_are_alike(const Case& c, const Machine& machine);
}  // namespace minitaw::predict
