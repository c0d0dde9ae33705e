// SPDX-License-Identifier: BSD-3-Clause
#include <atomic>
#include <fmt/format.h>
#include <future>
#include <gtest/gtest.h>
#include <thread>
#include "engine/watchdog.hpp"

namespace minitaw::engine {
namespace {
using Seconds = Watchdog::Seconds;

TEST(Watchdog, SaysOnceWhatDidNotEnd) {
  std::promise<std::string> told;  // a second report would be an error
  Watchdog watchdog(Seconds(0.01), [&](const std::string& report) { told.set_value(report); });
  watchdog.phase("the first thing", Seconds(1000));
  watchdog.phase("the second thing");
  EXPECT_EQ(told.get_future().get(), "the second thing has not ended for 0.01 s");
}

TEST(Watchdog, IsSilentBeforeTheTimeIsOverAndInAPause) {
  Watchdog watchdog(Seconds(0.01), [](const std::string& report) { ADD_FAILURE() << report; });
  watchdog.phase("something long", Seconds::max());
  std::this_thread::sleep_for(Seconds(0.02));
  watchdog.phase("something short");
  watchdog.pause();
  std::this_thread::sleep_for(Seconds(0.02));
}

TEST(Watchdog, EachPhaseHasItsOwnTime) {
  Watchdog watchdog(Seconds(1), [](const std::string& report) { ADD_FAILURE() << report; });
  for (int k = 0; k < 6; ++k) {
    watchdog.phase("one of several things that together last longer");
    std::this_thread::sleep_for(Seconds(0.25));
  }
}

TEST(Watchdog, WaitsAsLongAsSomethingMoves) {
  std::atomic<long> moves = 0;
  std::promise<std::string> told;
  Watchdog watchdog(Seconds(0.02), [&](const std::string& report) { told.set_value(report); });
  watchdog.phase({.complaint = "nothing has moved",
      .limit = Seconds(0.02),
      .moves = [&] { return moves < 20 ? ++moves : moves.load(); },
      .details = [&] { return fmt::format(" after {} moves", moves.load()); }});
  EXPECT_EQ(told.get_future().get(), "nothing has moved for 0.02 s after 20 moves");
}

TEST(Watchdog, HoldsOthersWhileItEndsTheJob) {
  std::promise<void> begun;
  std::atomic<bool> over = false;
  Watchdog watchdog(Seconds(0.01), [&](const std::string&) {
    begun.set_value();
    std::this_thread::sleep_for(Seconds(0.05));
    over = true;
  });
  watchdog.phase("a thing");
  begun.get_future().wait();
  watchdog.pause();
  EXPECT_TRUE(over);
}
}  // namespace
}  // namespace minitaw::engine
