#include "comm/mpi/collectives.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "comm/mpi/exchange.hpp"
#include "comm/slices.hpp"
#include "comm/sum.hpp"

namespace minitaw::comm::mpi {
namespace {

using schedule::Kind;

/// A part of a collective: a plan and the memory that its pieces pass through.
struct Part {
  Memory memory;
  RingPlan plan;
};

/// Pieces of a slice of a buffer, in order.
std::vector<Piece> pieces_of(const Buffer& buffer, const Slice& slice, std::size_t piece_bytes) {
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
