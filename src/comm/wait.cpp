// SPDX-License-Identifier: BSD-3-Clause
#include "comm/wait.hpp"
#include <algorithm>
#include <thread>

namespace minitaw::comm {
WaitPolicy wait_policy(int cores, int threads) {
  if (cores >= threads)
    return {.spins = 20'000, .yields = 100};
  return {.spins = 2, .yields = 0, .spare_compute = true};
}

void LowLatency::set(bool on) {
  on_.store(on, std::memory_order_relaxed);
  if (on)
    wake();
}

void LowLatency::wake() {
  {
    const std::scoped_lock lock(mutex_);
    woken_ = true;
  }
  woken_up_.notify_all();
}

void LowLatency::sleep(std::chrono::microseconds time) {
  std::unique_lock lock(mutex_);
  woken_up_.wait_for(lock, time, [this] { return woken_; });
  woken_ = false;
}

void Backoff::once() {
  if (left_.spins > 0) {
    --left_.spins;
    return;
  }
  if (left_.yields > 0) {
    --left_.yields;
    return std::this_thread::yield();
  }
  const auto now = std::chrono::steady_clock::now();
  if (began_ == std::chrono::steady_clock::time_point{})
    began_ = now;
  const auto waited = std::chrono::duration_cast<std::chrono::microseconds>(now - began_);
  const bool compute_waits = low_latency_ != nullptr && low_latency_->on();
  if (waited < left_.eager || (compute_waits && waited < std::chrono::milliseconds(1)))
    return std::this_thread::yield();
  const bool spare = left_.spare_compute && low_latency_ != nullptr && !compute_waits;
  const auto time = spare ? left_.longest_sleep
                          : std::clamp(waited / 16, left_.shortest_sleep, left_.longest_sleep);
  if (low_latency_ != nullptr)
    low_latency_->sleep(time);
  else
    std::this_thread::sleep_for(time);
}

void finish(std::initializer_list<const Transport::Started*> transfers, const WaitPolicy& policy) {
  const auto done = [](const Transport::Started* transfer) {
    return *transfer == nullptr || (*transfer)->done();
  };
  for (Backoff backoff(policy); !std::ranges::all_of(transfers, done);) {
    bool moved = false;
    for (const Transport::Started* transfer : transfers)
      moved = (!done(transfer) && (*transfer)->advance()) || moved;
    if (moved)
      backoff = Backoff(policy);
    else
      backoff.once();
  }
}
}  // namespace minitaw::comm
