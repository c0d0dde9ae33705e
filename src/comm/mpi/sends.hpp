// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <mpi.h>
#include "comm/transport.hpp"

// Counts what this process hands to MPI, at MPI's own interface: sends.cpp defines the calls by which data can leave
// and passes them on (PMPI). No call of the program gets around it.
namespace minitaw::comm::mpi {
/// Counts every message on `comm` in `sent`, which outlives it, as one to its receiver there. A duplicate counts
/// nothing.
void count_sends(MPI_Comm comm, SentBytes& sent, schedule::Traffic traffic);
/// Lets messages pass on `comm` during steps: those of a watchdog.
void allow_sends(MPI_Comm comm);

/// While it exists, a step runs, in which data leaves only by messages that are counted.
class StepSends {
public:
  StepSends();
  ~StepSends();
  StepSends(const StepSends&) = delete;
  StepSends& operator=(const StepSends&) = delete;
};
/// Returns the call that was first to let data leave uncounted during a step, and forgets it: "MPI_Bcast"; empty: none.
[[nodiscard]] std::string take_uncounted();
}  // namespace minitaw::comm::mpi
