#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/program.hpp"

/// What minitaw_comm measures, and among whom.
namespace minitaw::bench {

enum class Operation {
  send,            ///< members 0, 2, ... each send to the next one
  shift,           ///< all send to the next and receive from the previous member, at the same time
  broadcast,       ///< from member 0
  reduce,          ///< to member 0
  all_gather,      ///< in place
  reduce_scatter,  ///< in place
  all_reduce,      ///< in place
};
inline constexpr std::array operations = {
    Operation::send,       Operation::shift,          Operation::broadcast, Operation::reduce,
    Operation::all_gather, Operation::reduce_scatter, Operation::all_reduce};
[[nodiscard]] std::string_view name_of(Operation operation);
/// Throws InputError for a name that there is not.
[[nodiscard]] Operation parse_operation(const std::string& text);
[[nodiscard]] bool sums(Operation operation);
/// Gradients are added up, weights are not.
[[nodiscard]] schedule::Payload payload_of(Operation operation);

/// Teams of ranks that do the same at the same time, each among its members: all groups, or their first
/// ranks, or everybody.
struct Place {
  std::string name;
  bool inside = false;             ///< all teams are groups
  std::vector<int> communicators;  ///< of the program, one per team
};

/// The lane that a schedule has for one side of it; for messages, the sender's or the receiver's.
[[nodiscard]] schedule::Lane lane_of(Operation operation, const Place& place, bool sends);

/// "in groups" (those of more than one rank), "between groups" and "all ranks", as far as they differ.
struct Places {
  std::vector<Place> places;
  schedule::Program program;  ///< the communicators, and every operation once, so that a transport is ready
};
[[nodiscard]] Places places_of(const topology::Groups& groups);

/// A rank in its team at a place.
struct Member {
  int communicator = -1;  ///< -1: the rank takes no part
  std::vector<int> ranks;
  int index = -1;

  [[nodiscard]] bool taken() const { return communicator >= 0; }
  [[nodiscard]] int size() const { return static_cast<int>(ranks.size()); }
  [[nodiscard]] int next() const { return ranks[static_cast<std::size_t>((index + 1) % size())]; }
  [[nodiscard]] int previous() const {
    return ranks[static_cast<std::size_t>((index + size() - 1) % size())];
  }
  /// Member of a pair of Operation::send; the last of an odd number is in none.
  [[nodiscard]] bool sends() const { return index % 2 == 0 && index + 1 < size(); }
  [[nodiscard]] bool receives() const { return index % 2 == 1; }
};
[[nodiscard]] Member member_of(const Places& places, const Place& place, int rank);

}  // namespace minitaw::bench
