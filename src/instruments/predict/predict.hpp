// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "deck/deck.hpp"
#include "instruments/predict/machine.hpp"
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
  double mfu = 0;  ///< matrices and causal attention over the peak; 0: the peak is not known
  trace::StepAccount account;
  std::vector<AdapterUse> adapters;         ///< of all nodes, or of one replica's if all are alike
  std::vector<schedule::Footprint> memory;  ///< per rank, likewise
  std::optional<bool> fits;                 ///< nothing: the machine does not say what it has
  schedule::Program program;  ///< that was simulated: of all ranks, or of one replica, likewise
  trace::StepSpans spans;

  [[nodiscard]] std::size_t worst_memory() const;
};

/// Simulates a step of a program whose actions have the durations `costs`. Collectives of one
/// member stand for a ring through so many replicas on other nodes. `micro_batch_per_rank`: B of
/// each rank, instead of the layout's.
[[nodiscard]] Prediction simulate(const schedule::Program& program,
    const model::Layout& layout,
    const Machine& machine,
    const schedule::Costs& costs,
    int replicas = 1,
    const std::vector<std::int64_t>& micro_batch_per_rank = {});
/// Simulates one step on the machine. A run's steps begin together, after a barrier, so all are
/// alike. Throws InputError if the case has more ranks than the machine, or a precision that its
/// file does not rate.
[[nodiscard]] Prediction predict(const Case& c, const Machine& machine);
/// The same, but nothing, in less time, if some rank lacks memory.
[[nodiscard]] std::optional<Prediction> predict_fitting(const Case& c, const Machine& machine);

/// Lower bounds of a step: what it needs if nothing ever waits.
struct Floor {
  std::size_t memory = 0;    ///< bytes, of the rank that needs most
  std::optional<bool> fits;  ///< nothing: the machine does not say what it has
  double compute = 0;        ///< seconds, of the rank that computes most
  /// Seconds, of the node that sends or receives most, over all of its adapters.
  double adapter = 0;

  [[nodiscard]] double seconds() const { return compute > adapter ? compute : adapter; }
};

/// Of cases that have one program: they differ in recomputation alone.
[[nodiscard]] std::vector<Floor> floors_of(const std::vector<Case>& cases, const Machine& machine);
/// Returns whether every replica has nodes of its own, with only one switch between them. All
/// replicas then do the same at the same time, and each sends to the next one what it gets from the
/// one before: one is simulated.
[[nodiscard]] bool replicas_are_alike(const Case& c, const Machine& machine);
}  // namespace minitaw::predict
