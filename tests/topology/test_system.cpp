// SPDX-License-Identifier: BSD-3-Clause
#include <cstdlib>
#include <gmock/gmock.h>
#include "base/error.hpp"
#include "fixtures.hpp"
#include "topology/system.hpp"

namespace minitaw::topology {
namespace {
TEST(System, CoresAreRanges) {
  using Cores = std::vector<int>;
  for (const auto& [cores, text] : {std::pair{Cores{}, "none"},
           {{5}, "5"},
           {{0, 1}, "0-1"},
           {{0, 1, 2, 3, 8}, "0-3,8"},
           {{1, 3, 5, 6}, "1,3,5-6"}})
    EXPECT_EQ(ranges_text(cores), text);
}

struct SystemFiles : test::InFolder {};

TEST_F(SystemFiles, HaveLinesAndEntries) {
  const auto file = path("os-release");
  write("os-release", "NAME=\"X\"\nPRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\nPRETTY_NAME=Y\n");
  EXPECT_EQ(line_of(file), "NAME=\"X\"");
  EXPECT_EQ(entry_of(file, "PRETTY_NAME="), "\"Debian GNU/Linux 13 (trixie)\"");
  EXPECT_EQ(entry_of(file, "ID="), std::nullopt);
  EXPECT_EQ(entry_of(path("none"), ""), std::nullopt);
  EXPECT_EQ(line_of(path("none")), "");
}

/// An environment in which no launcher has been at work, even if one has.
struct Launcher : testing::Test {
  Launcher() {
    for (const char* name :
        {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"})
      unsetenv(name);
  }

  static void say(const char* name, const char* value) { setenv(name, value, 1); }
};

TEST_F(Launcher, NobodySaysAnything) {
  require_launched_together(5);
  say("SLURM_NTASKS",
      "8");  // of the allocation, not of a step: a batch script starts a program of one rank
  for (const char* text : {"", "many", "-3", "0"}) {
    say("SLURM_STEP_NUM_TASKS", text);
    require_launched_together(1);
  }
}

TEST_F(Launcher, RanksOfSrunThatAreAloneAreRefused) {
  say("SLURM_STEP_NUM_TASKS", "6");
  require_launched_together(6);
  EXPECT_THAT([] { require_launched_together(1); },
      testing::ThrowsMessage<InputError>(testing::AllOf(testing::HasSubstr("6 ranks"),
          testing::HasSubstr("--mpi=pmi2"),
          testing::Not(testing::HasSubstr("\n")))));
}

TEST_F(Launcher, OneRankOfAnMpiexecInALargerStepIsFine) {
  say("SLURM_STEP_NUM_TASKS", "3");
  say("PMI_SIZE", "1");
  require_launched_together(1);
  say("PMI_SIZE", "2");  // mpiexec of another MPI
  EXPECT_THROW(require_launched_together(1), InputError);
}
}  // namespace
}  // namespace minitaw::topology
