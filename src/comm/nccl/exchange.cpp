#include "comm/nccl/exchange.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"

namespace minitaw::comm::nccl {
namespace {

int index_of(const std::vector<int>& ranks, int rank) {
  const auto found = std::ranges::lower_bound(ranks, rank);
  if (found == ranks.end() || *found != rank)
    throw LogicError(fmt::format("the program has no messages to or from rank {} on this lane", rank));
  return static_cast<int>(found - ranks.begin());
}

}  // namespace

void exchange(const Seat& seat, const std::vector<int>& ranks, std::span<const Message> batch) {
  std::vector<Message> messages;
  for (const Message& m : batch)
    if (m.bytes > 0) messages.push_back(m);
  std::ranges::stable_sort(messages, {}, &Message::payload);
  std::vector<int> peers;  // all of them before the first call
  for (const Message& m : messages) peers.push_back(index_of(ranks, m.peer));
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Message& m = messages[i];
    if (m.send) seat.communicator.send(m.data, m.bytes, peers[i], seat.queue);
    else seat.communicator.receive(m.data, m.bytes, peers[i], seat.queue);
  }
}

}  // namespace minitaw::comm::nccl
