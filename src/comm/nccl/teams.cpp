#include "comm/nccl/teams.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace minitaw::comm::nccl {
namespace {

using schedule::Action;
using schedule::Lane;

/// What a lane is used for.
struct Use {
  std::set<int> messengers;                        ///< ranks that send or receive
  std::map<int, std::set<schedule::Kind>> called;  ///< by communicator
};

Use use_of(const schedule::Program& program, Lane lane) {
  Use use;
  for (int rank = 0; rank < static_cast<int>(program.ranks.size()); ++rank)
    for (const Action& a : program.ranks[static_cast<std::size_t>(rank)].actions) {
      if (a.lane != lane) continue;
      if (is_point_to_point(a.kind)) use.messengers.insert(rank);
      else if (is_collective(a.kind)) use.called[a.communicator].insert(a.kind);
    }
  return use;
}

std::vector<int> sorted(const std::set<int>& ranks) { return {ranks.begin(), ranks.end()}; }

}  // namespace

std::vector<Team> teams_of(const schedule::Program& program) {
  std::vector<Team> teams;
  for (const Lane lane : {Lane::intra, Lane::inter}) {
    const Use use = use_of(program, lane);
    if (!use.messengers.empty()) teams.push_back({lane, -1, sorted(use.messengers), {}});
    for (const auto& [communicator, kinds] : use.called) {
      const std::vector<int>& ranks = program.communicators[static_cast<std::size_t>(communicator)].ranks;
      if (ranks.size() > 1) teams.push_back({lane, communicator, ranks, {kinds.begin(), kinds.end()}});
    }
  }
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

Peers peers_of(const schedule::Program& program, int rank, Lane lane) {
  std::set<int> to, from;
  for (const Action& a : program.ranks[static_cast<std::size_t>(rank)].actions) {
    if (a.lane != lane || !is_point_to_point(a.kind)) continue;
    (a.kind == schedule::Kind::send ? to : from).insert(a.peer);
  }
  return {sorted(to), sorted(from)};
}

}  // namespace minitaw::comm::nccl
