#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace minitaw::engine {

/// Returns when `done()`, which asks a device, is true: for 100 microseconds it asks all the time, which is
/// how long short kernels take, then sleeps in between, at most 50 microseconds. `check` may throw to end it.
template <class Done, class Check>
void wait_until(const Done& done, const Check& check) {
  using std::chrono::microseconds;
  const auto eager_until = std::chrono::steady_clock::now() + microseconds(100);
  microseconds pause(5);
  while (!done()) {
    check();
    if (std::chrono::steady_clock::now() < eager_until) {
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, microseconds(50));
  }
}

}  // namespace minitaw::engine
