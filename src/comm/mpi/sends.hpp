// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <mpi.h>
#include "comm/transport.hpp"

// Counts what this process hands to MPI, at MPI's own interface: sends.cpp defines the calls by
// which data can leave and passes them on (PMPI). No call of the program gets around it.
namespace minitaw::comm::mpi {
/// Counts every message on `comm` in `sent`, which outlives it, as one to its receiver there. A
/// duplicate counts nothing.
void count_sends(MPI_Comm comm, SentBytes& sent, schedule::Traffic traffic);

/// While it exists, a step runs, in which data leaves only by messages that are counted, or those
/// of a watchdog that ends the job.
class StepSends {
public:
  StepSends();
  ~StepSends();
  StepSends(const StepSends&) = delete;
  StepSends& operator=(const StepSends&) = delete;
};

/// Returns a call by which data has left uncounted during a step, and forgets it: "MPI_Bcast";
/// empty: there was none.
[[nodiscard]] std::string take_uncounted();
}  // namespace minitaw::comm::mpi
