// SPDX-License-Identifier: BSD-3-Clause
// What MPI is asked about the job.
#include <gtest/gtest.h>
#include <set>
#include "comm/mpi/mpi.hpp"

namespace minitaw::comm::mpi {
namespace {
struct Mpi : testing::Test {
  const int rank = rank_in(MPI_COMM_WORLD), ranks = size_of(MPI_COMM_WORLD);
};

/// Of any length: empty on rank 0, longer than MPI sends at once on others.
std::vector<double> numbers_of(int rank) {
  return std::vector<double>(rank * 50'000, 0.5 * rank);
}

TEST_F(Mpi, GathersListsOnRank0InOrder) {
  const auto lists = gather_lists(numbers_of(rank), MPI_COMM_WORLD, "gathering numbers");
  ASSERT_EQ(std::ssize(lists), rank == 0 ? ranks : 0);
  for (const int r : indices(lists))
    EXPECT_EQ(lists[r], numbers_of(r));
}

/// Of different lengths.
std::string text_of(int rank) {
  return std::string((rank + 1) * 100'000, static_cast<char>('a' + rank));
}

TEST_F(Mpi, TellsAllTheTextOfTheFirstRankThatHasOne) {
  for (int first = 0; first < ranks; ++first) {
    const std::string mine = rank < first ? "" : text_of(rank);
    EXPECT_EQ(first_text(mine, MPI_COMM_WORLD), std::pair(first, text_of(first)));
  }
  EXPECT_EQ(first_text("", MPI_COMM_WORLD).second, "");
}

TEST(LibraryLine, SaysWhichLibraryAndNotWhoBuiltItWhere) {
  for (const auto& [version, line] : {
           std::pair{
               "MPICH Version:      4.2.1\nMPICH Device:       ch4:ucx\nMPICH configure:    /joe\n",
               "MPICH 4.2.1, device ch4:ucx"},
           {"Open MPI v5.0.3, package: Open MPI joe@cn1 Distribution, ident: 5.0.3",
               "Open MPI v5.0.3"},
           {"MPI VERSION    : CRAY MPICH version 8.1 (ANL base 3.4a2)\nMPI BUILD INFO : Sat\n",
               "MPI VERSION : CRAY MPICH version 8.1 (ANL base 3.4a2)"},
       })
    EXPECT_EQ(library_line(version), line);
  EXPECT_FALSE(library_version().empty());
}

TEST_F(Mpi, PlacesThisRankInTheJobAndCountsCores) {
  const topology::Placement job = detect_placement(MPI_COMM_WORLD);
  EXPECT_EQ(job.nodes.ranks(), ranks);
  EXPECT_EQ(std::pair(job.nodes.group_of(rank), job.nodes.local(rank)),
      std::pair(job.node, job.local_rank));
  EXPECT_FALSE(job.host.empty());
  EXPECT_FALSE(job.cores.empty());
  EXPECT_TRUE(std::ranges::is_sorted(job.cores));
  const auto all = gather_lists(job.cores, MPI_COMM_WORLD, "gathering cores");
  std::set<int> of_node;
  for (int r = 0; r < std::ssize(all); ++r)
    if (job.nodes.group_of(r) == job.node)
      of_node.insert(all[r].begin(), all[r].end());
  if (rank == 0) {
    EXPECT_EQ(std::ssize(of_node), job.node_cores);
  }
}
}  // namespace
}  // namespace minitaw::comm::mpi
