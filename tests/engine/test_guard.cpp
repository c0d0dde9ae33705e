#include "engine/watchdog.hpp"

#include <gtest/gtest.h>

#include <atomic>

namespace minitaw::engine {
namespace {

using Seconds = Guard::Seconds;

/// What a guard has reported.
class Reports {
public:
  void operator()(const std::string& report) {
    const std::scoped_lock lock(mutex_);
    all_.push_back(report);
    changed_.notify_all();
  }
  /// Waits for the first.
  std::string wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !all_.empty(); });
    return all_.front();
  }
  std::size_t count() {
    const std::scoped_lock lock(mutex_);
    return all_.size();
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> all_;
};

TEST(Guard, SaysOnceWhatDidNotEnd) {
  Reports reports;
  Guard guard(std::ref(reports));
  guard.expect("the first thing", Seconds(1000));
  guard.expect("the second thing", Seconds(0.01));
  EXPECT_EQ(reports.wait(), "the second thing has not ended for 0.01 s");
  guard.expect("the third thing", Seconds(1000));
  guard.pause();
  EXPECT_EQ(reports.count(), 1U);
}

TEST(Guard, IsSilentWhereNothingIsExpected) {
  Reports reports;
  {
    Guard guard(std::ref(reports));
    guard.expect("something long", Seconds::max());
    guard.expect("something short", Seconds(1e9));
    guard.pause();
    guard.expect("something else", Seconds(1000));
  }
  EXPECT_EQ(reports.count(), 0U);
}

}  // namespace
}  // namespace minitaw::engine
