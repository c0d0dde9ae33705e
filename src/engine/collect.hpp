#pragma once

#include <mpi.h>

#include <vector>

#include "engine/session.hpp"
#include "engine/timed_steps.hpp"
#include "record/result.hpp"

namespace minitaw::engine {

/// Brings what every rank measured together on rank 0. Collective over the ranks of the session.
/// peak: this rank's peak resident memory. timeline: whether the result gets that of the step accounted for.
void collect(const Session& session, const TimedSteps& steps, std::uint64_t peak, bool timeline,
             MPI_Comm comm, record::CaseResult& result);

/// Bytes counted by the transports over `steps` steps, as bytes per step. Sets the status to wrong if
/// they are not exactly the planned ones. Collective.
void collect_bytes(const schedule::ByteMatrix& sent, const schedule::ByteMatrix& planned, int rank, int steps,
                   MPI_Comm comm, record::CaseResult& result);

}  // namespace minitaw::engine
