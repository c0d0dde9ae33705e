// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include "instruments/energy/meter.hpp"
#include "topology/devices.hpp"

namespace minitaw::energy {
namespace {
/// On a machine with devices, by NVIDIA's own library.
TEST(DeviceMeter, CountsUpwards) {
  const auto devices = topology::visible_devices();
  if (devices.empty())
    GTEST_SKIP() << "no device";
  if (nvml::driver_version().empty())
    GTEST_SKIP() << "this machine has no NVML";
  for (const topology::Device& device : devices) {
    Meter meter(device.uuid, {.cray = "", .rapl = ""});
    if (meter.source().find("MIG") != std::string::npos)
      continue;
    EXPECT_EQ(meter.source(), "the device (NVML)");
    const double before = meter.joules();
    EXPECT_GE(before, 0);
    EXPECT_GE(meter.joules(), before);
  }
}
}  // namespace
}  // namespace minitaw::energy
