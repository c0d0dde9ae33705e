#include "comm/mpi/ring_operation.hpp"

#include <algorithm>

#include "comm/sum.hpp"

namespace minitaw::comm::mpi {

RingOperation::RingOperation(Channel& channel, const Memory& memory, RingPlan plan)
    : channel_(channel), memory_(memory), plan_(std::move(plan)),
      landing_(memory.landing, memory.piece_bytes), loading_(memory.loading, memory.piece_bytes) {
  const auto count = [&](bool RingStep::* which) {
    return static_cast<std::size_t>(std::ranges::count(plan_.steps, true, which));
  };
  sends_.reserve(count(&RingStep::leaves));
  receives_.reserve(count(&RingStep::arrives));
}

RingOperation::~RingOperation() {
  if (!done_ && memory_.copier != nullptr) memory_.copier->settle();
}

bool RingOperation::advance() {
  channel_.check_cancelled();
  bool moved = sends_.finish();
  moved |= post_receives();
  moved |= start_loads();
  if (ready()) {
    play(plan_.steps[next_++]);
    moved = true;
  }
  if (done_ || next_ < plan_.steps.size() || sends_.open() > 0) return moved;
  finish_stores();
  done_ = true;
  return true;
}

bool RingOperation::post_receives() {
  const std::size_t before = receives_.started();
  for (; next_posted_ < plan_.steps.size() && receives_.open() < memory_.ahead; ++next_posted_) {
    const RingStep& step = plan_.steps[next_posted_];
    if (!step.arrives) continue;
    const std::size_t k = receives_.started();
    if (!vacate(landing_, k)) break;
    const Piece place = landing_.in_buffer() ? step.piece : landing_.memory(k, step.piece.size());
    receives_.add(channel_.receive(plan_.from, plan_.tag, place));
  }
  return receives_.started() > before;
}

bool RingOperation::start_loads() {
  const std::size_t before = loads_;
  if (loading_.in_buffer()) return false;
  for (; next_loaded_ < plan_.steps.size() && loads_ < own_ + Copier::queues; ++next_loaded_) {
    const RingStep& step = plan_.steps[next_loaded_];
    if (!step.own) continue;
    if (!vacate(loading_, loads_)) break;
    memory_.copier->load(loads_ % Copier::queues, loading_.memory(loads_, step.piece.size()), step.piece);
    ++loads_;
  }
  return loads_ > before;
}

bool RingOperation::vacate(Slots& slots, std::size_t k) {
  if (slots.in_buffer()) return true;
  Slots::Slot& slot = slots.slot(k);
  if (slot.send > sends_.finished()) return false;
  if (slot.storing) memory_.copier->wait_stored(slot.queue);
  slot = {};
  return true;
}

bool RingOperation::ready() {
  if (next_ == plan_.steps.size()) return false;
  const RingStep& step = plan_.steps[next_];
  if (step.leaves && sends_.open() > plan_.open_sends) return false;
  if (step.own && !loading_.in_buffer() && loads_ == own_) return false;
  return !step.arrives || receives_.finish_one();  // last: it is complete only once
}

void RingOperation::play(const RingStep& step) {
  Held result;
  if (step.own && step.arrives) result = sum(take_arrived(step), take_own(step));
  else result = step.own ? take_own(step) : take_arrived(step);
  if (step.leaves) send(result);
  if (step.stays) keep(result, step.piece);
}

RingOperation::Held RingOperation::take_own(const RingStep& step) {
  if (loading_.in_buffer()) return {step.piece};
  memory_.copier->wait_loaded(own_ % Copier::queues);
  const std::size_t k = own_++;
  return {loading_.memory(k, step.piece.size()), &loading_.slot(k)};
}

RingOperation::Held RingOperation::take_arrived(const RingStep& step) {
  if (landing_.in_buffer()) return {step.piece};
  const std::size_t k = receives_.finished() - 1;
  return {landing_.memory(k, step.piece.size()), &landing_.slot(k)};
}

RingOperation::Held RingOperation::sum(const Held& arrived, const Held& own) const {
  const bool in_buffer = own.slot == nullptr && plan_.may_overwrite;
  const Held& target = in_buffer ? own : arrived;
  const Held& other = in_buffer ? arrived : own;
  add(plan_.scalar, target.memory.data(), other.memory.data(),
      static_cast<std::int64_t>(target.memory.size() / bytes_of(plan_.scalar)));
  return target;
}

void RingOperation::send(const Held& held) {
  sends_.add(channel_.send(plan_.to, plan_.tag, plan_.traffic, held.memory));
  if (held.slot != nullptr) held.slot->send = sends_.started();
}

void RingOperation::keep(const Held& held, Piece place) {
  if (held.slot == nullptr) return;
  held.slot->storing = true;
  held.slot->queue = kept_++ % Copier::queues;
  memory_.copier->store(held.slot->queue, place, held.memory);
}

void RingOperation::finish_stores() {
  for (std::size_t queue = 0; queue < std::min(kept_, Copier::queues); ++queue)
    memory_.copier->wait_stored(queue);
}

}  // namespace minitaw::comm::mpi
