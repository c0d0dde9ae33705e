// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstdlib>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include "fixtures.hpp"
#include "instruments/energy/meter.hpp"

namespace minitaw::energy {
namespace {
using testing::EndsWith, testing::HasSubstr, testing::StartsWith;

/// Files as Linux shows them, and a stand-in for NVIDIA's library, held open so that its counter
/// lives as long as the test.
class Counters : public test::InFolder {
protected:
  Counters() { set(""); }

  ~Counters() override {
    EXPECT_EQ(reinterpret_cast<int (*)()>(dlsym(held_, "fakeNvmlOpenCount"))(), 0)
        << "every initialisation has its shutdown";
    dlclose(held_);
    set("");
  }

  static void set(const char* mode) { ::setenv("FAKE_NVML", mode, 1); }

  void package(
      const std::string& zone, const std::string& name, const std::string& microjoules) const {
    write("powercap/" + zone + "/name", name + "\n");
    write("powercap/" + zone + "/max_energy_range_uj", "262143328850\n");
    write("powercap/" + zone + "/energy_uj", microjoules + "\n");
  }

  [[nodiscard]] Meter open(
      const std::string& device = "GPU-1", const char* nvml = FAKE_NVML_whole) const {
    return Meter(device, {.cray = path("energy"), .nvml = nvml, .rapl = path("powercap")});
  }

private:
  void* held_ = dlopen(FAKE_NVML_whole, RTLD_NOW | RTLD_LOCAL);
};

TEST_F(Counters, OfADeviceAreReadInMillijoules) {
  Meter meter = open();
  EXPECT_EQ(meter.source(), "the device (NVML)");
  EXPECT_FALSE(meter.of_node());
  EXPECT_NEAR(meter.joules(), 1.5, 1e-6);
  EXPECT_NEAR(meter.joules(), 3, 1e-6);
}

TEST_F(Counters, OfADeviceThatCannotBeReadSayWhy) {
  for (const auto& [mode, word] : {std::pair{"no-driver", "Driver Not Loaded"},
           {"lost", "GPU is lost"},
           {"no-energy", "Not Supported"},
           {"cut", "MIG"}}) {
    set(mode);
    Meter meter = open();
    EXPECT_THAT(meter.source(), testing::AllOf(StartsWith("unavailable: "), HasSubstr(word)));
    EXPECT_TRUE(std::isnan(meter.joules())) << mode;
  }
  set("");
  EXPECT_THAT(open("GPU-2").source(), HasSubstr("Not Found"));
  EXPECT_THAT(open("").source(), HasSubstr("no NVIDIA device"));
  EXPECT_THAT(open("GPU-1", FAKE_NVML_bare).source(), HasSubstr("lacks a function"));
  EXPECT_THAT(open("GPU-1", "/nonexistent/libnvidia-ml.so.1").source(), HasSubstr("no /nonexist"));
}

TEST_F(Counters, OfADeviceThatIsLostLaterStayLost) {
  Meter meter = open();
  EXPECT_GT(meter.joules(), 0);
  set("lost");
  EXPECT_TRUE(std::isnan(meter.joules()));
  EXPECT_EQ(meter.source(), "unavailable: NVML's energy: GPU is lost");
  set("");
  EXPECT_TRUE(std::isnan(meter.joules())) << "a measurement with a hole is none";
}

TEST_F(Counters, OfProcessorsAreAddedAndFollowedThroughTheEndOfTheirRange) {
  package("intel-rapl:0", "package-0", "262143000000");
  package("intel-rapl:1", "package-1", "5000000");
  package("intel-rapl:0:0", "dram", "1");  // parts and wholes of packages
  package("intel-rapl:2", "psys", "1");
  package("intel-rapl-mmio:0", "package-0", "1");
  Meter meter = open("");
  EXPECT_EQ(meter.source(), "the processors (RAPL)");
  EXPECT_TRUE(meter.of_node());
  package("intel-rapl:0", "package-0", "171150");  // 328850 to the end, 171150 after it
  package("intel-rapl:1", "package-1", "7000000");
  package("intel-rapl:2", "psys", "9000000");
  EXPECT_NEAR(meter.joules(), 0.5 + 2, 1e-9) << "J";
  package("intel-rapl:1", "package-1", "6000000");
  EXPECT_NEAR(meter.joules(), 0.5 + 2 + 262143.32885 - 1, 1e-6);
}

TEST_F(Counters, OfTheWholeNodeComeFirst) {
  package("intel-rapl:0", "package-0", "7");
  write("energy", "123456 J 1466696 us\n");
  Meter meter = open();
  EXPECT_EQ(meter.source(), "the node (pm_counters)");
  EXPECT_TRUE(meter.of_node());
  package("intel-rapl:0", "package-0", "9000000");
  write("energy", "123500 J 1566696 us\n");
  EXPECT_EQ(meter.joules(), 123500 - 123456);
}

TEST_F(Counters, OfNodesThatCannotBeReadSayWhyAndStaySo) {
  EXPECT_THAT(open("").source(), EndsWith("powercap: no counter of a processor"));
  package("intel-rapl:0", "package-0", "5000000");
  Meter meter = open("");
  package("intel-rapl:1", "package-1", "locked");
  EXPECT_THAT(open("").source(), EndsWith("intel-rapl:1/energy_uj: not a number"))
      << "half a node is none";
  std::filesystem::remove(path("powercap/intel-rapl:0/energy_uj"));
  EXPECT_TRUE(std::isnan(meter.joules()));
  EXPECT_THAT(meter.source(), EndsWith("intel-rapl:0/energy_uj: No such file or directory"));
  package("intel-rapl:0", "package-0", "6000000");
  EXPECT_TRUE(std::isnan(meter.joules()));
  setenv("MINITAW_SHAPED_LINKS", "rate=1mbit", 1);
  EXPECT_THAT(open("").source(), EndsWith("the nodes are parts of one machine"));
  unsetenv("MINITAW_SHAPED_LINKS");
}

TEST_F(Counters, TheDriversVersionCanBeAskedAlone) {
  EXPECT_EQ(nvml::driver_version(FAKE_NVML_whole), "580.65.06");
  EXPECT_EQ(nvml::driver_version("/nonexistent/libnvidia-ml.so.1"), "");
  set("no-driver");
  EXPECT_EQ(nvml::driver_version(FAKE_NVML_whole), "");
}
}  // namespace
}  // namespace minitaw::energy
