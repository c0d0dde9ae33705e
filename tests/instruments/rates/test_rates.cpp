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
  EXPECT_TRUE(std::isnan(core_use(std::vector{0}, path("none")).busy));
}
}  // namespace
}  // namespace minitaw::rates
