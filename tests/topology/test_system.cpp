// SPDX-License-Identifier: BSD-3-Clause
#include <cstdlib>
#include "fixtures.hpp"
#include "topology/system.hpp"

namespace minitaw::topology {
namespace {
struct SystemFiles : test::InFolder {};

TEST_F(SystemFiles, HaveLinesAndEntries) {
  const auto file = write("os-release", "PRETTY_NAME=Debian\nNAME=X\nNAME=Y\n");
  EXPECT_EQ(entry_of(file, "NAME="), "X");
  EXPECT_EQ(entry_of(file, "ID="), std::nullopt);
  EXPECT_EQ(line_of(file), "PRETTY_NAME=Debian");
  EXPECT_EQ(line_of(path("none")), "");
}

/// What ranks hear for whom MPI knows `ranks`, where the launcher of these has set variables.
std::string refusal(int ranks, const std::vector<std::pair<const char*, const char*>>& variables) {
  for (const char* name :
      {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"})
    unsetenv(name);
  for (const auto& [name, value] : variables)
    setenv(name, value, 1);
  return test::refusal_of([=] { require_launched_together(ranks); });
}

constexpr const char* step = "SLURM_STEP_NUM_TASKS";

TEST(Launcher, NobodySaysAnything) {
  EXPECT_EQ(refusal(5, {}), "");
  EXPECT_EQ(refusal(1, {{"SLURM_NTASKS", "8"}}), "") << "of the allocation, not of a step";
  for (const char* text : {"", "many", "-3", "0"})
    EXPECT_EQ(refusal(1, {{step, text}}), "");
}

TEST(Launcher, RanksThatAreAloneAreRefused) {
  EXPECT_EQ(refusal(6, {{step, "6"}}), "");
  EXPECT_THAT(refusal(1, {{step, "6"}}), test::Says({"6 ranks", "--mpi=pmi2"}));
}

TEST(Launcher, OneRankOfAnMpiexecInALargerStepIsFine) {
  EXPECT_EQ(refusal(1, {{step, "3"}, {"PMI_SIZE", "1"}}), "");
  EXPECT_NE(refusal(1, {{step, "3"}, {"PMI_SIZE", "2"}}), "") << "mpiexec of another MPI";
}
}  // namespace
}  // namespace minitaw::topology
