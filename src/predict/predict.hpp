#pragma once

#include <vector>

#include "deck/deck.hpp"
#include "predict/machine.hpp"
#include "schedule/account.hpp"
#include "schedule/simulate.hpp"
#include "trace/timeline.hpp"

namespace minitaw::predict {

/// What went through an adapter in a step.
struct AdapterUse {
  double out = 0, in = 0;  ///< bytes
};

/// A step of a case on a machine.
struct Prediction {
  double seconds = 0;
  double tokens_per_s = 0;  ///< of all ranks
  double mfu = 0;           ///< matrices and causal attention over the peak; 0: the peak is not known
  trace::StepAccount account;
  std::vector<AdapterUse> adapters;         ///< of all nodes, or of one replica's if all copies are alike
  std::vector<schedule::Footprint> memory;  ///< per rank, likewise
  schedule::Program program;                ///< that was simulated: of all ranks, or of one replica, likewise
  trace::StepSpans spans;

  [[nodiscard]] std::size_t worst_memory() const;
};

/// Simulates one step on the machine. A run's steps begin together, behind a barrier, so all are alike.
/// Throws InputError if the case has more ranks than the machine, or a precision that its file does not rate.
[[nodiscard]] Prediction predict(const Case& c, const Machine& machine);

/// What a step takes at least: without waits, and what it asks for.
struct Floor {
  std::size_t memory = 0;  ///< bytes, of the rank that needs most
  double compute = 0;      ///< seconds, of the rank that computes most
  double adapter = 0;      ///< seconds, of the node that sends or receives most, over all of its adapters
  [[nodiscard]] double seconds() const { return compute > adapter ? compute : adapter; }
};
[[nodiscard]] Floor floor_of(const Case& c, const Machine& machine);

/// The same for a program and durations of its actions that are given. Collectives of a single member stand
/// for a ring through so many replicas of the program on other nodes, which do the same at the same time.
[[nodiscard]] Prediction simulate(const schedule::Program& program, const model::Layout& layout,
                                  const Machine& machine, const schedule::Costs& costs, int replicas = 1);

}  // namespace minitaw::predict
