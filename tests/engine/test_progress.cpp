#include "engine/progress.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <thread>
#include <vector>

namespace minitaw::engine {
namespace {

using schedule::Lane;

TEST(Progress, WaitReturnsOnceTheLaneHasComeSoFar) {
  Progress progress;
  int seen = 0;
  std::thread lane([&] {
    for (int i = 1; i <= 1000; ++i) {
      seen = i;  // published by submitted(): a data race here is for ThreadSanitizer to see
      progress.submitted(Lane::operands, i);
    }
  });
  progress.wait(Lane::operands, 1000);
  EXPECT_EQ(seen, 1000);
  lane.join();
}

TEST(Progress, TwoLanesThatWaitForEachOther) {
  Progress progress;
  constexpr int rounds = 2000;
  std::vector<int> order;
  std::thread lane([&] {
    for (int i = 1; i <= rounds; ++i) {
      progress.wait(Lane::compute, i);
      order.push_back(2 * i + 1);
      progress.submitted(Lane::gradients_in, i);
    }
  });
  for (int i = 1; i <= rounds; ++i) {
    order.push_back(2 * i);
    progress.submitted(Lane::compute, i);
    progress.wait(Lane::gradients_in, i);
  }
  lane.join();
  EXPECT_TRUE(std::ranges::is_sorted(order));
  EXPECT_EQ(order.size(), 2U * rounds);
}

TEST(Progress, AFailureWakesWaitersAndKeepsTheFirstReason) {
  Progress progress;
  std::thread waiter([&] { EXPECT_THROW(progress.wait(Lane::gradients_in, 5), Stopped); });
  progress.fail(std::make_exception_ptr(std::runtime_error("first")));
  progress.fail(std::make_exception_ptr(std::runtime_error("second")));
  progress.submitted(Lane::gradients_in, 1);
  waiter.join();
  EXPECT_THROW(progress.wait(Lane::gradients_in, 1), Stopped);
  try {
    progress.rethrow_if_failed();
    FAIL() << "must throw";
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(), "first");
  }
}

}  // namespace
}  // namespace minitaw::engine
