// SPDX-License-Identifier: BSD-3-Clause
#include <cstdlib>
#include <dlfcn.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include "fixtures.hpp"
#include "instruments/energy/meter.hpp"

namespace minitaw::energy {
namespace {
using testing::HasSubstr, testing::StartsWith;

/// The stand-in, held open so that its counters live as long as the test.
class Nvml : public ::testing::Test {
protected:
  Nvml() { set(""); }

  ~Nvml() override {
    meter_.reset();
    EXPECT_EQ(reinterpret_cast<int (*)()>(dlsym(held_, "fakeNvmlOpenCount"))(), 0)
        << "every initialisation has its shutdown";
    dlclose(held_);
    set("");
  }

  static void set(const std::string& mode) { ::setenv("FAKE_NVML", mode.c_str(), 1); }

  Meter& open(const std::string& mode,
      const std::string& uuid = "GPU-1",
      const char* file = FAKE_NVML_new) {
    set(mode);
    meter_.reset();
    meter_ = make_meter(uuid, file);
    return *meter_;
  }

private:
  void* held_ = dlopen(FAKE_NVML_new, RTLD_NOW | RTLD_LOCAL);
  std::unique_ptr<Meter> meter_;
};

TEST_F(Nvml, EveryQuantityHasItsUnit) {
  Meter& meter = open("");
  EXPECT_EQ(meter.fault(), "");
  EXPECT_THAT(meter.name(), testing::MatchesRegex("nvml 12\\.580\\.65, [0-9.]+ ms a reading"));
  const DeviceSample first = meter.read(), next = meter.read();
  EXPECT_EQ(std::tuple(next.clock_mhz + 1, next.memory_clock_mhz - 1, next.temperature_c - 1),
      std::tuple(first.clock_mhz, first.memory_clock_mhz, first.temperature_c));
  EXPECT_NEAR(next.power_w - first.power_w, 1, 1e-9) << "W, not mW";
  EXPECT_NEAR(std::fmod(first.power_w, 1), 0.25, 1e-9);
  EXPECT_EQ(first.clock_mhz + first.temperature_c, 1980 + 40);
  EXPECT_EQ(first.throttle ^ next.throttle, 0x44U ^ 0x1U);
  const double before = meter.energy();
  EXPECT_NEAR(meter.energy() - before, 1.5, 1e-6) << "J, not mJ";
}

TEST_F(Nvml, WhatTheDeviceDoesNotSupportIsMissingAlone) {
  const std::vector<std::pair<const char*, double DeviceSample::*>> parts = {
      {"clock", &DeviceSample::clock_mhz},
      {"memory-clock", &DeviceSample::memory_clock_mhz},
      {"temperature", &DeviceSample::temperature_c},
      {"power", &DeviceSample::power_w}};
  for (const auto& [lacking, part] : parts) {
    Meter& meter = open(std::string("no-") + lacking);
    const DeviceSample sample = meter.read();
    EXPECT_EQ(meter.fault(), "");
    for (const auto& [name, other] : parts)
      EXPECT_EQ(std::isnan(sample.*other), part == other) << lacking << name;
    EXPECT_NE(sample.throttle, throttle_unknown);
    EXPECT_FALSE(std::isnan(meter.energy()));
    EXPECT_THAT(meter.name(), HasSubstr("without ")) << lacking;
  }
  EXPECT_EQ(open("no-reasons").read().throttle, throttle_unknown);
  EXPECT_TRUE(std::isnan(open("no-energy").energy()));
  EXPECT_THAT(open("no-energy").name(), HasSubstr("without energy"));
}

TEST_F(Nvml, AnOlderLibraryIsReadAsFarAsItGoes) {
  Meter& meter = open("", "GPU-1", FAKE_NVML_old);
  EXPECT_EQ(meter.fault(), "");
  EXPECT_EQ(meter.read().throttle, 8U) << "under the function's older name";
  EXPECT_TRUE(std::isnan(meter.energy()));
  EXPECT_THAT(meter.name(), HasSubstr("without energy"));
}

TEST_F(Nvml, WhatCannotBeReadSaysWhy) {
  for (const auto& [mode, word] :
      {std::pair{"no-driver", "Driver Not Loaded"}, {"lost", "GPU is lost"}, {"cut", "MIG"}}) {
    Meter& meter = open(mode);
    EXPECT_THAT(meter.fault(), HasSubstr(word)) << mode;
    EXPECT_TRUE(std::isnan(meter.read().clock_mhz) && std::isnan(meter.energy())) << mode;
  }
  EXPECT_THAT(open("", "GPU-2").fault(), HasSubstr("GPU-2: Not Found"));
  EXPECT_EQ(open("", "").fault(), "no NVIDIA device");
  EXPECT_THAT(open("", "GPU-1", FAKE_NVML_bare).fault(), HasSubstr("lacks a function"));
  EXPECT_THAT(
      open("", "GPU-1", "/nonexistent/libnvidia-ml.so.1").fault(), StartsWith("no /nonexistent"));
}

TEST_F(Nvml, ADeviceThatIsLostLaterStaysLost) {
  Meter& meter = open("");
  EXPECT_FALSE(std::isnan(meter.read().power_w));
  set("lost");
  EXPECT_TRUE(std::isnan(meter.read().power_w));
  EXPECT_THAT(meter.fault(), HasSubstr("GPU is lost"));
  set("");
  EXPECT_TRUE(std::isnan(meter.read().clock_mhz)) << "a measurement with a hole is none";
  EXPECT_TRUE(std::isnan(meter.energy()));
}

TEST_F(Nvml, VersionsCanBeAskedAlone) {
  EXPECT_EQ(nvml::driver_version(FAKE_NVML_new) + " " + nvml::library_version(FAKE_NVML_new),
      "580.65.06 12.580.65");
  EXPECT_EQ(nvml::driver_version("/nonexistent/libnvidia-ml.so.1"), "");
  set("no-driver");
  EXPECT_EQ(nvml::driver_version(FAKE_NVML_new), "");
}

/// Folders as Linux shows them.
class NodeMeter : public test::InFolder {
protected:
  void set(const std::string& name, const std::string& content) const {
    write(name, content + "\n");
  }

