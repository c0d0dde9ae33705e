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

  [[nodiscard]] Meter open(
      const std::string& device = "GPU-1", const char* nvml = FAKE_NVML_whole) const {
    return Meter(device, {.cray = path("energy"), .nvml = nvml});
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

TEST_F(Counters, OfTheWholeNodeComeFirst) {
  write("energy", "123456 J 1466696 us\n");
  Meter meter = open();
  EXPECT_EQ(meter.source(), "the node (pm_counters)");
  EXPECT_TRUE(meter.of_node());
  write("energy", "123500 J 1566696 us\n");
  EXPECT_EQ(meter.joules(), 123500 - 123456);
}

TEST_F(Counters, OfNodesThatCannotBeReadSayWhyAndStaySo) {
  EXPECT_THAT(open("").source(), HasSubstr("energy: No such file or directory; no NVIDIA"));
  write("energy", "locked");
  EXPECT_THAT(open("").source(), HasSubstr("energy: not a number; "));
  write("energy", "123456 J 1466696 us\n");
  Meter meter = open("");
  std::filesystem::remove(path("energy"));
  EXPECT_TRUE(std::isnan(meter.joules()));
  EXPECT_THAT(meter.source(), EndsWith("energy: No such file or directory"));
  write("energy", "123500 J 1566696 us\n");
  EXPECT_TRUE(std::isnan(meter.joules()));
  setenv("MINITAW_SHAPED_LINKS", "rate=1mbit", 1);
  EXPECT_THAT(open("").source(), HasSubstr("the nodes are parts of one machine; "));
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
