// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <unistd.h>
#include "fixtures.hpp"
#include "instruments/rates/rates.hpp"

namespace minitaw::rates {
namespace {
struct Rates : test::InFolder {};

TEST_F(Rates, BusyCoresAreSeenByTheirPrograms) {
  const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  //                                          user nice system idle wait irq soft steal
  const auto file = write("stat",
      "cpu  9999 9999 9999 9999 9 9 9 9 0 0\n"
      "cpu0 1000 200 30 7777 500 600 800 4 0 0\n"
      "cpu1 2000 0 0 7777 0 0 0 0 0 0\n"
      "cpu10 50000 0 0 7777 0 0 0 0 0 0\nintr 1 2\n");
  const auto seconds = [&](std::vector<int> cores) { return core_use(cores, file).busy * ticks; };
  EXPECT_NEAR(seconds({0}), 1234, 1e-6) << "neither idle, nor interrupts";
  EXPECT_NEAR(seconds({0, 10}), 51234, 1e-6);
  EXPECT_TRUE(std::isnan(seconds({0, 2}))) << "core 2 is not there";
  EXPECT_TRUE(std::isnan(seconds({})));
  EXPECT_TRUE(std::isnan(core_use(std::vector{0}, path("none")).busy));
}

TEST_F(Rates, APeakIsClockTimesRegisters) {
  const auto peak = [&](const std::string& text) {
    return core_peak(write("cpuinfo", text), folder_);
  };
  const auto wide =
      peak("cpu MHz\t\t: 2400.5\nflags\t\t: fpu fma avx2 avx512f\ncpu MHz\t\t: 2500\n");
  ASSERT_TRUE(wide);
  EXPECT_NEAR(wide->value, 2.5e9 * 16 * 4, 1) << "two products and sums of 16 values a cycle";
  EXPECT_EQ(wide->source, "2.50 GHz, 512 bits");
  EXPECT_NEAR(peak("flags : fma avx2 x\ncpu MHz : 2000\n")->value, 2e9 * 8 * 4, 1);
  EXPECT_FALSE(peak("flags : avx2 avx512fp16\ncpu MHz : 2000\n")) << "without fma";
  EXPECT_FALSE(peak("flags : fma avx2 x\n")) << "without a clock";
  write("cpu0/cpufreq/cpuinfo_max_freq", "3600000\n");
  EXPECT_NEAR(peak("flags : fma avx2 x\ncpu MHz : 5000\n")->value, 3.6e9 * 8 * 4, 1)
      << "its highest clock";
}

TEST_F(Rates, ALinkHasTheRateOfItsPort) {
  write("infiniband/mlx5_1/ports/2/rate", "200 Gb/sec (4X HDR)\n");
  write("net/hsn0/speed", "100000\n");
  EXPECT_EQ(link_rate("mlx5_1:2,mlx5_0:1", folder_)->value, 25e9);
  EXPECT_EQ(link_rate("hsn0:1", folder_)->value, 12.5e9);
  EXPECT_FALSE(link_rate("mlx5_7:1", folder_));
  EXPECT_FALSE(link_rate("", folder_)) << "nothing physical is up";
  const auto adapter =
      [&](const std::string& name, const char* state, const char* speed, bool physical) {
        write("net/" + name + "/operstate", state);
        write("net/" + name + "/speed", speed);
        if (physical)
          write("net/" + name + "/device/vendor", "x");
      };
  adapter("veth3", "up", "10000", false);
  adapter("eth1", "down", "40000", true);
  adapter("eth0", "up", "25000", true);
  EXPECT_EQ(link_rate("", folder_)->value, 3.125e9);
  adapter("eth2", "up", "25000", true);
  EXPECT_EQ(link_rate("", folder_)->value, 3.125e9) << "both are alike";
  adapter("eth2", "up", "1000", true);
  EXPECT_FALSE(link_rate("", folder_)) << "which of them carries messages?";
  adapter("eth2", "up", "-1", true);
  EXPECT_FALSE(link_rate("", folder_));
}
}  // namespace
}  // namespace minitaw::rates
