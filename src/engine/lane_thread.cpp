#include "engine/lane_thread.hpp"

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

LaneThread::LaneThread(Lane& lane, Progress& progress) : lane_(lane), progress_(progress) {
  thread_ = std::thread([this] { loop(); });
}

LaneThread::~LaneThread() {
  ordered_.store(-1);
  ordered_.notify_one();
  thread_.join();
}

void LaneThread::begin_step() {
  ordered_.fetch_add(1);
  ordered_.notify_one();
}

void LaneThread::wait_until_idle() const {
  const int ordered = ordered_.load();
  for (int played = played_.load(); played != ordered; played = played_.load()) played_.wait(played);
}

void LaneThread::loop() {
  use_device();
  sleep_exactly();
  for (int played = 0;; ++played) {
    played_.store(played);
    played_.notify_all();
    ordered_.wait(played);
    if (ordered_.load() < 0) return;
    try {
      lane_.play();
    } catch (const Stopped&) {
      // another lane failed first and has said why
    } catch (...) {
      progress_.fail(std::current_exception());
    }
  }
}

}  // namespace minitaw::engine
