// MPI itself, before miniTaw is blamed.
#include <gtest/gtest.h>
#include <mpi.h>

#include <thread>
#include <vector>

namespace {

struct Job {
  int rank = 0, ranks = 0;
  Job() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  }
};

TEST(Mpi, ServesThreads) {
  int level = MPI_THREAD_SINGLE;
  ASSERT_EQ(MPI_Query_thread(&level), MPI_SUCCESS);
  EXPECT_EQ(level, MPI_THREAD_MULTIPLE);
}

TEST(Mpi, AddsUp) {
  const Job job;
  int sum = 0;
  ASSERT_EQ(MPI_Allreduce(&job.rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD), MPI_SUCCESS);
  EXPECT_EQ(sum, job.ranks * (job.ranks - 1) / 2);
}

void pass_round(const Job& job, MPI_Comm comm, int rounds, int& token) {
  for (int k = 0; k < rounds; ++k)
    if (MPI_Sendrecv_replace(&token, 1, MPI_INT, (job.rank + 1) % job.ranks, 5,
                             (job.rank + job.ranks - 1) % job.ranks, 5, comm,
                             MPI_STATUS_IGNORE) != MPI_SUCCESS)
      token = -1;
}

TEST(Mpi, KeepsTwoThreadsApart) {
  const Job job;
  MPI_Comm comms[2];
  for (auto& comm : comms) ASSERT_EQ(MPI_Comm_dup(MPI_COMM_WORLD, &comm), MPI_SUCCESS);
  int tokens[2] = {job.rank, 1000 + job.rank};
  {
    std::jthread other([&] { pass_round(job, comms[1], 20, tokens[1]); });
    pass_round(job, comms[0], 20, tokens[0]);
  }
  const int from = ((job.rank - 20) % job.ranks + job.ranks) % job.ranks;
  EXPECT_EQ(tokens[0], from);
  EXPECT_EQ(tokens[1], 1000 + from);
  for (auto& comm : comms) MPI_Comm_free(&comm);
}

}  // namespace
