// SPDX-License-Identifier: BSD-3-Clause
// What leaves by MPI is counted or named by the calls of MPI, whoever makes them.
#include <gmock/gmock.h>
#include "comm/mpi/sends.hpp"
#include "transports.hpp"

namespace minitaw::comm::mpi {
namespace {
using test::ranks_of_job;

/// A rank's calls to the next one, on a communicator whose ranks go the other way round than those
/// of the job.
class Sends : public testing::Test {
protected:
  Sends() { MPI_Comm_split(MPI_COMM_WORLD, 0, -rank_in(MPI_COMM_WORLD), &own_.comm); }

  /// Sends one number, then two, by the two calls. Returns which of them were uncounted, in order.
  std::string by_every_call(MPI_Comm comm) {
    std::array<MPI_Request, 3> requests;
    std::array<double, 2> data{};
    std::array<double, 3> place{};
    const int from = (rank_ + ranks_ - 1) % ranks_, to = (rank_ + 1) % ranks_;
    MPI_Irecv(&place[0], 1, MPI_DOUBLE, from, 0, comm, &requests[0]);
    MPI_Irecv(&place[1], 2, MPI_DOUBLE, from, 0, comm, &requests[1]);
    MPI_Send(data.data(), 1, MPI_DOUBLE, to, 0, comm);
    std::string uncounted = take_uncounted() + ' ';
    MPI_Isend(data.data(), 2, MPI_DOUBLE, to, 0, comm, &requests[2]);
    uncounted += take_uncounted() + ' ';
    MPI_Waitall(3, requests.data(), MPI_STATUSES_IGNORE);
    return uncounted;
  }

  OwnComm own_;
  int rank_ = ranks_of_job() - 1 - rank_in(MPI_COMM_WORLD), ranks_ = ranks_of_job();
  SentBytes sent_{static_cast<std::size_t>(ranks_)};
};

/// 1 + 2 numbers of 8 bytes, to the rank that the receiver has on this communicator.
TEST_F(Sends, AreCountedByReceiverWhicheverCallMakesThem) {
  count_sends(own_.comm, sent_, schedule::Traffic::gradients);
  const StepSends step;
  EXPECT_EQ(by_every_call(own_.comm), "  ");
  MPI_Send(&rank_, 1, MPI_INT, MPI_PROC_NULL, 0, own_.comm);
  std::vector<std::uint64_t> expected(ranks_ * schedule::traffic_kinds);
  expected[(rank_ + 1) % ranks_ * schedule::traffic_kinds + 1] = 24;
  EXPECT_EQ(sent_.values(), expected);
}

TEST_F(Sends, InAStepAreNamedUnlessCounted) {
  EXPECT_EQ(by_every_call(own_.comm), "  ") << "no step runs";
  const StepSends step;
  EXPECT_EQ(by_every_call(own_.comm), "MPI_Send MPI_Isend ");
  OwnComm counted, copy;
  MPI_Comm_dup(own_.comm, &counted.comm);
  count_sends(counted.comm, sent_, schedule::Traffic::weights);
  MPI_Comm_dup(counted.comm, &copy.comm);
  EXPECT_EQ(by_every_call(copy.comm), "MPI_Send MPI_Isend ") << "somebody else's";
  EXPECT_THAT(sent_.values(), testing::Each(0U));
}

TEST_F(Sends, ByCollectivesOfMpiAreNamedOnWhicheverCommunicator) {
  count_sends(own_.comm, sent_, schedule::Traffic::weights);
  const MPI_Comm comm = own_.comm;
  int one = 1, sum = 0;
  std::vector<int> every(ranks_);
  MPI_Request request = MPI_REQUEST_NULL;
  const StepSends step;
  MPI_Bcast(&one, 1, MPI_INT, 0, comm);
  EXPECT_EQ(take_uncounted(), "MPI_Bcast");
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
  EXPECT_EQ(take_uncounted(), "MPI_Allreduce");
  MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  EXPECT_EQ(take_uncounted(), "MPI_Iallreduce");
  MPI_Gather(&one, 1, MPI_INT, every.data(), 1, MPI_INT, 0, comm);
  EXPECT_EQ(take_uncounted(), "MPI_Gather");
  MPI_Allgather(&one, 1, MPI_INT, every.data(), 1, MPI_INT, comm);
  EXPECT_EQ(take_uncounted(), "MPI_Allgather");
}
}  // namespace
}  // namespace minitaw::comm::mpi
