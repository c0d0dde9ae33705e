#include "topology/launcher.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "base/error.hpp"

namespace minitaw::topology {

int announced_ranks() {
  // MPICH's mpiexec and srun --mpi=pmi2; Open MPI's mpiexec; srun whatever its --mpi (a batch script has
  // none)
  for (const char* name : {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"})
    if (const char* text = std::getenv(name); text != nullptr && std::atoi(text) > 0) return std::atoi(text);
  return 0;
}

void require_launched_together(int ranks) {
  const int announced = announced_ranks();
  if (ranks != 1 || announced <= 1) return;
  throw InputError(fmt::format(
      "{} ranks were started, but for MPI each of them is alone: the launcher and this MPI library "
      "do not speak the same PMI; take another of those that srun --mpi=list names (MPICH: "
      "srun --mpi=pmi2, Open MPI: srun --mpi=pmix), or the mpiexec that belongs to the library",
      announced));
}

}  // namespace minitaw::topology
