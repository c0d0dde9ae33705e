// SPDX-License-Identifier: BSD-3-Clause
#include "engine/watchdog.hpp"

#include <atomic>
#include <future>
#include <gtest/gtest.h>

namespace minitaw::engine {
namespace {
using Seconds = Watchdog::Seconds;

TEST(Watchdog, SaysOnceWhatDidNotEnd) {
  std::promise<std::string> told;  // a second report would be an error
  Watchdog watchdog([&](const std::string& report) { told.set_value(report); });
  watchdog.expect("the first thing", Seconds(1000));
  watchdog.expect("the second thing", Seconds(0.01));
  EXPECT_EQ(told.get_future().get(), "the second thing has not ended for 0.01 s");
  watchdog.expect("the third thing", Seconds(1000));
  watchdog.pause();
}

TEST(Watchdog, IsSilentWhereNothingIsExpected) {
  Watchdog watchdog([](const std::string& report) { ADD_FAILURE() << report; });
  watchdog.expect("something long", Seconds::max());
  watchdog.expect("something short", Seconds(1e9));
  watchdog.pause();
  watchdog.expect("something else", Seconds(1000));
}

TEST(Watchdog, WaitsAsLongAsSomethingMoves) {
  std::atomic<long> moves = 0;
  std::promise<long> told;
  Watchdog watchdog([&](const std::string&) { told.set_value(moves); },
      [&] { return moves < 20 ? ++moves : moves.load(); });
  watchdog.expect("something that moves", Seconds(0.02));
  EXPECT_EQ(told.get_future().get(), 20);
}
}  // namespace
}  // namespace minitaw::engine
