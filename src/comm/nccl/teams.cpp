#include "comm/nccl/teams.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <utility>

#include "base/error.hpp"

namespace minitaw::comm::nccl {
namespace {

using schedule::Action;
using schedule::Kind;
using schedule::Lane;

/// Calls visit(rank, action) for every action of the program.
template <class Visit>
void for_each_action(const schedule::Program& program, const Visit& visit) {
  for (int rank = 0; rank < static_cast<int>(program.ranks.size()); ++rank)
    for (const Action& a : program.ranks[static_cast<std::size_t>(rank)].actions) visit(rank, a);
}

/// For each rank, those that it exchanges messages with.
std::vector<std::set<int>> neighbours(const schedule::Program& program, Cargo cargo) {
  std::vector<std::set<int>> all(program.ranks.size());
  for_each_action(program, [&](int rank, const Action& a) {
    if (!is_point_to_point(a.kind) || cargo_of(a.payload) != cargo || a.peer == rank) return;
    all[static_cast<std::size_t>(rank)].insert(a.peer);
    all[static_cast<std::size_t>(a.peer)].insert(rank);
  });
  return all;
}

/// Each rank in turn gets the first colour that no neighbour has yet.
std::vector<int> colour(const std::vector<std::set<int>>& neighbours) {
  std::vector<int> colours;
  for (const std::set<int>& others : neighbours) {
    std::set<int> taken;
    for (const int other : others)
      if (other < static_cast<int>(colours.size())) taken.insert(colours[static_cast<std::size_t>(other)]);
    int free = 0;
    while (taken.contains(free)) ++free;
    colours.push_back(free);
  }
  return colours;
}

Messages messages_of(const Colours& colours, int rank, const Action& a) {
  return a.kind == Kind::send ? colours.messages(a.payload, rank, a.peer)
                              : colours.messages(a.payload, a.peer, rank);
}

std::vector<int> sorted(const std::set<int>& ranks) { return {ranks.begin(), ranks.end()}; }

void add_message_teams(const schedule::Program& program, std::vector<Team>& teams) {
  const Colours colours(program);
  std::map<Messages, std::set<int>> users;
  for_each_action(program, [&](int rank, const Action& a) {
    if (is_point_to_point(a.kind)) users[messages_of(colours, rank, a)].insert(rank);
  });
  for (const auto& [use, ranks] : users) teams.push_back({use, sorted(ranks), {}});
}

void add_call_teams(const schedule::Program& program, std::vector<Team>& teams) {
  std::map<std::pair<Lane, int>, std::set<Kind>> called;
  for_each_action(program, [&](int, const Action& a) {
    if (is_collective(a.kind)) called[{a.lane, a.communicator}].insert(a.kind);
  });
  for (const auto& [at, kinds] : called) {
    const std::vector<int>& ranks = program.communicators[static_cast<std::size_t>(at.second)].ranks;
    if (ranks.size() > 1) teams.push_back({Calls{at.first, at.second}, ranks, {kinds.begin(), kinds.end()}});
  }
}

}  // namespace

Cargo cargo_of(schedule::Payload payload) {
  return lane_of(Kind::send, payload, false) == Lane::operands_out ? Cargo::operands : Cargo::gradients;
}

std::string text(const Use& use) {
  if (const auto* const calls = std::get_if<Calls>(&use))
    return fmt::format("collectives on communicator {} on lane {}", calls->communicator,
                       name_of(calls->lane));
  const auto& messages = std::get<Messages>(use);
  return fmt::format("messages of {} by bit {} value {}",
                     messages.cargo == Cargo::operands ? "operands" : "gradients", messages.bit,
                     messages.value);
}

Colours::Colours(const schedule::Program& program) {
  for (int cargo = 0; cargo < cargoes; ++cargo)
    of_rank_[static_cast<std::size_t>(cargo)] = colour(neighbours(program, static_cast<Cargo>(cargo)));
}

Messages Colours::messages(schedule::Payload payload, int from, int to) const {
  const Cargo cargo = cargo_of(payload);
  const std::vector<int>& colours = of_rank_[static_cast<std::size_t>(cargo)];
  const auto own = static_cast<unsigned>(colours.at(static_cast<std::size_t>(from)));
  const unsigned differ = own ^ static_cast<unsigned>(colours.at(static_cast<std::size_t>(to)));
  // A rank may send to itself: both ends are then in one batch.
  if (differ == 0 && from != to)
    throw LogicError(fmt::format("the program has no such message from rank {} to rank {}", from, to));
  const int bit = from == to ? 0 : std::countr_zero(differ);
  return {cargo, bit, static_cast<int>(own >> bit & 1U)};
}

int Colours::count(Cargo cargo) const {
  return 1 + std::ranges::max(of_rank_[static_cast<std::size_t>(cargo)]);
}

std::vector<Team> teams_of(const schedule::Program& program) {
  std::vector<Team> teams;
  add_message_teams(program, teams);
  add_call_teams(program, teams);
  return teams;
}

std::vector<std::vector<int>> rounds(const std::vector<Team>& teams) {
  std::vector<std::vector<int>> rounds;
  std::vector<std::set<int>> busy;  // ranks, by round
  for (int t = 0; t < static_cast<int>(teams.size()); ++t) {
    const std::vector<int>& ranks = teams[static_cast<std::size_t>(t)].ranks;
    const auto fits = [&](const std::set<int>& taken) {
      return std::ranges::none_of(ranks, [&](int rank) { return taken.contains(rank); });
    };
    const auto round = static_cast<std::size_t>(std::ranges::find_if(busy, fits) - busy.begin());
    if (round == busy.size()) busy.emplace_back(), rounds.emplace_back();
    busy[round].insert(ranks.begin(), ranks.end());
    rounds[round].push_back(t);
  }
  return rounds;
}

Peers peers_of(const schedule::Program& program, const Colours& colours, int rank, const Messages& use) {
  std::set<int> to, from;
  for (const Action& a : program.ranks[static_cast<std::size_t>(rank)].actions) {
    if (!is_point_to_point(a.kind) || messages_of(colours, rank, a) != use) continue;
    (a.kind == Kind::send ? to : from).insert(a.peer);
  }
  return {sorted(to), sorted(from)};
}

}  // namespace minitaw::comm::nccl
