// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "deck/deck.hpp"
#include "predict/simulate.hpp"

namespace minitaw::predict {
/// Simulates one step on the machine. A run's steps begin together, behind a barrier, so all are alike.
/// Throws InputError if the case has more ranks than the machine, or a precision that its file does not rate.
[[nodiscard]] Prediction predict(const Case& c, const Machine& machine);

/// Lower bounds of a step: what it needs if nothing ever waits.
struct Floor {
  std::size_t memory = 0;    ///< bytes, of the rank that needs most
  std::optional<bool> fits;  ///< nothing: the machine does not say what it has
  double compute = 0;        ///< seconds, of the rank that computes most
  double adapter = 0;        ///< seconds, of the node that sends or receives most, over all of its adapters
  [[nodiscard]] double seconds() const { return compute > adapter ? compute : adapter; }
};
/// Of cases that have one program: they differ in recomputation alone.
[[nodiscard]] std::vector<Floor> floors_of(const std::vector<Case>& cases, const Machine& machine);

/// Returns whether every replica has nodes of its own, with only one switch between them. All replicas then
/// do the same at the same time, and each sends to the next one what it gets from the one before: one is simulated.
[[nodiscard]] bool replicas_are_alike(const Case& c, const Machine& machine);
}  // namespace minitaw::predict
