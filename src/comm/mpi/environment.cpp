#include "comm/mpi/environment.hpp"

#include <mpi.h>

#include <exception>

#include "base/error.hpp"
#include "comm/mpi/check.hpp"
#include "topology/system.hpp"

namespace minitaw::comm::mpi {

Environment::Environment(int& argc, char**& argv) : exceptions_(std::uncaught_exceptions()) {
  int offered = MPI_THREAD_SINGLE;
  check(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &offered), "MPI_Init_thread");
  if (offered < MPI_THREAD_MULTIPLE) {
    MPI_Finalize();
    throw InputError(
        "this MPI does not offer MPI_THREAD_MULTIPLE; run with an MPI built with thread support");
  }
  check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(MPI_COMM_WORLD, &ranks_), "MPI_Comm_size");
  try {
    topology::require_launched_together(ranks_);
  } catch (const InputError&) {
    MPI_Finalize();
    throw;
  }
}

Environment::~Environment() {
  if (std::uncaught_exceptions() > exceptions_) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Finalize();
}

}  // namespace minitaw::comm::mpi
