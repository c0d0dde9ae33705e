#pragma once

#include <mpi.h>

#include <vector>

#include "engine/session.hpp"
#include "record/result.hpp"

namespace minitaw::engine {

/// Brings what every rank measured together on rank 0. Collective over the ranks of the session.
/// times: this rank's timed steps. peak: this rank's peak resident memory.
void collect(const Session& session, const std::vector<StepTime>& times, std::uint64_t peak, MPI_Comm comm,
             record::CaseResult& result);

/// Bytes counted by the transports over `steps` steps, as bytes per step. Sets the status to wrong if
/// they are not exactly the planned ones. Collective.
void collect_bytes(const schedule::ByteMatrix& sent, const schedule::ByteMatrix& planned, int rank, int steps,
                   MPI_Comm comm, record::CaseResult& result);

}  // namespace minitaw::engine
