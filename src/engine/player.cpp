#include "engine/player.hpp"

#include <algorithm>

namespace minitaw::engine {

using schedule::Action;

Player::Player(const schedule::Program& program, int rank, Compute& compute, Transfers& transfers,
               std::chrono::duration<double> patience, Watchdog::OnStall on_stall)
    : program_(program.ranks[rank]), clock_(program_.actions.size()),
      compute_(program_, schedule::Lane::compute, progress_, clock_,
               [&](auto unit) { compute.run(*unit[0]); }),
      intra_(program_, schedule::Lane::intra, progress_, clock_,
             [&](auto unit) { transfers.run(schedule::Lane::intra, unit); }),
      inter_(program_, schedule::Lane::inter, progress_, clock_,
             [&](auto unit) { transfers.run(schedule::Lane::inter, unit); }),
      intra_thread_(intra_, progress_), inter_thread_(inter_, progress_),
      watchdog_(program, rank, {&compute_, &intra_, &inter_}, progress_, patience, std::move(on_stall)) {}

StepTime Player::play() {
  progress_.begin_step();
  clock_.begin_step();
  watchdog_.begin_step();
  for (LaneThread* thread : {&intra_thread_, &inter_thread_}) thread->begin_step();
  try {
    compute_.play();
  } catch (const Stopped&) {
    // a communication lane failed; its reason is thrown below
  } catch (...) {
    progress_.fail(std::current_exception());
  }
  for (const LaneThread* thread : {&intra_thread_, &inter_thread_}) thread->wait_until_idle();
  watchdog_.end_step();
  progress_.rethrow_if_failed();
  return account();
}

StepTime Player::account() const {
  StepTime time;
  double first = -1;
  double last = 0;
  std::array<double, schedule::lanes> counted_until{};
  for (std::size_t i = 0; i < program_.actions.size(); ++i) {
    const Action& action = program_.actions[i];
    const Span& span = clock_[static_cast<int>(i)];
    time.total = std::max(time.total, span.end);
    if (action.lane != schedule::Lane::compute) {
      // The messages of a batch share one span.
      double& counted = counted_until[static_cast<std::size_t>(action.lane)];
      if (is_communication(action.kind) && span.begin >= counted) time.communication += span.end - span.begin;
      counted = span.end;
      continue;
    }
    time.compute += span.end - span.begin;
    if (action.kind == schedule::Kind::zero || action.kind == schedule::Kind::join) continue;
    if (first < 0) first = span.begin;
    last = span.end;
  }
  double waits = 0;
  for (std::size_t i = 0; i < program_.actions.size(); ++i) {
    const Span& span = clock_[static_cast<int>(i)];
    if (program_.actions[i].lane == schedule::Lane::compute && span.ready >= first && span.end <= last)
      waits += span.begin - span.ready;
  }
  time.exposed = waits;
  time.idle = std::max(0.0, time.total - time.compute - time.exposed);
  return time;
}

}  // namespace minitaw::engine
