#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/lane.hpp"

namespace minitaw::engine {

/// Watches the lanes of a rank while a step runs. When none of them finishes anything for `limit`, it calls
/// `on_stall` once with one line per lane: what it is at, with whom, in which slot, and what it waits for.
class Watchdog {
public:
  using OnStall = std::function<void(const std::string& report)>;

  Watchdog(const schedule::Program& program, int rank, std::vector<const Lane*> lanes,
           const Progress& progress, std::chrono::duration<double> limit, OnStall on_stall);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

  void begin_step();
  void end_step();

private:
  void loop();
  [[nodiscard]] long finished() const;
  [[nodiscard]] std::string report() const;
  [[nodiscard]] std::string describe(const Lane& lane) const;

  const schedule::Program& program_;
  int rank_;
  std::vector<const Lane*> lanes_;
  const Progress& progress_;
  std::chrono::duration<double> limit_;
  OnStall on_stall_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool running_ = false;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace minitaw::engine
