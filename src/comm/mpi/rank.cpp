#include "comm/mpi/rank.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "comm/mpi/check.hpp"

namespace minitaw::comm::mpi {

int rank_in(MPI_Comm world, const schedule::Program& program) {
  int rank = 0, ranks = 0;
  check(MPI_Comm_rank(world, &rank), "MPI_Comm_rank");
  check(MPI_Comm_size(world, &ranks), "MPI_Comm_size");
  if (static_cast<std::size_t>(ranks) != program.ranks.size())
    throw LogicError(fmt::format("a program for {} ranks is played by {}", program.ranks.size(), ranks));
  return rank;
}

}  // namespace minitaw::comm::mpi
