#include "comm/mpi/detect.hpp"

#include <gtest/gtest.h>

#include <array>

#include "base/error.hpp"

namespace minitaw::topology {
namespace {

TEST(NodesOf, CountsRunsOfRanks) {
  EXPECT_EQ(nodes_of(std::array{0, 0, 0, 3, 3, 5}).text(), "3+2+1");
  EXPECT_EQ(nodes_of(std::array{7}).text(), "1");
}

TEST(NodesOf, RefusesNodesThatAreNotConsecutive) {
  try {
    (void)nodes_of(std::array{0, 1, 0, 1});
    FAIL() << "round-robin placement was accepted";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("rank 2"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("block"), std::string::npos) << error.what();
  }
}

TEST(Detect, PlacesThisRankInTheJob) {
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const Job job = detect(MPI_COMM_WORLD);
  EXPECT_EQ(job.nodes.ranks(), ranks);
  EXPECT_EQ(job.nodes.group_of(rank), job.node);
  EXPECT_EQ(job.nodes.local(rank), job.local_rank);
  ASSERT_EQ(static_cast<int>(job.hosts.size()), job.nodes.count());
  EXPECT_FALSE(job.hosts[job.node].empty());
}

TEST(Detect, CountsCores) {
  const Job job = detect(MPI_COMM_WORLD);
  EXPECT_GE(job.cores, 1);
  EXPECT_GE(job.node_cores, job.cores);
  EXPECT_TRUE(job.core_list.find_first_not_of("0123456789,-") == std::string::npos) << job.core_list;
  if (job.cores == 1) {
    EXPECT_EQ(job.core_list.find('-'), std::string::npos) << job.core_list;
  }
}

}  // namespace
}  // namespace minitaw::topology
