#include "engine/communication_thread.hpp"

#include <algorithm>

#include "engine/lane_space.hpp"

#if defined(__linux__)
#include <sys/prctl.h>
#endif

namespace minitaw::engine {
namespace {

/// Linux lengthens sleeps by 50 microseconds to save wake-ups: more than twice what the shortest waits ask
/// for, and a collective waits for every piece.
void sleep_exactly() {
#if defined(__linux__)
  prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);  // nanoseconds
#endif
}

}  // namespace

CommunicationThread::CommunicationThread(std::vector<Lane*> lanes, Progress& progress,
                                         const comm::mpi::Patience& patience)
    : lanes_(std::move(lanes)), progress_(progress), patience_(patience) {
  thread_ = std::thread([this] { loop(); });
}

CommunicationThread::~CommunicationThread() {
  ordered_.store(-1);
  ordered_.notify_one();
  thread_.join();
}

void CommunicationThread::begin_step() {
  ordered_.fetch_add(1);
  ordered_.notify_one();
}

void CommunicationThread::wait_until_idle() const {
  const int ordered = ordered_.load();
  for (int played = played_.load(); played != ordered; played = played_.load()) played_.wait(played);
}

void CommunicationThread::loop() {
  use_device();
  sleep_exactly();
  for (int played = 0;; ++played) {
    played_.store(played);
    played_.notify_all();
    ordered_.wait(played);
    if (ordered_.load() < 0) return;
    try {
      drive();
    } catch (const Stopped&) {
      // another lane failed first and has said why
    } catch (...) {
      progress_.fail(std::current_exception());
    }
  }
}

void CommunicationThread::drive() {
  comm::mpi::Pause pause(patience_, &hurry_);
  while (!std::ranges::all_of(lanes_, &Lane::done)) {
    bool moved = false;
    for (Lane* lane : lanes_) moved = lane->advance() || moved;
    progress_.check();
    if (moved) pause = comm::mpi::Pause(patience_, &hurry_);
    else pause.once();
  }
}

}  // namespace minitaw::engine
