#pragma once

#include <atomic>
#include <thread>
#include <vector>

#include "comm/mpi/wait.hpp"
#include "engine/lane.hpp"

namespace minitaw::engine {

/// The thread that drives all communication lanes of a rank whose queues are not a device's, one step each
/// time it is told to. It sleeps in between. One thread for all lanes: their transfers are under way at the
/// same time, and one wait serves them all.
class CommunicationThread {
public:
  CommunicationThread(std::vector<Lane*> lanes, Progress& progress, const comm::mpi::Patience& patience);
  CommunicationThread(const CommunicationThread&) = delete;
  CommunicationThread& operator=(const CommunicationThread&) = delete;
  ~CommunicationThread();

  void begin_step();
  /// Returns when all lanes have finished the step (or one has failed).
  void wait_until_idle() const;

  /// Whether the rank can do nothing but wait for what is moved, so that its cores are free for waits that
  /// answer at once. Called by the thread that computes.
  void hurry(bool on) { hurry_.set(on); }
  /// Something that a lane may wait for has happened.
  void wake() { hurry_.wake(); }

private:
  void loop();
  void drive();

  std::vector<Lane*> lanes_;
  Progress& progress_;
  comm::mpi::Patience patience_;
  comm::mpi::Hurry hurry_;
  std::atomic<int> ordered_ = 0;  ///< steps ordered; -1 ends the thread
  std::atomic<int> played_ = 0;
  std::thread thread_;
};

}  // namespace minitaw::engine
