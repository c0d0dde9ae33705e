#include "engine/clock_offset.hpp"

#include <limits>

#include "comm/mpi/size.hpp"
#include "engine/clock.hpp"

namespace minitaw::engine {
namespace {

using comm::mpi::check;
using comm::mpi::rank_in;
using comm::mpi::size_of;

constexpr int rounds = 10;
constexpr int tag = 0;

/// A communicator of some of the ranks of another one; MPI_COMM_NULL on the others.
struct Part {
  MPI_Comm comm = MPI_COMM_NULL;

  Part() = default;
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  ~Part() {
    if (comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
  }
};

void send(double value, int to, MPI_Comm comm) {
  check(MPI_Send(&value, 1, MPI_DOUBLE, to, tag, comm), "sending a time");
}

double receive(int from, MPI_Comm comm) {
  double value = 0;
  check(MPI_Recv(&value, 1, MPI_DOUBLE, from, tag, comm, MPI_STATUS_IGNORE), "receiving a time");
  return value;
}

/// Rank 0's side. The answer of the fastest round was given closest to its middle.
double offset_of(int rank, MPI_Comm comm, const Now& now) {
  double fastest = std::numeric_limits<double>::infinity();
  double offset = 0;
  for (int round = 0; round < rounds; ++round) {
    const double asked = now();
    send(asked, rank, comm);
    const double theirs = receive(rank, comm);
    const double answered = now();
    if (answered - asked >= fastest) continue;
    fastest = answered - asked;
    offset = 0.5 * (asked + answered) - theirs;
  }
  return offset;
}

}  // namespace

double offset_by_messages(MPI_Comm comm, const Now& now) {
  if (rank_in(comm) == 0) {
    for (int rank = 1; rank < size_of(comm); ++rank) send(offset_of(rank, comm, now), rank, comm);
    return 0;
  }
  for (int round = 0; round < rounds; ++round) {
    (void)receive(0, comm);
    send(now(), 0, comm);
  }
  return receive(0, comm);
}

double clock_offset(MPI_Comm comm) {
  Part node, first_ranks;
  check(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node.comm), "MPI_Comm_split_type");
  check(MPI_Comm_split(comm, rank_in(node.comm) == 0 ? 0 : MPI_UNDEFINED, 0, &first_ranks.comm),
        "MPI_Comm_split");
  double offset = 0;
  if (first_ranks.comm != MPI_COMM_NULL) offset = offset_by_messages(first_ranks.comm, host_seconds);
  check(MPI_Bcast(&offset, 1, MPI_DOUBLE, 0, node.comm), "sharing the offset of a node's clock");
  return offset;
}

}  // namespace minitaw::engine
