#pragma once

#include <string>
#include <vector>

#include "mpi_job.hpp"

namespace minitaw::app {

/// What `minitaw verify` was asked for.
struct VerifyOptions {
  std::string deck;
  std::vector<std::string> overrides;
  bool json = false;  ///< JSON on standard output, nothing else
};

/// Compares every case of the deck with the serial reference, and the serial reference with the float64
/// model: losses of all steps, each gradient tensor of the first step, weights after the last. Returns the
/// exit code.
[[nodiscard]] int verify_deck(const VerifyOptions& options, MpiJob& mpi);

}  // namespace minitaw::app
