#include "topology/launcher.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.hpp"

namespace minitaw::topology {
namespace {

/// An environment in which no launcher has been at work, even if one has.
struct Launcher : testing::Test {
  Launcher() {
    for (const char* name : {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"})
      unsetenv(name);
  }
  static void say(const char* name, const char* value) { setenv(name, value, 1); }
};

TEST_F(Launcher, NobodySaysAnything) {
  EXPECT_EQ(announced_ranks(), 0);
  require_launched_together(1);
  require_launched_together(5);
}

TEST_F(Launcher, RanksOfSrunThatAreAloneAreRefused) {
  say("SLURM_STEP_NUM_TASKS", "6");
  require_launched_together(6);
  try {
    require_launched_together(1);
    FAIL() << "accepted";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("6 ranks"), testing::HasSubstr("--mpi=pmi2"),
                                             testing::Not(testing::HasSubstr("\n"))));
  }
}

TEST_F(Launcher, OneRankOfAnMpiexecInALargerStepIsFine) {
  say("SLURM_STEP_NUM_TASKS", "3");
  say("PMI_SIZE", "1");
  require_launched_together(1);
  say("PMI_SIZE", "2");  // mpiexec of another MPI
  EXPECT_THROW(require_launched_together(1), InputError);
}

TEST_F(Launcher, ABatchScriptStartsAProgramOfOneRank) {
  say("SLURM_NTASKS", "8");  // of the allocation, not of a step
  require_launched_together(1);
}

TEST_F(Launcher, WordsThatAreNoNumberSayNothing) {
  for (const char* text : {"", "many", "-3", "0"}) {
    say("SLURM_STEP_NUM_TASKS", text);
    require_launched_together(1);
  }
}

}  // namespace
}  // namespace minitaw::topology
