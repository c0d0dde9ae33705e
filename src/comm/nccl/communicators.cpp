#include "comm/nccl/transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/error.hpp"

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
    for (const Action& a : program.ranks[static_cast<std::size_t>(rank)].actions)
      if (is_point_to_point(a.kind))
        visit(a, a.kind == Kind::send ? rank : a.peer, a.kind == Kind::send ? a.peer : rank);
}

}  // namespace

Colours::Colours(const schedule::Program& program) {
  for (const Lane lane : {Lane::operands_out, Lane::gradients_out}) {
    std::vector<std::set<int>> neighbours(program.ranks.size());
    for_each_message(program, [&](const Action& a, int from, int to) {
      if (lane_of(a.payload) != lane) return;
      neighbours[static_cast<std::size_t>(from)].insert(to);
      neighbours[static_cast<std::size_t>(to)].insert(from);
    });
    std::vector<int>& colours = of_rank_[lane];
    for (const std::set<int>& others : neighbours) {  // each in turn gets the first that no neighbour has yet
      std::set<int> taken;
      for (const int other : others)
        if (other < static_cast<int>(colours.size())) taken.insert(colours[static_cast<std::size_t>(other)]);
      int free = 0;
      while (taken.contains(free)) ++free;
      colours.push_back(free);
    }
  }
}

Use Colours::messages(schedule::Payload payload, int from, int to) const {
  const Lane lane = lane_of(payload);
  const std::vector<int>& colours = of_rank_.at(lane);
  const auto own = static_cast<unsigned>(colours.at(static_cast<std::size_t>(from)));
  const unsigned differ = own ^ static_cast<unsigned>(colours.at(static_cast<std::size_t>(to)));
  if (differ == 0)
    throw LogicError(fmt::format("the program has no such message from rank {} to rank {}", from, to));
  const int bit = std::countr_zero(differ);
  return {.lane = lane, .bit = bit, .value = static_cast<int>(own >> bit & 1U)};
}

std::vector<CommunicatorPlan> plan_communicators(const schedule::Program& program) {
  const Colours colours(program);
  std::map<Use, CommunicatorPlan> messages, collectives;
  for_each_message(program, [&](const Action& a, int from, int to) {
    messages[colours.messages(a.payload, from, to)].links.insert({from, to});
  });
  for (const auto& rank : program.ranks)
    for (const Action& a : rank.actions)
      if (is_collective(a.kind))
        collectives[{.lane = a.lane, .communicator = a.communicator}].kinds.insert(a.kind);
  std::vector<CommunicatorPlan> plans;
  for (auto& [use, plan] : messages) {
    std::set<int> ranks;
    for (const auto& [from, to] : plan.links) ranks.insert({from, to});
    plans.push_back({use, {ranks.begin(), ranks.end()}, {}, std::move(plan.links)});
  }
  for (auto& [use, plan] : collectives)
    if (const auto& ranks = program.communicators[static_cast<std::size_t>(use.communicator)].ranks;
        ranks.size() > 1)
      plans.push_back({use, ranks, std::move(plan.kinds), {}});
  return plans;
}

std::vector<std::vector<int>> rounds(const std::vector<CommunicatorPlan>& plans) {
  std::vector<std::vector<int>> rounds;
  std::vector<std::set<int>> busy;  // ranks, by round
  for (int p = 0; p < static_cast<int>(plans.size()); ++p) {
    const std::vector<int>& ranks = plans[static_cast<std::size_t>(p)].ranks;
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
