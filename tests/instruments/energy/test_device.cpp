// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <gtest/gtest.h>
#include "instruments/energy/meter.hpp"
#include "topology/devices.hpp"
#include "topology/nvml.hpp"

namespace minitaw::energy {
namespace {
bool between(double low, double value, double high) {
  return std::isnan(value) || (low <= value && value <= high);
}

/// On a machine with devices: what NVIDIA's own library says can be true.
TEST(DeviceMeter, ReadsWhatCanBeTrue) {
  const auto devices = topology::visible_devices();
  if (devices.empty())
    GTEST_SKIP() << "no device";
  for (const topology::Device& device : devices) {
    const auto meter = make_meter(device.uuid);
    fmt::print("{}: {} {}\n", device.name, meter->name(), meter->fault());
    if (meter->fault().find("MIG") != std::string::npos)
      continue;
    if (nvml::library_version().empty())
      GTEST_SKIP() << "this machine has no NVML: " << meter->fault();
    ASSERT_EQ(meter->fault(), "");
    const double before = meter->energy();
    const DeviceSample sample = meter->read();
    EXPECT_TRUE(between(100, sample.clock_mhz, 5000)) << sample.clock_mhz;
    EXPECT_TRUE(between(100, sample.memory_clock_mhz, 20000)) << sample.memory_clock_mhz;
    EXPECT_TRUE(between(1, sample.temperature_c, 110)) << sample.temperature_c;
    EXPECT_TRUE(between(5, sample.power_w, 3000)) << sample.power_w;
    EXPECT_FALSE(meter->energy() < before);
  }
}
}  // namespace
}  // namespace minitaw::energy
