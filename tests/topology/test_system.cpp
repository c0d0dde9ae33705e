// SPDX-License-Identifier: BSD-3-Clause
#include <cstdlib>
#include <sched.h>
#include <thread>
#include "base/range.hpp"
#include "fixtures.hpp"
#include "topology/control_groups.hpp"
#include "topology/processors.hpp"
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

struct ControlGroups : test::InFolder {
  using Folders = std::vector<std::filesystem::path>;

  [[nodiscard]] Folders of(const std::string& controller) const {
    return control_groups(controller, folder_);
  }
};

TEST_F(ControlGroups, OfBothVersionsAreThoseOfTheProcessAndThoseAround) {
  write("cgroup", "4:cpu,cpuacct:/a/job\n2:name=systemd:/cpu\n3:memory:/m\n0::/slice/step\n");
  write("mountinfo",
      "27 1 254:0 / / rw - ext4 /dev/vda rw\n"
      "32 31 0:29 / /c/cpu rw shared:9 master:1 - cgroup cgroup rw,cpuacct,cpu\n"
      "33 31 0:30 / /c/memory rw - cgroup cgroup rw,memory\n"
      "40 31 0:37 / /c/systemd rw - cgroup cgroup rw,name=systemd\n"
      "41 31 0:38 / /c/unified rw - cgroup2 cgroup2 rw\n");
  const Folders unified = {"/c/unified/slice/step", "/c/unified/slice", "/c/unified"};
  Folders expected = {"/c/cpu/a/job", "/c/cpu/a", "/c/cpu"};
  expected.insert(expected.end(), unified.begin(), unified.end());
  EXPECT_EQ(of("cpu"), expected);
  expected = {"/c/memory/m", "/c/memory"};
  expected.insert(expected.end(), unified.begin(), unified.end());
  EXPECT_EQ(of("memory"), expected);
  EXPECT_EQ(of("pids"), unified);
}

/// A container sees its own group as the first one, whatever its name outside.
TEST_F(ControlGroups, OfAContainerBeginWithItsOwn) {
  write("mountinfo", "32 31 0:29 /docker/7 /c/cpu rw - cgroup cgroup rw,cpu\n");
  write("cgroup", "4:cpu:/docker/7/job\n");
  EXPECT_EQ(of("cpu"), (Folders{"/c/cpu/job", "/c/cpu"}));
  for (const char* group : {"/docker/7", "/docker/77", "/", "/../8"}) {
    write("cgroup", std::string("4:cpu:") + group + "\n");
    EXPECT_EQ(of("cpu"), Folders{"/c/cpu"}) << group;
  }
  write("mountinfo", "32 31 0:29 /../.. /c rw - cgroup2 cgroup2 rw\n");
  write("cgroup", "0::/\n");
  EXPECT_EQ(of("cpu"), Folders{"/c"});
}

TEST_F(ControlGroups, HaveProcessorQuotas) {
  write("cgroup", "4:cpu:/a/job\n0::/step\n");
  write("mountinfo",
      "32 31 0:29 / " + path("v1") + " rw - cgroup cgroup rw,cpu\n41 31 0:38 / " + path("v2") +
          " rw - cgroup2 cgroup2 rw\n");
  for (const auto& [folder, quota] :
      {std::pair{"v1/a/job/", "-1"}, {"v1/a/", "150000"}, {"v1/", "many"}}) {
    write(folder + std::string("cpu.cfs_quota_us"), quota);
    write(folder + std::string("cpu.cfs_period_us"), "50000\n");
  }
  write("v2/step/cpu.max", "20000 80000\n");
  write("v2/cpu.max", "max 100000\n");
  const std::vector<ProcessorQuota> quotas = processor_quotas(folder_);
  EXPECT_EQ(list_of(quotas, &ProcessorQuota::processors), (std::vector{3.0, 0.25}));
  EXPECT_EQ(list_of(quotas, &ProcessorQuota::file),
      (std::vector{path("v1/a/cpu.cfs_quota_us"), path("v2/step/cpu.max")}));
  EXPECT_NE(quotas[0].group, quotas[1].group);
  std::filesystem::create_directory_symlink(path("v2"), path("elsewhere"));
  write("mountinfo", "41 31 0:38 / " + path("elsewhere") + " rw - cgroup2 cgroup2 rw\n");
  EXPECT_EQ(processor_quotas(folder_).at(0).group, quotas[1].group) << "by another name";
}

/// A thread that is bound afterwards, as runtime libraries do, changes nothing.
TEST(Processors, OfTheProcessAreThoseThatItBeganWith) {
  const std::vector<int> all = allowed_processors();
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(processors_of_thread(), all);
  std::jthread([&] {
    cpu_set_t last;
    CPU_ZERO(&last);
    CPU_SET(all.back(), &last);
    ASSERT_EQ(sched_setaffinity(0, sizeof last, &last), 0);
    EXPECT_EQ(processors_of_thread(), std::vector{all.back()});
    EXPECT_EQ(allowed_processors(), all);
  });
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
  for (const std::string name : {"PMI_SIZE", "OMPI_COMM_WORLD_SIZE", step})
    EXPECT_THAT(refusal(1, {{name.c_str(), "6"}}),
        test::Says({name + "=6", "6 ranks", "--mpi=pmi2", "unset " + name}));
}

TEST(Launcher, OneRankOfAnMpiexecInALargerStepIsFine) {
  EXPECT_EQ(refusal(1, {{step, "3"}, {"PMI_SIZE", "1"}}), "");
  EXPECT_NE(refusal(1, {{step, "3"}, {"PMI_SIZE", "2"}}), "") << "mpiexec of another MPI";
}
}  // namespace
}  // namespace minitaw::topology
