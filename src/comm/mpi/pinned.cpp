#include "comm/mpi/pinned.hpp"

#include <algorithm>
#include <bit>

namespace minitaw::comm::mpi {
namespace {

using schedule::Action;

constexpr std::size_t usual_slots = 16, usual_piece = std::size_t{1} << 20, smallest_piece = 1 << 16;

/// Messages that the largest batch of a lane starts together.
std::size_t largest_batch(const schedule::RankProgram& rank, schedule::Lane lane) {
  std::size_t largest = 0;
  for (const schedule::Unit& unit : schedule::units(rank, lane))
    if (is_point_to_point(rank.actions[static_cast<std::size_t>(unit.actions.front())].kind))
      largest = std::max(largest, unit.actions.size());
  return largest;
}

/// Slots of a lane on every rank.
std::size_t slots_of(const schedule::Program& program, schedule::Lane lane) {
  std::size_t messages = 0;
  for (const auto& rank : program.ranks) messages = std::max(messages, largest_batch(rank, lane));
  return std::max(usual_slots, 2 * messages);
}

}  // namespace

bool communicates(const schedule::RankProgram& rank, schedule::Lane lane) {
  return std::ranges::any_of(rank.actions,
                             [&](const Action& a) { return a.lane == lane && is_communication(a.kind); });
}

PinnedShape pinned_shape(const schedule::Program& program, schedule::Lane lane) {
  if (std::ranges::none_of(program.ranks, [&](const auto& rank) { return communicates(rank, lane); }))
    return {};
  std::size_t most = 0;
  for (int l = 0; l < schedule::lanes; ++l)
    most = std::max(most, slots_of(program, static_cast<schedule::Lane>(l)));
  const std::size_t fitting = std::bit_floor(usual_slots * usual_piece / most);
  return {slots_of(program, lane), std::clamp(fitting, smallest_piece, usual_piece)};
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
