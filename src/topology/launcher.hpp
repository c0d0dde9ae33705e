#pragma once

/// What the program that started the ranks (mpiexec, srun) says about them in the environment.
namespace minitaw::topology {

/// Ranks that the launcher says belong to one job; 0 if it says nothing. An mpiexec inside a Slurm step is
/// the one who starts the ranks, so its word comes first.
[[nodiscard]] int announced_ranks();

/// Where srun and the MPI library do not speak the same PMI, each rank finds itself alone and would run the
/// whole deck. Throws InputError if MPI knows only one rank, but the launcher has started several as one job.
void require_launched_together(int ranks);

}  // namespace minitaw::topology
