#include "comm/mpi/pinned.hpp"

#include <algorithm>

namespace minitaw::comm::mpi {
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
