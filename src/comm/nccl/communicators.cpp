#include "comm/nccl/transport.hpp"

#include <algorithm>
#include <bit>
#include <map>

namespace minitaw::comm::nccl {
namespace {

using schedule::Action;
using schedule::Kind;
using schedule::Lane;

/// Operands and gradients leave on lanes of their own.
Lane lane_of(schedule::Payload payload) { return schedule::lane_of(Kind::send, payload, false); }

/// Calls visit(action, from, to) for both sides of every message of the program.
template <class Visit>
void for_each_message(const schedule::Program& program, const Visit& visit) {
  for (int rank = 0; rank < static_cast<int>(program.ranks.size()); ++rank)
    for (const Action& a : program.ranks[rank].actions)
      if (is_point_to_point(a.kind))
        visit(a, a.kind == Kind::send ? rank : a.peer, a.kind == Kind::send ? a.peer : rank);
}

/// Colours of ranks, for operands or gradients: two that exchange messages have different ones.
std::vector<unsigned> colours(const schedule::Program& program, Lane sender) {
  std::vector<std::set<std::size_t>> neighbours(program.ranks.size());
  for_each_message(program, [&](const Action& a, int from, int to) {
    if (lane_of(a.payload) != sender) return;
    neighbours[from].insert(to);
    neighbours[to].insert(from);
  });
  std::vector<unsigned> colours;
  for (const std::set<std::size_t>& others : neighbours) {  // each gets the first that no neighbour has yet
    std::set<unsigned> taken;
    for (const std::size_t other : others)
      if (other < colours.size()) taken.insert(colours[other]);
    unsigned free = 0;
    while (taken.contains(free)) ++free;
    colours.push_back(free);
  }
  return colours;
}

}  // namespace

std::vector<CommunicatorPlan> plan_communicators(const schedule::Program& program) {
  std::vector<CommunicatorPlan> plans;
  for (const Lane sender : {Lane::operands_out, Lane::gradients_out}) {
    const std::vector<unsigned> colour = colours(program, sender);
    // By the lowest bit in which the colours of both ranks differ, and its value where messages leave.
    std::map<std::pair<int, unsigned>, std::set<std::pair<int, int>>> links;
    for_each_message(program, [&](const Action& a, int from, int to) {
      if (lane_of(a.payload) != sender) return;
      const unsigned own = colour[from], other = colour[to];
      const int bit = std::countr_zero(own ^ other);
      links[{bit, own >> bit & 1U}].insert({from, to});
    });
    for (auto& [bit, of_bit] : links) {
      std::set<int> ranks;
      for (const auto& [from, to] : of_bit) ranks.insert({from, to});
      plans.push_back({.lane = sender, .ranks = {ranks.begin(), ranks.end()}, .links = std::move(of_bit)});
    }
  }
  std::map<std::pair<Lane, int>, std::set<Kind>> collectives;
  for (const auto& rank : program.ranks)
    for (const Action& a : rank.actions)
      if (is_collective(a.kind)) collectives[{a.lane, a.communicator}].insert(a.kind);
  for (auto& [call, kinds] : collectives)
    if (const auto& ranks = program.communicators[call.second].ranks; ranks.size() > 1)
      plans.push_back(
          {.lane = call.first, .communicator = call.second, .ranks = ranks, .kinds = std::move(kinds)});
  return plans;
}

std::vector<std::vector<int>> rounds(const std::vector<CommunicatorPlan>& plans) {
  std::vector<std::vector<int>> rounds;
  std::vector<std::set<int>> busy;  // ranks, by round
  for (int p = 0; p < static_cast<int>(plans.size()); ++p) {
    const std::vector<int>& ranks = plans[p].ranks;
    const auto fits = [&](const std::set<int>& taken) {
      return std::ranges::none_of(ranks, [&](int rank) { return taken.contains(rank); });
    };
    const auto round = static_cast<std::size_t>(std::ranges::find_if(busy, fits) - busy.begin());
    if (round == busy.size()) busy.emplace_back(), rounds.emplace_back();
    busy[round].insert(ranks.begin(), ranks.end());
    rounds[round].push_back(p);
  }
  return rounds;
}

}  // namespace minitaw::comm::nccl
