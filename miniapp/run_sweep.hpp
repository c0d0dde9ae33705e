#pragma once

#include <string>
#include <vector>

#include "mpi_job.hpp"

namespace minitaw::app {

/// What `minitaw run` was asked for.
struct RunOptions {
  std::string deck;
  std::vector<std::string> overrides;
  std::string output;                  ///< result file
  std::vector<std::string> arguments;  ///< the whole command line, for the record
};

/// Plays every case of the deck that the result file does not hold yet, and records each as it ends. Returns
/// the exit code: 0 if every case of the deck is valid, else 1.
[[nodiscard]] int run_sweep(const RunOptions& options, MpiJob& mpi);

}  // namespace minitaw::app
