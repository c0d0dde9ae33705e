#pragma once

#include <atomic>
#include <thread>

#include "engine/lane.hpp"

namespace minitaw::engine {

/// A thread that plays a communication lane, one step each time it is told to. It sleeps in between.
class LaneThread {
public:
  LaneThread(Lane& lane, Progress& progress);
  LaneThread(const LaneThread&) = delete;
  LaneThread& operator=(const LaneThread&) = delete;
  ~LaneThread();

  void begin_step();
  /// Returns when the lane has finished the step (or failed).
  void wait_until_idle() const;

private:
  void loop();

  Lane& lane_;
  Progress& progress_;
  std::atomic<int> ordered_ = 0;  ///< steps ordered; -1 ends the thread
  std::atomic<int> played_ = 0;
  std::thread thread_;
};

}  // namespace minitaw::engine
