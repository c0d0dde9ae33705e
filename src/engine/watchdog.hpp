#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine/lane.hpp"

namespace minitaw::engine {

/// A step in which nothing moved.
struct Stalled : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Watches the lanes of a rank while a step runs. When none of them gets on for `limit`, it calls `on_stall`
/// once with one line per lane: what it is at, with whom, in which slot, and what it waits for. Twice a
/// second it calls `poll`, whose exception fails the step.
class Watchdog {
public:
  using OnStall = std::function<void(const std::string& report)>;

  using Poll = std::function<void()>;

  Watchdog(const schedule::Program& program, int rank, std::vector<const Lane*> lanes, Progress& progress,
           std::chrono::duration<double> limit, OnStall on_stall, Poll poll);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

  void begin_step();
  void end_step();

private:
  void loop();
  [[nodiscard]] long moves() const;
  void watch_step(std::unique_lock<std::mutex>& lock);
  void poll_once();
  [[nodiscard]] std::string report() const;
  [[nodiscard]] std::string describe(const Lane& lane) const;

  const schedule::Program& program_;
  int rank_;
  std::vector<const Lane*> lanes_;
  Progress& progress_;
  std::chrono::duration<double> limit_;
  OnStall on_stall_;
  Poll poll_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool running_ = false;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace minitaw::engine
