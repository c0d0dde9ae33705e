#pragma once

#include <mpi.h>

#include "schedule/program.hpp"

namespace minitaw::comm::mpi {

/// This rank of `world`; throws LogicError if the program is not made for as many ranks as there are.
[[nodiscard]] int rank_in(MPI_Comm world, const schedule::Program& program);

}  // namespace minitaw::comm::mpi
