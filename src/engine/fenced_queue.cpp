#include "engine/fenced_queue.hpp"

#include "engine/pause.hpp"

namespace minitaw::engine {

FencedQueue::FencedQueue(model::ExecutionSpace exec, int units, const Clock& clock, Check waiting)
    : exec_(std::move(exec)), clock_(clock), waiting_(std::move(waiting)), spans_(units) {}

void FencedQueue::begin_step() {
  begun_.store(0, std::memory_order_relaxed);
  completed_.store(0, std::memory_order_relaxed);
}

void FencedQueue::open(int unit) { spans_[unit].ready = clock_.now(); }

void FencedQueue::after(const Queue& other, int unit) {
  if (!other.asynchronous()) return;  // submitted is complete there
  wait_until([&] { return other.is_complete(unit); }, waiting_);
}

void FencedQueue::run(int unit, const Work& work) {
  begin(unit);
  work();
  end(unit);
}

void FencedQueue::begin(int unit) {
  begun_.store(unit + 1, std::memory_order_relaxed);
  spans_[unit].begin = clock_.now();
}

void FencedQueue::end(int unit) {
  exec_.fence("minitaw::engine::lane");
  spans_[unit].end = clock_.now();
  completed_.store(unit + 1, std::memory_order_release);
}

}  // namespace minitaw::engine
