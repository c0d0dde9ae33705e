#pragma once

#include <functional>

#include "mpi_job.hpp"
#include "verb.hpp"

namespace minitaw::app {

/// Runs `work` inside MPI and Kokkos and turns what all ranks agree on into an exit code, told by rank 0
/// alone. What only one rank knows ends the job, because the others may wait for it.
[[nodiscard]] int in_job(const Invocation& invocation, const JobFlags& flags,
                         const std::function<int(MpiJob&)>& work);

}  // namespace minitaw::app
