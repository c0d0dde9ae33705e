#include "comm/mpi/wait.hpp"

#include <algorithm>
#include <thread>

namespace minitaw::comm::mpi {

Patience patience(int cores, int threads) {
  if (cores >= threads) return {.spins = 20'000, .yields = 100};
  return {.spins = 2, .yields = 0};
}

void Hurry::set(bool on) {
  {
    const std::scoped_lock lock(mutex_);
    on_.store(on, std::memory_order_relaxed);
  }
  if (on) turned_on_.notify_all();
}

void Hurry::sleep(std::chrono::microseconds time) {
  std::unique_lock lock(mutex_);
  turned_on_.wait_for(lock, time, [this] { return on(); });
}

bool Pause::eager() {
  if (left_.eager.count() == 0) return false;
  const auto now = std::chrono::steady_clock::now();
  if (eager_until_ == std::chrono::steady_clock::time_point{}) eager_until_ = now + left_.eager;
  return now < eager_until_;
}

void Pause::once() {
  if (left_.spins > 0) {
    --left_.spins;
  } else if (left_.yields > 0) {
    --left_.yields;
    std::this_thread::yield();
  } else if (eager() || (hurry_ != nullptr && hurry_->on())) {
    std::this_thread::yield();
  } else {
    if (hurry_ != nullptr) hurry_->sleep(sleep_);
    else std::this_thread::sleep_for(sleep_);
    sleep_ = std::min(2 * sleep_, left_.longest_sleep);
  }
}

}  // namespace minitaw::comm::mpi
