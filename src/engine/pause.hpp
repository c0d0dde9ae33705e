#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace minitaw::engine {

/// Returns when `done()` is true: asks often at first, then sleeps in between, at most 200 microseconds, so
/// that a long wait takes no core from those that work. `check` may throw to end it.
template <class Done, class Check>
void wait_until(const Done& done, const Check& check) {
  using std::chrono::microseconds;
  constexpr int eager = 100;
  microseconds pause(5);
  for (int tries = 0; !done(); ++tries) {
    check();
    if (tries < eager) {
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, microseconds(200));
  }
}

}  // namespace minitaw::engine
