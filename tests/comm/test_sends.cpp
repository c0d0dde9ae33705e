// SPDX-License-Identifier: BSD-3-Clause
// What leaves by MPI is counted or named by the calls of MPI, whoever makes them.
#include <numeric>
#include "comm/mpi/sends.hpp"
#include "transports.hpp"

namespace minitaw::comm::mpi {
namespace {
/// A rank's calls to the next one, on a communicator whose ranks go the other way round than those of the job.
class Sends : public testing::Test {
protected:
  Sends() {
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank_in(MPI_COMM_WORLD), &own_.comm);
    MPI_Buffer_attach(buffer_.data(), static_cast<int>(buffer_.size()));
  }
  ~Sends() override {
    void* buffer = nullptr;
    int size = 0;
    MPI_Buffer_detach(static_cast<void*>(&buffer), &size);
  }

  /// Sends one number, then two and so on, each by another call. Returns what the calls left uncounted, in order.
  std::vector<std::string> by_every_call(MPI_Comm comm) {
    std::array<MPI_Request, 9> received;
    std::array<double, 10> data{};
    std::array<std::array<double, 10>, 9> places{};
    for (int n = 1; n <= 9; ++n)
      MPI_Irecv(places[n - 1].data(), n, MPI_DOUBLE, (rank() + ranks() - 1) % ranks(), n, comm, &received[n - 1]);
    MPI_Barrier(own_.comm);
    const int to = (rank() + 1) % ranks();
    int n = 0;
    std::vector<std::string> uncounted;
    for (const auto call : {MPI_Send, MPI_Bsend, MPI_Rsend, MPI_Ssend}) {
      ++n;
      call(data.data(), n, MPI_DOUBLE, to, n, comm);
      uncounted.push_back(take_uncounted());
    }
    for (const auto call : {MPI_Isend, MPI_Ibsend, MPI_Irsend, MPI_Issend}) {
      ++n;
      MPI_Request request = MPI_REQUEST_NULL;
      call(data.data(), n, MPI_DOUBLE, to, n, comm, &request);
      uncounted.push_back(take_uncounted());
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Sendrecv(
        data.data(), 9, MPI_DOUBLE, to, 9, data.data() + 9, 1, MPI_DOUBLE, MPI_PROC_NULL, 0, comm, MPI_STATUS_IGNORE);
    uncounted.push_back(take_uncounted());
    MPI_Waitall(9, received.data(), MPI_STATUSES_IGNORE);
    return uncounted;
  }

  [[nodiscard]] int rank() const { return rank_in(own_.comm); }
  [[nodiscard]] int ranks() const { return size_of(own_.comm); }

  OwnComm own_;
  std::vector<char> buffer_ = std::vector<char>(1 << 16);
};

const std::vector<std::string> calls = {"MPI_Send", "MPI_Bsend", "MPI_Rsend", "MPI_Ssend", "MPI_Isend", "MPI_Ibsend",
    "MPI_Irsend", "MPI_Issend", "MPI_Sendrecv"};

/// 1 + 2 + ... + 9 numbers of 8 bytes, to the rank that the receiver has on this communicator.
TEST_F(Sends, AreCountedByReceiverWhicheverCallMakesThem) {
  SentBytes sent(static_cast<std::size_t>(ranks()));
  count_sends(own_.comm, sent, schedule::Traffic::gradients);
  const StepSends step;
  EXPECT_EQ(by_every_call(own_.comm), std::vector<std::string>(9));
  double none = 0;
  MPI_Send(&none, 1, MPI_DOUBLE, MPI_PROC_NULL, 0, own_.comm);
  std::vector<std::uint64_t> expected(sent.values().size());
  expected[(rank() + 1) % ranks() * schedule::traffic_kinds + 1] = 360;
  EXPECT_EQ(sent.values(), expected);
}

TEST_F(Sends, InAStepAreNamedUnlessCounted) {
  EXPECT_EQ(by_every_call(own_.comm), std::vector<std::string>(9)) << "no step runs";
  SentBytes sent(static_cast<std::size_t>(ranks()));
  const StepSends step;
  EXPECT_EQ(by_every_call(own_.comm), calls);
  OwnComm counted, copy;
  MPI_Comm_dup(own_.comm, &counted.comm);
  count_sends(counted.comm, sent, schedule::Traffic::weights);
  MPI_Comm_dup(counted.comm, &copy.comm);
  EXPECT_EQ(by_every_call(copy.comm), calls) << "somebody else's";
  EXPECT_EQ(sent.values(), std::vector<std::uint64_t>(sent.values().size()));
}

TEST_F(Sends, ByCollectivesOfMpiAreNamedOnWhicheverCommunicator) {
  SentBytes sent(static_cast<std::size_t>(ranks()));
  count_sends(own_.comm, sent, schedule::Traffic::weights);
  const MPI_Comm comm = own_.comm;
  const int each = 1;
  double mine = 1, sum = 0;
  std::vector<double> all(ranks());
  std::vector<int> counts(ranks(), 1), starts(ranks());
  std::iota(starts.begin(), starts.end(), 0);
  MPI_Request request = MPI_REQUEST_NULL;
  const std::map<std::string, std::function<void()>> collectives = {
      {"MPI_Bcast", [&] { MPI_Bcast(&mine, 1, MPI_DOUBLE, 0, comm); }},
      {"MPI_Reduce", [&] { MPI_Reduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, comm); }},
      {"MPI_Allreduce", [&] { MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, comm); }},
      {"MPI_Iallreduce", [&] { MPI_Iallreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, comm, &request); }},
      {"MPI_Gather", [&] { MPI_Gather(&mine, 1, MPI_DOUBLE, all.data(), each, MPI_DOUBLE, 0, comm); }},
      {"MPI_Allgather", [&] { MPI_Allgather(&mine, 1, MPI_DOUBLE, all.data(), each, MPI_DOUBLE, comm); }},
      {"MPI_Allgatherv",
          [&] { MPI_Allgatherv(&mine, 1, MPI_DOUBLE, all.data(), counts.data(), starts.data(), MPI_DOUBLE, comm); }}};
  for (const auto& [name, call] : collectives) {
    {
      const StepSends step;
      call();
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    EXPECT_EQ(take_uncounted(), name);
    MPI_Bcast(&mine, 1, MPI_DOUBLE, 0, comm);
    EXPECT_EQ(take_uncounted(), "") << "no step runs";
  }
  EXPECT_EQ(sum, ranks());
  EXPECT_EQ(all, std::vector<double>(ranks(), 1)) << "they still do their work";
}
}  // namespace
}  // namespace minitaw::comm::mpi
