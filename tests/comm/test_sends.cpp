// SPDX-License-Identifier: BSD-3-Clause
// What leaves by MPI is counted or named by the calls of MPI, whoever makes them.
#include <numeric>
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
    std::array<MPI_Request, 2> received;
    std::array<double, 2> data{};
    std::array<std::array<double, 2>, 2> places{};
    const int from = (rank_ + ranks_ - 1) % ranks_, to = (rank_ + 1) % ranks_;
    for (int n = 1; n <= 2; ++n)
      MPI_Irecv(places[n - 1].data(), n, MPI_DOUBLE, from, n, comm, &received[n - 1]);
    MPI_Send(data.data(), 1, MPI_DOUBLE, to, 1, comm);
    std::string uncounted = take_uncounted() + ' ';
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Isend(data.data(), 2, MPI_DOUBLE, to, 2, comm, &request);
    uncounted += take_uncounted() + ' ';
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Waitall(2, received.data(), MPI_STATUSES_IGNORE);
    return uncounted;
  }

  OwnComm own_;
  int rank_ = ranks_of_job() - 1 - rank_in(MPI_COMM_WORLD), ranks_ = ranks_of_job();
  SentBytes sent_{static_cast<std::size_t>(ranks_)};
};

const std::string none(2, ' ');
const std::string all = "MPI_Send MPI_Isend ";

/// 1 + 2 numbers of 8 bytes, to the rank that the receiver has on this communicator.
TEST_F(Sends, AreCountedByReceiverWhicheverCallMakesThem) {
  count_sends(own_.comm, sent_, schedule::Traffic::gradients);
  const StepSends step;
  EXPECT_EQ(by_every_call(own_.comm), none);
  MPI_Send(&rank_, 1, MPI_INT, MPI_PROC_NULL, 0, own_.comm);
  std::vector<std::uint64_t> expected(sent_.values().size());
  expected[(rank_ + 1) % ranks_ * schedule::traffic_kinds + 1] = 24;
  EXPECT_EQ(sent_.values(), expected);
}

TEST_F(Sends, InAStepAreNamedUnlessCounted) {
  EXPECT_EQ(by_every_call(own_.comm), none) << "no step runs";
  const StepSends step;
  EXPECT_EQ(by_every_call(own_.comm), all);
  OwnComm counted, copy;
  MPI_Comm_dup(own_.comm, &counted.comm);
  count_sends(counted.comm, sent_, schedule::Traffic::weights);
  MPI_Comm_dup(counted.comm, &copy.comm);
  EXPECT_EQ(by_every_call(copy.comm), all) << "somebody else's";
  EXPECT_EQ(sent_.values(), std::vector<std::uint64_t>(sent_.values().size()));
}

TEST_F(Sends, ByCollectivesOfMpiAreNamedOnWhicheverCommunicator) {
  count_sends(own_.comm, sent_, schedule::Traffic::weights);
  const MPI_Comm comm = own_.comm;
  int one = 1, sum = 0;
  std::vector<int> every(ranks_);
  MPI_Request request = MPI_REQUEST_NULL;
  const std::map<std::string, std::function<void()>> collectives = {
      {"MPI_Bcast", [&] { MPI_Bcast(&one, 1, MPI_INT, 0, comm); }},
      {"MPI_Allreduce", [&] { MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm); }},
      {"MPI_Iallreduce", [&] { MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm, &request); }},
      {"MPI_Gather", [&] { MPI_Gather(&one, 1, MPI_INT, every.data(), 1, MPI_INT, 0, comm); }},
      {"MPI_Allgather", [&] { MPI_Allgather(&one, 1, MPI_INT, every.data(), 1, MPI_INT, comm); }}};
  for (const auto& [name, call] : collectives) {
    call();
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    EXPECT_EQ(take_uncounted(), "") << "no step runs";
    const StepSends step;
    call();
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    EXPECT_EQ(take_uncounted(), name);
  }
  EXPECT_EQ(std::pair(sum, every), std::pair(ranks_, std::vector<int>(ranks_, 1)))
      << "they still do their work";
}
}  // namespace
}  // namespace minitaw::comm::mpi
