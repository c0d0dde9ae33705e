// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <dlfcn.h>
#include "fixtures.hpp"
#include "instruments/energy/meter.hpp"

namespace minitaw::energy {
namespace {
/// Files as Linux shows them, and a stand-in for NVIDIA's library, held open so that its counter
/// lives as long as the test.
class Counters : public test::InFolder {
protected:
  Counters() { fail(""); }

  ~Counters() override {
    EXPECT_EQ(reinterpret_cast<int (*)()>(dlsym(held_, "fakeNvmlOpenCount"))(), 0)
        << "every initialisation has its shutdown";
    dlclose(held_);
  }

  static void fail(const char* what) { ::setenv("FAKE_NVML", what, 1); }

  void zone(const std::string& folder, const char* uj, const char* name = "package-0") const {
    write("powercap/" + folder + "/name", name);
    write("powercap/" + folder + "/max_energy_range_uj", "262143328850\n");
    write("powercap/" + folder + "/energy_uj", uj);
  }

  [[nodiscard]] Meter open(const char* device = "GPU-1", const char* nvml = FAKE_NVML) const {
    return Meter(device, {.cray = path("energy"), .nvml = nvml, .rapl = path("powercap")});
  }

  static void expect_unavailable(Meter meter, const std::string& why) {
    EXPECT_THAT(meter.source(), test::Says({"unavailable: ", why}));
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
  fail("energy");
  EXPECT_TRUE(std::isnan(meter.joules()));
  fail("");
  expect_unavailable(std::move(meter), "GPU is lost");  // a measurement with a hole is none
}

TEST_F(Counters, OfADeviceThatCannotBeReadSayWhy) {
  expect_unavailable(open("GPU-2"), "Not Found");
  expect_unavailable(open(""), "no NVIDIA device");
  expect_unavailable(open("GPU-1", "libm.so.6"), "lacks a function");
  expect_unavailable(open("GPU-1", "/nonexistent.so"), "no /nonexistent.so");
  fail("energy");
  expect_unavailable(open(), "GPU is lost");
  fail("MIG");
  expect_unavailable(open(), "MIG");
  fail("nvmlInit");
  expect_unavailable(open(), "Driver Not Loaded");
  EXPECT_EQ(nvml::driver_version(FAKE_NVML), "");
}

TEST_F(Counters, OfProcessorsAreAddedAndFollowedThroughTheEndOfTheirRange) {
  const auto count_parts_and_wholes = [&](const char* uj) {
    zone("intel-rapl:0:0", uj, "dram");
    zone("intel-rapl:2", uj, "psys");
    zone("intel-rapl-mmio:0", uj);
  };
  zone("intel-rapl:0", "262143000000");
  zone("intel-rapl:1", "5000000");
  count_parts_and_wholes("1");
  Meter meter = open("");
  EXPECT_EQ(meter.source(), "the processors (RAPL)");
  EXPECT_TRUE(meter.of_node());
  zone("intel-rapl:0", "171150");  // 328850 to the end, 171150 after it
  zone("intel-rapl:1", "7000000");
  count_parts_and_wholes("9000000");
  EXPECT_NEAR(meter.joules(), 0.5 + 2, 1e-9);
  zone("intel-rapl:1", "6000000");
  EXPECT_NEAR(meter.joules(), 0.5 + 2 + 262143.32885 - 1, 1e-6);
}

TEST_F(Counters, OfTheWholeNodeComeFirst) {
  zone("intel-rapl:0", "7");
  write("energy", "123456 J 1466696 us\n");
  Meter meter = open();
  EXPECT_EQ(meter.source(), "the node (pm_counters)");
  EXPECT_TRUE(meter.of_node());
  write("energy", "123500 J 1566696 us\n");
  EXPECT_EQ(meter.joules(), 44);
}

TEST_F(Counters, OfNodesThatCannotBeReadSayWhyAndStaySo) {
  expect_unavailable(open(""), "powercap: no counter of a processor");
  zone("intel-rapl:0", "5000000");
  Meter meter = open("");
  zone("intel-rapl:1", "locked");
  expect_unavailable(open(""), "intel-rapl:1/energy_uj: not a number");  // half a node is none
  std::filesystem::remove(path("powercap/intel-rapl:0/energy_uj"));
  EXPECT_TRUE(std::isnan(meter.joules()));
  zone("intel-rapl:0", "6000000");
  expect_unavailable(std::move(meter), "intel-rapl:0/energy_uj: No such file");
}

TEST_F(Counters, OfNodesThatAreOneMachineAreNotRead) {
  ::setenv("MINITAW_SHAPED_LINKS", "rate=1mbit", 1);
  write("energy", "1 J\n");
  expect_unavailable(open(""), "the nodes are parts of one machine");
  EXPECT_EQ(open().source(), "the device (NVML)");
  ::unsetenv("MINITAW_SHAPED_LINKS");
}

TEST_F(Counters, TheDriversVersionCanBeAskedAlone) {
  EXPECT_EQ(nvml::driver_version(FAKE_NVML), "580.65.06");
  EXPECT_EQ(nvml::driver_version("/nonexistent.so"), "");
}
}  // namespace
}  // namespace minitaw::energy
