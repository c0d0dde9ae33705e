#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mpi_job.hpp"

namespace minitaw::app {

/// What `minitaw run` was asked for.
struct RunOptions {
  std::string deck;
  std::vector<std::string> overrides;
  std::string output;                       ///< result file
  std::vector<std::string> arguments;       ///< the whole command line, for the record
  bool retry = false;                       ///< run failed cases again
  std::optional<std::uint64_t> interleave;  ///< seed of a random order of all repetitions
  std::string time_limit;                   ///< as for TimeLimit
};

/// Plays every case of the deck that the result file does not hold yet, and records each as it ends: a case
/// that fails, does not fit or takes too long is recorded as such, and the next one follows. Stops between
/// steps at a signal and before a time limit. Returns the exit code: 0 if every case of the deck is valid,
/// else 1.
[[nodiscard]] int run_sweep(const RunOptions& options, MpiJob& mpi);

}  // namespace minitaw::app
