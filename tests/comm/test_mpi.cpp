// SPDX-License-Identifier: BSD-3-Clause
// MPI itself, before miniTaw is blamed, and what it is asked about the job.
#include <gtest/gtest.h>
#include "comm/mpi/mpi.hpp"

namespace minitaw::comm::mpi {
namespace {
TEST(Mpi, ServesThreadsAndAddsUp) {
  int level = MPI_THREAD_SINGLE, sum = 0;
  ASSERT_EQ(MPI_Query_thread(&level), MPI_SUCCESS);
  EXPECT_EQ(level, MPI_THREAD_MULTIPLE);
  const int rank = rank_in(MPI_COMM_WORLD), ranks = size_of(MPI_COMM_WORLD);
  ASSERT_EQ(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD), MPI_SUCCESS);
  EXPECT_EQ(sum, ranks * (ranks - 1) / 2);
}

TEST(GatherTexts, EveryRankHasAllOfAnyLength) {
  const auto text_of = [](int rank) {
    return std::string(static_cast<std::size_t>(rank * 300), 'a') + std::to_string(rank);
  };
  const std::vector<std::string> all =
      gather_texts(text_of(rank_in(MPI_COMM_WORLD)), MPI_COMM_WORLD);
  ASSERT_EQ(static_cast<int>(all.size()), size_of(MPI_COMM_WORLD));
  for (int rank = 0; rank < size_of(MPI_COMM_WORLD); ++rank)
    EXPECT_EQ(all[rank], text_of(rank));
  EXPECT_EQ(gather_texts("", MPI_COMM_WORLD)[0], "");
}

TEST(LibraryLine, SaysWhichLibraryAndNotWhoBuiltItWhere) {
  EXPECT_EQ(library_line(
                "MPICH Version:      4.2.1\nMPICH Release date: Wed\nMPICH Device:       ch4:ucx\n"
                "MPICH configure:    --prefix=/owned/joe\n"),
      "MPICH 4.2.1, device ch4:ucx");
  EXPECT_EQ(
      library_line(
          "Open MPI v5.0.3, package: Open MPI joe@cn1 Distribution, ident: 5.0.3, repo rev: x"),
      "Open MPI v5.0.3");
  EXPECT_EQ(
      library_line(
          "MPI VERSION    : CRAY MPICH version 8.1.30.8 (ANL base 3.4a2)\nMPI BUILD INFO : Sat\n"),
      "MPI VERSION : CRAY MPICH version 8.1.30.8 (ANL base 3.4a2)");
  EXPECT_EQ(library_line(""), "");
  EXPECT_FALSE(library_version().empty());
}

TEST(Detect, PlacesThisRankInTheJobAndCountsCores) {
  const int rank = rank_in(MPI_COMM_WORLD);
  const topology::Placement job = detect_placement(MPI_COMM_WORLD);
  EXPECT_EQ(job.nodes.ranks(), size_of(MPI_COMM_WORLD));
  EXPECT_EQ(std::tuple(job.nodes.group_of(rank), job.nodes.local(rank)),
      std::tuple(job.node, job.local_rank));
  ASSERT_EQ(static_cast<int>(job.hosts.size()), job.nodes.count());
  EXPECT_FALSE(job.hosts[job.node].empty());
  ASSERT_EQ(std::ssize(job.cores), job.nodes.ranks());
  for (const std::vector<int>& cores : job.cores) {
    const std::string text = topology::cores_text(cores);
    EXPECT_TRUE(1 <= std::ssize(cores) && std::ssize(cores) <= job.node_cores)
        << text << " of " << job.node_cores;
    EXPECT_TRUE(std::ranges::is_sorted(cores)) << text;
  }
}
}  // namespace
}  // namespace minitaw::comm::mpi
