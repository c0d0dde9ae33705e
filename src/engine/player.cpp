#include "engine/player.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace minitaw::engine {

Player::Player(const schedule::Program& program, int rank, Compute& compute, Transfers& transfers,
               const PlayerOptions& options)
    : program_(program.ranks[rank]), queues_(queues(options)),
      asynchronous_(std::ranges::all_of(queues_, [](const auto& queue) { return queue->asynchronous(); })),
      idle_(options.idle), spans_(program_.actions.size()),
      compute_(
          program_, schedule::Lane::compute, progress_, queues_, clock_,
          [&](auto unit, auto&) { compute.run(*unit[0]); }, options.idle),
      intra_(program_, schedule::Lane::intra, progress_, queues_, clock_,
             [&](auto unit, auto&) { transfers.run(schedule::Lane::intra, unit); }),
      inter_(program_, schedule::Lane::inter, progress_, queues_, clock_,
             [&](auto unit, auto&) { transfers.run(schedule::Lane::inter, unit); }),
      intra_thread_(intra_, progress_), inter_thread_(inter_, progress_),
      watchdog_(program, rank, {&compute_, &intra_, &inter_}, progress_, options.patience, options.on_stall,
                options.poll) {}

Queues Player::queues(const PlayerOptions& options) {
  QueueOptions wanted;
  for (int l = 0; l < schedule::lanes; ++l)
    wanted.units[l] = static_cast<int>(schedule::units(program_, static_cast<schedule::Lane>(l)).size());
  wanted.clock = &clock_;
  wanted.waiting = [this] { progress_.check(); };
  wanted.communication_on_stream = options.communication_on_stream;
  return options.make_queues(wanted);
}

StepTime Player::play() {
  begin_step();
  try {
    if (asynchronous_) submit_in_order();
    else play_on_threads();
    finish();
  } catch (const Stopped&) {
    // another thread failed; its reason is thrown below
  } catch (...) {
    progress_.fail(std::current_exception());
  }
  // Only now: the threads may still be at work when this one has failed.
  for (const LaneThread* thread : {&intra_thread_, &inter_thread_}) thread->wait_until_idle();
  watchdog_.end_step();
  progress_.rethrow_if_failed();
  for (const Lane* lane : {&compute_, &intra_, &inter_}) lane->read(spans_);
  StepTime time;
  for (const Span& span : spans_) time.total = std::max(time.total, span.end);
  return time;
}

void Player::begin_step() {
  progress_.begin_step();
  clock_.begin_step();
  for (Lane* lane : {&compute_, &intra_, &inter_}) lane->begin_step();
  watchdog_.begin_step();
}

void Player::submit_in_order() {
  for (;;) {
    Lane* next = nullptr;
    bool done = true;
    for (Lane* lane : {&compute_, &intra_, &inter_}) {
      if (lane->done()) continue;
      done = false;
      if (lane->ready() && (next == nullptr || lane->next_action() < next->next_action())) next = lane;
    }
    if (done) return;
    if (next == nullptr) throw LogicError("engine: every lane waits for another one");
    progress_.check();
    next->play_next();
  }
}

void Player::play_on_threads() {
  for (LaneThread* thread : {&intra_thread_, &inter_thread_}) thread->begin_step();
  idle_(false);
  compute_.play();
  idle_(true);
  for (const LaneThread* thread : {&intra_thread_, &inter_thread_}) thread->wait_until_idle();
}

void Player::finish() {
  for (const auto& queue : queues_) queue->finish([this] { progress_.check(); });
}

}  // namespace minitaw::engine
