#include "comm/mpi/collectives.hpp"

#include <algorithm>

#include "comm/mpi/exchange.hpp"
#include "comm/sum.hpp"

namespace minitaw::comm::mpi {

std::vector<Piece> cut(const Buffer& buffer, const Slice& slice, std::size_t piece_bytes) {
  const auto scalar = static_cast<std::int64_t>(bytes_of(buffer.scalar));
  std::vector<Piece> pieces;
  cut(Piece(buffer.data + slice.begin * scalar, static_cast<std::size_t>(slice.count * scalar)), piece_bytes,
      pieces);
  return pieces;
}

std::vector<Piece> whole(const Buffer& buffer, const Memory& memory) {
  return cut(buffer, {0, buffer.elements}, memory.piece_bytes);
}

Memory moving_memory(const Channel& channel, const Ring& ring) {
  Memory memory = channel.moves();
  if (ring.size() == 2 && memory.copier == nullptr) memory.piece_bytes = largest_message;
  return memory;
}

std::vector<RingStep> ring_steps(const Ring& ring, const Buffer& buffer, int first, const Memory& memory) {
  std::vector<std::vector<Piece>> slices;  // in the order in which they come by
  std::size_t longest = 0;
  for (int step = 0; step < ring.size(); ++step) {
    slices.push_back(cut(buffer, slice(buffer.elements, ring.size(), first - step), memory.piece_bytes));
    longest = std::max(longest, slices.back().size());
  }
  std::vector<RingStep> steps;
  for (std::size_t begin = 0; begin < longest; begin += std::min(memory.window, longest))
    for (std::size_t s = 0; s < slices.size(); ++s)
      for (std::size_t k = begin; k < slices[s].size() && k - begin < memory.window; ++k)
        steps.push_back({slices[s][k], s > 0, s + 1 < slices.size()});
  return steps;
}

std::vector<Piece> pieces_of(const std::vector<RingStep>& steps, bool arrive) {
  std::vector<Piece> pieces;
  for (const RingStep& step : steps)
    if (step.arrives == arrive) pieces.push_back(step.piece);
  return pieces;
}

Slot& sum(Scalar scalar, Slot& arrived, Slot& own, bool own_may_change) {
  Slot& target = own.in_place && own_may_change ? own : arrived;
  const Slot& other = &target == &own ? arrived : own;
  add(scalar, target.memory.data(), other.memory.data(),
      static_cast<std::int64_t>(target.memory.size() / bytes_of(scalar)));
  return target;
}

}  // namespace minitaw::comm::mpi
