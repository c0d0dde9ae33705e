// SPDX-License-Identifier: BSD-3-Clause
#include "meters/meter.hpp"

#include <cstdlib>
#include <dlfcn.h>
#include <gmock/gmock.h>

namespace minitaw::meters {
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

  Meter& open(const std::string& mode, const std::string& uuid = "GPU-1", const char* file = FAKE_NVML_new) {
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
  const DeviceSample first = meter.read();
  const DeviceSample next = meter.read();
  EXPECT_EQ(first.clock_mhz - next.clock_mhz, 1);
  EXPECT_EQ(next.memory_clock_mhz - first.memory_clock_mhz, 1);
  EXPECT_EQ(next.temperature_c - first.temperature_c, 1);
  EXPECT_NEAR(next.power_w - first.power_w, 1, 1e-9) << "W, not mW";
  EXPECT_NEAR(std::fmod(first.power_w, 1), 0.25, 1e-9);
  EXPECT_EQ(first.clock_mhz + first.temperature_c, 1980 + 40);
  EXPECT_EQ(first.throttle ^ next.throttle, 0x44U ^ 0x1U);
  const double before = meter.energy();
  EXPECT_NEAR(meter.energy() - before, 1.5, 1e-6) << "J, not mJ";
}

TEST_F(Nvml, WhatTheDeviceDoesNotSupportIsMissingAlone) {
  const std::vector<std::pair<const char*, double DeviceSample::*>> parts = {{"clock", &DeviceSample::clock_mhz},
      {"memory-clock", &DeviceSample::memory_clock_mhz}, {"temperature", &DeviceSample::temperature_c},
      {"power", &DeviceSample::power_w}};
  for (const auto& [lacking, part] : parts) {
    Meter& meter = open(std::string("no-") + lacking);
    const DeviceSample sample = meter.read();
    EXPECT_EQ(meter.fault(), "");
    for (const auto& [name, other] : parts) EXPECT_EQ(std::isnan(sample.*other), part == other) << lacking << name;
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
  EXPECT_THAT(open("", "GPU-1", "/nonexistent/libnvidia-ml.so.1").fault(), StartsWith("no /nonexistent"));
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
  EXPECT_EQ(nvml::driver_version(FAKE_NVML_new), "580.65.06");
  EXPECT_EQ(nvml::library_version(FAKE_NVML_new), "12.580.65");
  EXPECT_EQ(nvml::driver_version("/nonexistent/libnvidia-ml.so.1"), "");
  set("no-driver");
  EXPECT_EQ(nvml::driver_version(FAKE_NVML_new), "");
}
}  // namespace
}  // namespace minitaw::meters
