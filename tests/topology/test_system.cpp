// SPDX-License-Identifier: BSD-3-Clause
#include "topology/system.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <sstream>

#include "base/error.hpp"

namespace minitaw::topology {
namespace {
std::string ranges(const std::vector<int>& numbers) { return ranges_text(numbers); }

TEST(System, CoresAreRanges) {
  EXPECT_EQ(ranges({}), "none");
  EXPECT_EQ(ranges({5}), "5");
  EXPECT_EQ(ranges({0, 1}), "0-1");
  EXPECT_EQ(ranges({0, 1, 2, 3, 8}), "0-3,8");
  EXPECT_EQ(ranges({1, 3, 5, 6}), "1,3,5-6");
}

std::string model(const std::string& text) {
  std::istringstream stream(text);
  return cpu_model(stream);
}

TEST(System, EveryArchitectureNamesItsProcessorInItsOwnWay) {
  EXPECT_EQ(
      model("processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon X  \nmodel name\t: other\n"), "Xeon X");
  EXPECT_EQ(model("processor : 0\nCPU implementer : 0x41\nCPU architecture: 8\nCPU part : 0xd4f\n"),
      "ARM implementer 0x41 part 0xd4f");
  EXPECT_EQ(model("processor : 0\ncpu : POWER9, altivec supported\n"), "POWER9, altivec supported");
  EXPECT_EQ(model(""), "unknown");
}

TEST(System, CountsSocketsCoresAndThreads) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "minitaw_test_cpus";
  std::filesystem::remove_all(folder);
  for (int cpu = 0; cpu < 12; ++cpu) {  // two sockets of three cores with two threads each
    const auto topology = folder / ("cpu" + std::to_string(cpu)) / "topology";
    std::filesystem::create_directories(topology);
    std::ofstream(topology / "physical_package_id") << cpu % 2 << "\n";
    std::ofstream(topology / "core_id") << cpu / 2 % 3 << "\n";
  }
  std::filesystem::create_directories(folder / "cpu12");  // switched off
  std::filesystem::create_directories(folder / "cpufreq/topology");
  EXPECT_EQ(cpu_counts(folder.string()), "2 sockets, 6 cores, 12 threads");
  std::filesystem::remove_all(folder);
  EXPECT_EQ(cpu_counts(folder.string()), "unknown cores");
}

TEST(System, CountsActivePortsOfAdapters) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "minitaw_test_adapters";
  std::filesystem::remove_all(folder);
  EXPECT_EQ(active_ports(folder.string()), 0);
  const auto add = [&](const char* port, const char* state) {
    std::filesystem::create_directories(folder / port);
    std::ofstream(folder / port / "state") << state << "\n";
  };
  add("mlx5_0/ports/1", "4: ACTIVE");
  add("mlx5_1/ports/1", "1: DOWN");
  add("mlx5_2/ports/1", "4: ACTIVE");
  add("mlx5_2/ports/2", "4: ACTIVE");
  add("mlx5_3/ports/1", "5: ACTIVE_DEFER");
  std::filesystem::create_directories(folder / "mlx5_4");  // has no ports yet
  EXPECT_EQ(active_ports(folder.string()), 3);
  std::filesystem::remove_all(folder);
}

TEST(System, TheDistributionHasAName) {
  std::istringstream text("NAME=\"X\"\nPRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\n");
  EXPECT_EQ(distribution(text), "Debian GNU/Linux 13 (trixie)");
  std::istringstream empty;
  EXPECT_EQ(distribution(empty), "unknown");
}

TEST(System, ThisMachineHasThem) {
  EXPECT_NE(cpu_text(), ", ");
  EXPECT_TRUE(os_text().starts_with("Linux "));
  EXPECT_GE(network_adapters(), 1);
}

/// An environment in which no launcher has been at work, even if one has.
struct Launcher : testing::Test {
  Launcher() {
    for (const char* name : {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"})
      unsetenv(name);
  }
  static void say(const char* name, const char* value) { setenv(name, value, 1); }
};

TEST_F(Launcher, NobodySaysAnything) {
  require_launched_together(5);
  say("SLURM_NTASKS", "8");  // of the allocation, not of a step: a batch script starts a program of one rank
  for (const char* text : {"", "many", "-3", "0"}) {
    say("SLURM_STEP_NUM_TASKS", text);
    require_launched_together(1);
  }
}

TEST_F(Launcher, RanksOfSrunThatAreAloneAreRefused) {
  say("SLURM_STEP_NUM_TASKS", "6");
  require_launched_together(6);
  EXPECT_THAT([] { require_launched_together(1); },
      testing::ThrowsMessage<InputError>(testing::AllOf(
          testing::HasSubstr("6 ranks"), testing::HasSubstr("--mpi=pmi2"), testing::Not(testing::HasSubstr("\n")))));
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
