#include "comm/nccl/calls.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "base/error.hpp"
#include "comm/transport.hpp"

namespace minitaw::comm::nccl {

std::byte* Buffer::at(std::int64_t element) const {
  return data + static_cast<std::size_t>(element) * bytes_of(scalar);
}

void all_reduce(const Membership& self, const Buffer& buffer, int) {
  self.communicator.all_reduce(buffer.data, buffer.data, buffer.count(), buffer.type(), self.queue);
}

void broadcast(const Membership& self, const Buffer& buffer, int root) {
  self.communicator.broadcast(buffer.data, buffer.data, buffer.count(), buffer.type(), root, self.queue);
}

/// NCCL writes only the root's buffer.
void reduce(const Membership& self, const Buffer& buffer, int root) {
  self.communicator.reduce(buffer.data, buffer.data, buffer.count(), buffer.type(), root, self.queue);
}

namespace {

/// Unequal slices: a broadcast of each, all in one group.
void gather_unequal(const Membership& self, const Buffer& buffer) {
  for (int member = 0; member < self.members; ++member) {
    const Range part = slice(buffer.elements, self.members, member);
    if (part.count > 0) broadcast(self, {buffer.at(part.begin), part.count, buffer.scalar}, member);
  }
}

}  // namespace

void all_gather(const Membership& self, const Buffer& buffer, int) {
  if (!even(self, buffer)) return gather_unequal(self, buffer);
  const Range own = slice(buffer.elements, self.members, self.index);
  self.communicator.all_gather(buffer.at(own.begin), buffer.data, static_cast<std::size_t>(own.count),
                               buffer.type(), self.queue);
}

namespace {

/// Unequal slices: a reduction of each to its member, all in one group.
void scatter_unequal(const Membership& self, const Buffer& buffer) {
  for (int member = 0; member < self.members; ++member) {
    const Range part = slice(buffer.elements, self.members, member);
    if (part.count > 0) reduce(self, {buffer.at(part.begin), part.count, buffer.scalar}, member);
  }
}

}  // namespace

void reduce_scatter(const Membership& self, const Buffer& buffer, int) {
  if (!even(self, buffer)) return scatter_unequal(self, buffer);
  const Range own = slice(buffer.elements, self.members, self.index);
  self.communicator.reduce_scatter(buffer.data, buffer.at(own.begin), static_cast<std::size_t>(own.count),
                                   buffer.type(), self.queue);
}

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
  std::ranges::stable_sort(passages_, {}, [](const StagedTransfer& p) { return p.message.payload; });
}

void Batch::issue(Queue queue) const {
  for (const auto& [message, communicator, peer] : passages_) {
    if (message.send) communicator->send(message.data, message.bytes, peer, queue);
    else communicator->receive(message.data, message.bytes, peer, queue);
  }
}

namespace {

using schedule::Kind;
using schedule::Lane;

constexpr std::size_t message_bytes = 16;
/// Of each lane: lanes execute beside each other.
std::size_t lane_bytes(const schedule::Program& program) {
  const std::size_t ranks = program.ranks.size();
  const std::size_t bytes = std::max((ranks + 1) * message_bytes, ranks * sizeof(float));
  return (bytes + 255) / 256 * 256;
}

schedule::Payload payload_of(Cargo cargo) {
  return cargo == Cargo::operands ? schedule::Payload::weights : schedule::Payload::gradient;
}

/// Every peer once; what arrives lands behind what is sent.
std::vector<Message> greetings(const Peers& peers, schedule::Payload payload, std::byte* memory) {
  std::vector<Message> batch;
  for (const int peer : peers.to) batch.push_back({true, peer, payload, memory, message_bytes});
  for (const int peer : peers.from)
    batch.push_back({false, peer, payload, memory += message_bytes, message_bytes});
  return batch;
}

void call(Kind kind, const Membership& self, std::byte* memory) {
  const Buffer buffer{memory, self.members, Scalar::fp32};
  if (kind == Kind::broadcast) broadcast(self, buffer, 0);
  if (kind == Kind::reduce) reduce(self, buffer, 0);
  if (kind == Kind::all_gather) all_gather(self, buffer, 0);
  if (kind == Kind::reduce_scatter) reduce_scatter(self, buffer, 0);
  if (kind == Kind::all_reduce) all_reduce(self, buffer, 0);
}

}  // namespace

std::size_t scratch_bytes(const schedule::Program& program) { return schedule::lanes * lane_bytes(program); }

void warm_up(const schedule::Program& program, int rank, const Colours& colours,
             const Communicators& communicators, Launcher& launcher, std::span<const Queue> queues,
             std::span<std::byte> scratch) {
  if (scratch.size() < scratch_bytes(program))
    throw LogicError(fmt::format("NCCL's first messages need {} bytes of device memory, {} were given",
                                 scratch_bytes(program), scratch.size()));
  const auto memory = [&](Lane lane) {
    return scratch.data() + static_cast<std::size_t>(lane) * lane_bytes(program);
  };
  for (const Member& member : communicators.members()) {
    if (const auto* const use = std::get_if<Messages>(&member.team.use)) {
      const Peers peers = peers_of(program, colours, rank, *use);
      const Lane lane = lane_of(peers.to.empty() ? Kind::recv : Kind::send, payload_of(use->cargo), false);
      const Batch batch(greetings(peers, payload_of(use->cargo), memory(lane)), rank, colours, communicators);
      launcher.launch(batch.communicators(), [&] { batch.issue(queues[static_cast<std::size_t>(lane)]); });
      continue;
    }
    const Lane lane = std::get<Calls>(member.team.use).lane;
    const Membership self = membership_of(member, queues[static_cast<std::size_t>(lane)]);
    for (const Kind kind : member.team.kinds)
      launcher.launch(self.communicator, [&] { call(kind, self, memory(lane)); });
  }
}

}  // namespace minitaw::comm::nccl
