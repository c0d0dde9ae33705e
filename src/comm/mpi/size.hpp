#pragma once

#include "comm/mpi/check.hpp"

namespace minitaw::comm::mpi {

[[nodiscard]] inline int rank_in(MPI_Comm comm) {
  int rank = 0;
  check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  return rank;
}

[[nodiscard]] inline int size_of(MPI_Comm comm) {
  int size = 0;
  check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  return size;
}

}  // namespace minitaw::comm::mpi
