#include "comm/mpi/operations.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "base/error.hpp"
#include "base/range.hpp"
#include "comm/transport.hpp"

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
    execute(plan_.steps[next_++]);
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

void RingOperation::execute(const RingStep& step) {
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

namespace {

using schedule::Kind;

/// A part of a collective: a plan and the memory that its pieces pass through.
struct Part {
  Memory memory;
  RingPlan plan;
};

/// Pieces of a slice of a buffer, in order.
std::vector<Piece> pieces_of(const Buffer& buffer, const Range& slice, std::size_t piece_bytes) {
  const auto scalar = static_cast<std::int64_t>(bytes_of(buffer.scalar));
  std::vector<Piece> pieces;
  cut(Piece(buffer.data + slice.begin * scalar, static_cast<std::size_t>(slice.count * scalar)), piece_bytes,
      pieces);
  return pieces;
}

/// Memory for a collective that only moves data. Pieces are for passing on what has come while more comes:
/// between two members of a ring, in place, they would only cost a handshake each.
Memory moving_memory(const Channel& channel, const Ring& ring) {
  Memory memory = channel.moves();
  if (ring.size() == 2 && memory.copier == nullptr) memory.piece_bytes = largest_message;
  return memory;
}

RingPlan plan_from_to(int from, int to, const Ring& ring, const Buffer& buffer) {
  return {.steps = {},
          .from = from,
          .to = to,
          .tag = ring.tag,
          .traffic = buffer.traffic,
          .scalar = buffer.scalar};
}

/// A chain from the root: while piece k + 1 arrives, piece k is passed on.
Part broadcast(const Channel& channel, const Ring& ring, const Buffer& buffer) {
  Part part{moving_memory(channel, ring), plan_from_to(ring.previous(), ring.next(), ring, buffer)};
  part.plan.open_sends = part.memory.ahead;
  const bool root = ring.is_first();
  for (const Piece piece : pieces_of(buffer, {0, buffer.elements}, part.memory.piece_bytes))
    part.plan.steps.push_back(
        {.piece = piece, .arrives = !root, .leaves = !ring.is_last(), .own = root, .stays = !root});
  return part;
}

/// A chain towards the root, so the order of the sum is that of the ring and its bits repeat. Only the root
/// may change its buffer.
Part reduce(const Channel& channel, const Ring& ring, const Buffer& buffer) {
  Part part{channel.sums(), plan_from_to(ring.next(), ring.previous(), ring, buffer)};
  part.plan.open_sends = 4;
  part.plan.may_overwrite = ring.is_first();
  for (const Piece piece : pieces_of(buffer, {0, buffer.elements}, part.memory.piece_bytes))
    part.plan.steps.push_back({.piece = piece,
                               .arrives = !ring.is_last(),
                               .leaves = !ring.is_first(),
                               .own = true,
                               .stays = ring.is_first()});
  return part;
}

// The sends of a ring are not limited: if everyone waited to send before receiving it would stand still.

/// A ring: every member sends its own slice, then hands on what arrives; the last slice to arrive is that of
/// the member behind the next one on, who is where it came from.
Part all_gather(const Channel& channel, const Ring& ring, const Buffer& buffer) {
  Part part{moving_memory(channel, ring), plan_from_to(ring.previous(), ring.next(), ring, buffer)};
  part.plan.steps = ring_steps(ring, buffer, ring.position, part.memory);
  for (RingStep& step : part.plan.steps) {
    step.own = !step.arrives;
    step.stays = step.arrives;
  }
  return part;
}

/// A ring: the sum of slice i starts at member i + 1 and grows on its way round to member i. Each member adds
/// its own part; in host memory it does so in its buffer and sends from there.
Part reduce_scatter(const Channel& channel, const Ring& ring, const Buffer& buffer) {
  Part part{channel.sums(), plan_from_to(ring.previous(), ring.next(), ring, buffer)};
  part.plan.may_overwrite = true;
  part.plan.steps = ring_steps(ring, buffer, ring.position - 1, part.memory);
  for (RingStep& step : part.plan.steps) {
    step.own = true;
    step.stays = !step.leaves;
  }
  return part;
}

std::unique_ptr<RingOperation> make(Channel& channel, Part part) {
  return std::make_unique<RingOperation>(channel, part.memory, std::move(part.plan));
}

/// One operation, then another one.
class InTurn final : public Operation {
public:
  InTurn(std::unique_ptr<Operation> first, std::unique_ptr<Operation> second)
      : first_(std::move(first)), second_(std::move(second)) {}
  bool advance() override { return first_->done() ? second_->advance() : first_->advance(); }
  [[nodiscard]] bool done() const override { return second_->done(); }

private:
  std::unique_ptr<Operation> first_, second_;
};

}  // namespace

std::vector<RingStep> ring_steps(const Ring& ring, const Buffer& buffer, int first, const Memory& memory) {
  std::vector<std::vector<Piece>> slices;  // in the order in which they come by
  std::size_t longest = 0;
  for (int step = 0; step < ring.size(); ++step) {
    slices.push_back(
        pieces_of(buffer, slice(buffer.elements, ring.size(), first - step), memory.piece_bytes));
    longest = std::max(longest, slices.back().size());
  }
  std::vector<RingStep> steps;
  for (std::size_t begin = 0; begin < longest; begin += std::min(memory.window, longest))
    for (std::size_t s = 0; s < slices.size(); ++s)
      for (std::size_t k = begin; k < slices[s].size() && k - begin < memory.window; ++k)
        steps.push_back({.piece = slices[s][k], .arrives = s > 0, .leaves = s + 1 < slices.size()});
  return steps;
}

std::unique_ptr<Operation> make_collective(Channel& channel, schedule::Kind kind, const Ring& ring,
                                           const Buffer& buffer) {
  switch (kind) {
  case Kind::broadcast:
    return make(channel, broadcast(channel, ring, buffer));
  case Kind::reduce:
    return make(channel, reduce(channel, ring, buffer));
  case Kind::all_gather:
    return make(channel, all_gather(channel, ring, buffer));
  case Kind::reduce_scatter:
    return make(channel, reduce_scatter(channel, ring, buffer));
  case Kind::all_reduce:
    return std::make_unique<InTurn>(make(channel, reduce_scatter(channel, ring, buffer)),
                                    make(channel, all_gather(channel, ring, buffer)));
  default:
    throw LogicError(fmt::format("{} is no collective", name_of(kind)));
  }
}

}  // namespace minitaw::comm::mpi
