#include "comm/mpi/texts.hpp"

#include <gtest/gtest.h>

#include "comm/mpi/size.hpp"

namespace minitaw::comm::mpi {
namespace {

std::string text_of(int rank) {
  return std::string(static_cast<std::size_t>(rank * 300), 'a') + std::to_string(rank);
}

TEST(GatherTexts, EveryRankHasAllOfAnyLength) {
  const std::vector<std::string> all = gather_texts(text_of(rank_in(MPI_COMM_WORLD)), MPI_COMM_WORLD);
  ASSERT_EQ(static_cast<int>(all.size()), size_of(MPI_COMM_WORLD));
  for (int rank = 0; rank < size_of(MPI_COMM_WORLD); ++rank) EXPECT_EQ(all[rank], text_of(rank));
  EXPECT_EQ(gather_texts("", MPI_COMM_WORLD)[0], "");
}

TEST(LibraryLine, SaysWhichLibraryAndNotWhoBuiltItWhere) {
  EXPECT_EQ(library_line("MPICH Version:      4.2.1\nMPICH Release date: Wed\nMPICH Device:       ch4:ucx\n"
                         "MPICH configure:    --prefix=/home/joe\n"),
            "MPICH 4.2.1, device ch4:ucx");
  EXPECT_EQ(
      library_line("Open MPI v5.0.3, package: Open MPI joe@cn1 Distribution, ident: 5.0.3, repo rev: x"),
      "Open MPI v5.0.3");
  EXPECT_EQ(
      library_line("MPI VERSION    : CRAY MPICH version 8.1.30.8 (ANL base 3.4a2)\nMPI BUILD INFO : Sat\n"),
      "MPI VERSION : CRAY MPICH version 8.1.30.8 (ANL base 3.4a2)");
  EXPECT_EQ(library_line(""), "");
  EXPECT_FALSE(library_version().empty());
}

}  // namespace
}  // namespace minitaw::comm::mpi
