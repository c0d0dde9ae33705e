// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <cmath>
#include "job.hpp"

namespace minitaw::app {
struct SweepOptions {
  std::string output;                ///< result file, as given
  double peak = std::nan("");        ///< FLOP/s of a rank's device; NaN: that of its datasheet
  bool retry = false;                ///< run failed cases again
  bool interleave = false;           ///< in random order over all repetitions
  std::optional<double> time_limit;  ///< seconds, as for TimeLimit
};

/// Executes every case of the deck that the result file lacks, and records each as it ends,
/// whatever its end. Stops between steps at a signal and before a time limit. Exit code 0 if every
/// case is valid, else 1. Collective.
[[nodiscard]] int run_sweep(
    const deck::Deck& deck, const SweepOptions& options, const Invocation& invocation, MpiJob& mpi);
}  // namespace minitaw::app
