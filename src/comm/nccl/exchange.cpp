#include "comm/nccl/exchange.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"

namespace minitaw::comm::nccl {
namespace {

int place_of(int rank, const Team& team) {
  const auto found = std::ranges::lower_bound(team.ranks, rank);
  if (found == team.ranks.end() || *found != rank)
    throw LogicError(fmt::format("the program has no such messages to or from rank {}", rank));
  return static_cast<int>(found - team.ranks.begin());
}

}  // namespace

Batch::Batch(std::span<const Message> messages, int rank, const Colours& colours,
             const Communicators& communicators) {
  for (const Message& m : messages) {
    if (m.bytes == 0) continue;
    const int from = m.send ? rank : m.peer, to = m.send ? m.peer : rank;
    const Member& member = communicators.find(colours.messages(m.payload, from, to));
    passages_.push_back({m, member.communicator.get(), place_of(m.peer, member.team)});
    if (std::ranges::count(communicators_, member.communicator.get()) == 0)
      communicators_.push_back(member.communicator.get());
  }
  std::ranges::stable_sort(passages_, {}, [](const Passage& p) { return p.message.payload; });
}

void Batch::issue(Queue queue) const {
  for (const auto& [message, communicator, peer] : passages_) {
    if (message.send) communicator->send(message.data, message.bytes, peer, queue);
    else communicator->receive(message.data, message.bytes, peer, queue);
  }
}

}  // namespace minitaw::comm::nccl
