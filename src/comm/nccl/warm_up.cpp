#include "comm/nccl/warm_up.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "comm/nccl/exchange.hpp"

namespace minitaw::comm::nccl {
namespace {

using schedule::Kind;
using schedule::Lane;

constexpr std::size_t message_bytes = 16;
/// Of each lane: lanes play beside each other.
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

void call(Kind kind, const Seat& seat, std::byte* memory) {
  const Buffer buffer{memory, seat.members, Scalar::fp32};
  if (kind == Kind::broadcast) broadcast(seat, buffer, 0);
  if (kind == Kind::reduce) reduce(seat, buffer, 0);
  if (kind == Kind::all_gather) all_gather(seat, buffer, 0);
  if (kind == Kind::reduce_scatter) reduce_scatter(seat, buffer, 0);
  if (kind == Kind::all_reduce) all_reduce(seat, buffer, 0);
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
    const Seat seat = seat_of(member, queues[static_cast<std::size_t>(lane)]);
    for (const Kind kind : member.team.kinds)
      launcher.launch(seat.communicator, [&] { call(kind, seat, memory(lane)); });
  }
}

}  // namespace minitaw::comm::nccl
