#include "comm/mpi/memory.hpp"

#include <algorithm>
#include <exception>
#include <fmt/format.h>

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

namespace {

bool reduces(const schedule::Action& action) {
  using enum schedule::Kind;
  return action.kind == reduce || action.kind == reduce_scatter || action.kind == all_reduce;
}

}  // namespace

Staging share_staging(const schedule::RankProgram& rank, std::span<std::byte> memory) {
  constexpr std::size_t share = 2 * schedule::chunk_bytes;
  Staging staging;
  for (int lane = 0; lane < schedule::lanes; ++lane) {
    const auto here = [&](const schedule::Action& a) {
      return static_cast<int>(a.lane) == lane && reduces(a);
    };
    if (std::ranges::none_of(rank.actions, here)) continue;
    if (memory.size() < share)
      throw LogicError(fmt::format("{} bytes of staging memory are left for lane {}, which needs {}",
                                   memory.size(), schedule::name_of(static_cast<schedule::Lane>(lane)),
                                   share));
    staging[lane] = memory.first(share);
    memory = memory.subspan(share);
  }
  return staging;
}

namespace {

using schedule::Action;

constexpr std::size_t usual_slots = 16, usual_piece = std::size_t{1} << 20;

}  // namespace

bool communicates(const schedule::RankProgram& rank, schedule::Lane lane) {
  return std::ranges::any_of(rank.actions,
                             [&](const Action& a) { return a.lane == lane && is_communication(a.kind); });
}

/// A lane has one message or collective at a time, for which the usual slots are plenty.
PinnedShape pinned_shape(const schedule::Program& program, schedule::Lane lane) {
  if (std::ranges::none_of(program.ranks, [&](const auto& rank) { return communicates(rank, lane); }))
    return {};
  return {usual_slots, usual_piece};
}

std::size_t pinned_bytes(const schedule::Program& program, int rank) {
  std::size_t bytes = 0;
  for (int l = 0; l < schedule::lanes; ++l)
    if (const auto lane = static_cast<schedule::Lane>(l);
        communicates(program.ranks[static_cast<std::size_t>(rank)], lane))
      bytes += pinned_shape(program, lane).bytes();
  return bytes;
}

}  // namespace minitaw::comm::mpi
