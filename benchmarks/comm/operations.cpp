#include "operations.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"

namespace minitaw::bench {
namespace {

using schedule::Kind;
using schedule::Payload;

constexpr std::array<std::string_view, operations.size()> names = {
    "send", "shift", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_reduce"};

/// Teams of one have nothing to say to each other.
void add_place(Places& places, std::string name, bool inside, const std::vector<std::vector<int>>& teams) {
  Place place{std::move(name), inside, {}};
  for (const std::vector<int>& team : teams) {
    if (team.size() < 2) continue;
    place.communicators.push_back(static_cast<int>(places.program.communicators.size()));
    places.program.communicators.push_back({fmt::format("{} {}", place.name, team.front()), team});
  }
  if (!place.communicators.empty()) places.places.push_back(std::move(place));
}

schedule::Action action(Kind kind, Operation operation, const Place& place, int peer, int communicator) {
  schedule::Action a;
  a.kind = kind;
  a.lane = lane_of(operation, place, kind == Kind::send);
  a.peer = peer;
  a.communicator = communicator;
  a.payload = payload_of(operation);
  return a;
}

Kind kind_of(Operation operation) {
  switch (operation) {
  case Operation::broadcast:
    return Kind::broadcast;
  case Operation::reduce:
    return Kind::reduce;
  case Operation::all_gather:
    return Kind::all_gather;
  case Operation::reduce_scatter:
    return Kind::reduce_scatter;
  case Operation::all_reduce:
    return Kind::all_reduce;
  default:
    return Kind::send;
  }
}

/// Transports look in the program for what they must be ready for.
void add_actions(Places& places, const Place& place, int rank) {
  const Member member = member_of(places, place, rank);
  if (!member.taken()) return;
  std::vector<schedule::Action>& actions = places.program.ranks[static_cast<std::size_t>(rank)].actions;
  for (const Operation operation : operations) {
    const Kind kind = kind_of(operation);
    if (kind == Kind::send) {
      actions.push_back(action(Kind::recv, operation, place, member.previous(), -1));
      actions.push_back(action(Kind::send, operation, place, member.next(), -1));
    } else {
      actions.push_back(action(kind, operation, place, member.ranks.front(), member.communicator));
    }
  }
}

}  // namespace

std::string_view name_of(Operation operation) { return names[static_cast<std::size_t>(operation)]; }

Operation parse_operation(const std::string& text) {
  const auto at = std::ranges::find(names, text);
  if (at == names.end())
    throw InputError(fmt::format("there is no operation '{}'; there are {}", text, fmt::join(names, ", ")));
  return operations[static_cast<std::size_t>(at - names.begin())];
}

bool sums(Operation operation) {
  return operation == Operation::reduce || operation == Operation::reduce_scatter ||
         operation == Operation::all_reduce;
}

Payload payload_of(Operation operation) { return sums(operation) ? Payload::gradient : Payload::weights; }

schedule::Lane lane_of(Operation operation, const Place& place, bool sends) {
  const Kind kind = kind_of(operation);
  return schedule::lane_of(kind == Kind::send && !sends ? Kind::recv : kind, payload_of(operation),
                           place.inside);
}

Places places_of(const topology::Groups& groups) {
  Places places;
  places.program.groups = groups;
  places.program.ranks.resize(static_cast<std::size_t>(groups.ranks()));
  std::vector<std::vector<int>> inside;
  std::vector<int> first, all;
  for (int g = 0; g < groups.count(); ++g) {
    inside.push_back(groups.members(g));
    first.push_back(groups.first(g));
    all.insert(all.end(), inside.back().begin(), inside.back().end());
  }
  add_place(places, groups.count() == 1 ? "all ranks" : "in groups", true, inside);
  add_place(places, "between groups", false, {first});
  if (groups.count() > 1 && all != first) add_place(places, "all ranks", false, {all});
  for (const Place& place : places.places)
    for (int r = 0; r < groups.ranks(); ++r) add_actions(places, place, r);
  return places;
}

Member member_of(const Places& places, const Place& place, int rank) {
  for (const int c : place.communicators) {
    const std::vector<int>& ranks = places.program.communicators[static_cast<std::size_t>(c)].ranks;
    if (const auto at = std::ranges::find(ranks, rank); at != ranks.end())
      return {c, ranks, static_cast<int>(at - ranks.begin())};
  }
  return {};
}

}  // namespace minitaw::bench
