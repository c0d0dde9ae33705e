#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/detail/scalar.hpp"

namespace minitaw::kernels::detail {
namespace {

TEST(Exponential, IsAccurateOverItsWholeRange) {
  double worst = 0;
  for (float x = -86.9F; x < 87.9F; x += 1.0F / 1024) {
    const double exact = std::exp(double{x});
    worst = std::max(worst, std::abs(host_exponential(x) - exact) / exact);
  }
  EXPECT_LT(worst, 2.5e-7);
  EXPECT_EQ(host_exponential(0.0F), 1.0F);
}

TEST(Exponential, HandlesTheExtremes) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(host_exponential(-infinity), 0.0F);
  EXPECT_EQ(host_exponential(-1e30F), 0.0F);
  EXPECT_EQ(host_exponential(1e30F), infinity);
  EXPECT_TRUE(std::isnan(host_exponential(std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace
}  // namespace minitaw::kernels::detail
