#include "comm/mpi/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "base/error.hpp"

namespace minitaw::comm::mpi {
namespace {

constexpr std::size_t staged_ahead = 4;

Memory through_slots(Piece pinned, std::size_t piece_bytes, Copier& copier) {
  const std::size_t half = pinned.size() / piece_bytes / 2;
  if (half < 2 * staged_ahead)
    throw LogicError(fmt::format("{} bytes of pinned memory hold {} slots of {} bytes; 16 are needed",
                                 pinned.size(), pinned.size() / piece_bytes, piece_bytes));
  return {.piece_bytes = piece_bytes,
          .ahead = staged_ahead,
          .window = staged_ahead,
          .landing = pinned.first(half * piece_bytes),
          .loading = pinned.subspan(half * piece_bytes, half * piece_bytes),
          .copier = &copier};
}

}  // namespace

void Copier::settle() noexcept {
  for (std::size_t queue = 0; queue < queues; ++queue) {
    try {
      wait_loaded(queue);
      wait_stored(queue);
    } catch (const std::exception&) {  // a failed copy touches its buffer no more; who cancelled reports
    }
  }
}

void cut(Piece data, std::size_t largest, std::vector<Piece>& pieces) {
  for (; !data.empty(); data = data.subspan(pieces.back().size()))
    pieces.push_back(data.first(std::min(largest, data.size())));
}

LaneMemory host_memory(Piece staging) {
  LaneMemory memory;
  memory.sums.ahead = 2;
  memory.sums.landing = staging;
  return memory;
}

LaneMemory staged_memory(Piece pinned, std::size_t piece_bytes, Copier& copier) {
  const Memory memory = through_slots(pinned, piece_bytes, copier);
  return {.moves = memory, .sums = memory};
}

LaneMemory direct_memory(Piece pinned, std::size_t piece_bytes, Copier& copier) {
  LaneMemory memory;
  memory.moves.piece_bytes = piece_bytes;
  memory.sums = through_slots(pinned, piece_bytes, copier);
  return memory;
}

}  // namespace minitaw::comm::mpi