  void package(
      const std::string& zone, const std::string& name, const std::string& microjoules) const {
    set("powercap/" + zone + "/name", name);
    set("powercap/" + zone + "/max_energy_range_uj", "262143328850");
    set("powercap/" + zone + "/energy_uj", microjoules);
  }

  [[nodiscard]] std::unique_ptr<Meter> open(double stale = 100) const {
    return make_node_meter({path("powercap"), path("cray"), path("hwmon"), stale});
  }
};

TEST_F(NodeMeter, AddsPackagesAndFollowsThemThroughTheEndOfTheirRange) {
  package("intel-rapl:0", "package-0", "262143000000");
  package("intel-rapl:1", "package-1", "5000000");
  package("intel-rapl:0:0", "dram", "1");  // parts and wholes of packages
  package("intel-rapl:2", "psys", "1");
  package("intel-rapl-mmio:0", "package-0", "1");
  const auto meter = open();
  EXPECT_THAT(meter->name(),
      testing::MatchesRegex(
          "energy of 2 packages \\(rapl\\), divided evenly .*, [0-9.]+ ms a reading"));
  const double before = meter->energy();
  package("intel-rapl:0", "package-0", "171150");  // 328850 to the end, 171150 after it
  package("intel-rapl:1", "package-1", "7000000");
  package("intel-rapl:2", "psys", "9000000");
  EXPECT_NEAR(meter->energy() - before, 0.5 + 2, 1e-9) << "J";
  package("intel-rapl:1", "package-1", "6000000");
  EXPECT_TRUE(std::isnan(meter->read().power_w));
  package("intel-rapl:1", "package-1", "5000000");
  EXPECT_NEAR(meter->energy() - before, 0.5 + 2 + 2 * 262143.32885 - 2, 1e-6)
      << "read() follows, too";
}

TEST_F(NodeMeter, ReadsCraysCountersOfTheWholeNodeWhileTheyAreRenewed) {
  package("intel-rapl:0", "package-0", "7");
  set("cray/energy", "123456 J 1466696 us");
  set("cray/power", "310 W 1466696 us");
  set("cray/freshness", "17");
  set("hwmon/hwmon0/name", "power_meter");
  set("hwmon/hwmon0/power1_average", "400500000");
  const auto meter = open(0), patient = open(100);
  EXPECT_THAT(meter->name(), testing::StartsWith("energy and power of the node (pm_counters), "));
  package("intel-rapl:0", "package-0", "9000000");
  set("cray/energy", "123500 J 1566696 us");
  set("cray/freshness", "18");
  EXPECT_EQ(meter->energy(), 123500 - 123456);
  EXPECT_EQ(patient->read().power_w, 310);
  EXPECT_EQ(patient->energy(), 123500 - 123456);
  EXPECT_TRUE(std::isnan(meter->energy())) << "was not renewed";
  EXPECT_THAT(meter->fault(), testing::EndsWith("cray/freshness stands still"));
}

TEST_F(NodeMeter, HasThePowerOfBoards) {
  for (const auto& [sensor, name, watts] : {std::tuple{"0", "power_meter", "400500000"},
           {"1", "amdgpu", "1000000"},
           {"2", "power_meter", "250000000"}})
    set(fmt::format("hwmon/hwmon{}/name", sensor), name),
        set(fmt::format("hwmon/hwmon{}/power1_average", sensor), watts);
  set("hwmon/hwmon2/power1_oem_info", "CPU Power Socket 0");  // Grace: part of hwmon0's module
  EXPECT_NEAR(open()->read().power_w, 400.5, 1e-9) << "W";
  EXPECT_TRUE(std::isnan(open()->energy())) << "power is not integrated";
}

TEST_F(NodeMeter, WhatCannotBeReadSaysWhyAndStaysSo) {
  EXPECT_EQ(open()->fault(), "the system shows no energy or power of the node");
  package("intel-rapl:0", "package-0", "5000000");
  const auto meter = open();
  package("intel-rapl:1", "package-1", "locked");
  EXPECT_THAT(open()->fault(), testing::EndsWith("intel-rapl:1/energy_uj: not a number"))
      << "half a node is none";
  std::filesystem::remove(path("powercap/intel-rapl:0/energy_uj"));
  EXPECT_TRUE(std::isnan(meter->energy()));
  EXPECT_THAT(
      meter->fault(), testing::EndsWith("intel-rapl:0/energy_uj: No such file or directory"));
  package("intel-rapl:0", "package-0", "6000000");
  EXPECT_TRUE(std::isnan(meter->energy()) && std::isnan(meter->read().power_w));
  setenv("MINITAW_SHAPED_LINKS", "rate=1mbit", 1);
  EXPECT_EQ(open()->fault(), "the nodes are parts of one machine");
  unsetenv("MINITAW_SHAPED_LINKS");
}
}  // namespace
}  // namespace minitaw::energy
