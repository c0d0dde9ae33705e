// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstdlib>
#include <dlfcn.h>
#include "fixtures.hpp"
#include "instruments/energy/meter.hpp"

namespace minitaw::energy {
namespace {
using test::Says;

/// Files as Linux shows them, and a stand-in for NVIDIA's library, held open so that its counter
/// lives as long as the test.
class Counters : public test::InFolder {
protected:
  Counters() { set(""); }

  ~Counters() override {
    EXPECT_EQ(reinterpret_cast<int (*)()>(dlsym(held_, "fakeNvmlOpenCount"))(), 0)
        << "every initialisation has its shutdown";
    dlclose(held_);
  }

  static void set(const char* mode) { ::setenv("FAKE_NVML", mode, 1); }

  void package(const std::string& zone, const std::string& name, const std::string& uj) const {
    write("powercap/" + zone + "/name", name + "\n");
    write("powercap/" + zone + "/max_energy_range_uj", "262143328850\n");
    write("powercap/" + zone + "/energy_uj", uj + "\n");
  }

  [[nodiscard]] Meter open(
      const std::string& device = "GPU-1", const char* nvml = FAKE_NVML) const {
    return Meter(device, {.cray = path("energy"), .nvml = nvml, .rapl = path("powercap")});
  }

  void expect_unavailable(Meter meter, const std::string& why) const {
    EXPECT_THAT(meter.source(), Says({"unavailable: ", why}));
    EXPECT_TRUE(std::isnan(meter.joules())) << why;
  }

private:
  void* held_ = dlopen(FAKE_NVML, RTLD_NOW | RTLD_LOCAL);
};

TEST_F(Counters, OfADeviceAreReadInMillijoulesUntilItIsLost) {
  Meter meter = open();
  EXPECT_EQ(meter.source(), "the device (NVML)");
  EXPECT_FALSE(meter.of_node());
  EXPECT_NEAR(meter.joules(), 1.5, 1e-6);
  EXPECT_NEAR(meter.joules(), 3, 1e-6);
  set("lost");
  EXPECT_TRUE(std::isnan(meter.joules()));
  set("");
  expect_unavailable(std::move(meter), "GPU is lost");  // a measurement with a hole is none
}

TEST_F(Counters, OfADeviceThatCannotBeReadSayWhy) {
  for (const auto& [mode, why] : {std::pair{"no-driver", "Driver Not Loaded"},
           {"lost", "GPU is lost"},
           {"no-energy", "Not Supported"},
           {"cut", "MIG"}}) {
    set(mode);
    expect_unavailable(open(), why);
  }
  set("");
  for (const auto& [device, nvml, why] : {std::tuple{"GPU-2", FAKE_NVML, "Not Found"},
           {"", FAKE_NVML, "no NVIDIA device"},
           {"GPU-1", "libm.so.6", "lacks a function"},
           {"GPU-1", "/nonexistent.so", "no /nonexistent.so"}})
    expect_unavailable(open(device, nvml), why);
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
  for (const char* zone : {"intel-rapl:0:0", "intel-rapl:2", "intel-rapl-mmio:0"})
    write("powercap/" + std::string(zone) + "/energy_uj", "9000000\n");
  EXPECT_NEAR(meter.joules(), 0.5 + 2, 1e-9);
  package("intel-rapl:1", "package-1", "6000000");
  EXPECT_NEAR(meter.joules(), 0.5 + 2 + 262143.32885 - 1, 1e-6);
}

TEST_F(Counters, OfTheWholeNodeComeFirst) {
  package("intel-rapl:0", "package-0", "7");
  write("energy", "123456 J 1466696 us\n");
  Meter meter = open();
  EXPECT_EQ(meter.source(), "the node (pm_counters)");
  EXPECT_TRUE(meter.of_node());
  write("energy", "123500 J 1566696 us\n");
  EXPECT_EQ(meter.joules(), 44);
}

TEST_F(Counters, OfNodesThatCannotBeReadSayWhyAndStaySo) {
  expect_unavailable(open(""), "powercap: no counter of a processor");
  package("intel-rapl:0", "package-0", "5000000");
  Meter meter = open("");
  package("intel-rapl:1", "package-1", "locked");
  expect_unavailable(open(""), "intel-rapl:1/energy_uj: not a number");  // half a node is none
  std::filesystem::remove(path("powercap/intel-rapl:0/energy_uj"));
  EXPECT_TRUE(std::isnan(meter.joules()));
  package("intel-rapl:0", "package-0", "6000000");
  expect_unavailable(std::move(meter), "intel-rapl:0/energy_uj: No such file");
  setenv("MINITAW_SHAPED_LINKS", "rate=1mbit", 1);
  write("energy", "1 J\n");
  expect_unavailable(open(""), "the nodes are parts of one machine");
  EXPECT_EQ(open().source(), "the device (NVML)");
  unsetenv("MINITAW_SHAPED_LINKS");
}

TEST_F(Counters, TheDriversVersionCanBeAskedAlone) {
  EXPECT_EQ(nvml::driver_version(FAKE_NVML), "580.65.06");
  EXPECT_EQ(nvml::driver_version("/nonexistent.so"), "");
  set("no-driver");
  EXPECT_EQ(nvml::driver_version(FAKE_NVML), "");
}
}  // namespace
}  // namespace minitaw::energy
