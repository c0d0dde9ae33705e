// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include "kernels/detail/loops.hpp"

namespace minitaw::kernels::detail {
namespace {
TEST(Exponential, IsAccurateOverItsWholeRangeAndAtTheExtremes) {
  double worst = 0;
  for (float x = -86.9F; x < 87.9F; x += 1.0F / 1024) {
    const double exact = std::exp(double{x});
    worst = std::max(worst, std::abs(host_exponential(x) - exact) / exact);
  }
  EXPECT_LT(worst, 2.5e-7);
  EXPECT_EQ(host_exponential(0.0F), 1.0F);
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float low : {-infinity, -1e30F})
    EXPECT_EQ(host_exponential(low), 0.0F);
  EXPECT_EQ(host_exponential(1e30F), infinity);
  EXPECT_TRUE(std::isnan(host_exponential(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Pack, SaysWhichAddressesAllowIt) {
  alignas(16) const char bytes[64] = {};
  const auto chosen = [](std::int64_t width, std::initializer_list<const void*> addresses) {
    int elements = 0;
    packs_on_host = true;
    with_packs<Bf16>(width, addresses, [&](auto n) { elements = n; });
    packs_on_host = false;
    return elements;
  };
  EXPECT_EQ(chosen(64, {bytes, bytes + 16, nullptr}), 8);
  EXPECT_EQ(chosen(63, {bytes}), 1);
  EXPECT_EQ(chosen(64, {bytes, bytes + 8}), 1);
}
}  // namespace
}  // namespace minitaw::kernels::detail
