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
constexpr Lane communication_lanes[] = {Lane::intra, Lane::inter};

std::size_t lane_bytes(const schedule::Program& program, int rank) {
  std::size_t bytes = 0;
  for (const Lane lane : communication_lanes)
    bytes = std::max(bytes, (peers_of(program, rank, lane).from.size() + 1) * message_bytes);
  for (const auto& communicator : program.communicators)
    bytes = std::max(bytes, communicator.ranks.size() * sizeof(float));
  return (bytes + 255) / 256 * 256;
}

/// Every peer once; what arrives lands behind what is sent.
std::vector<Message> greetings(const Peers& peers, std::byte* memory) {
  std::vector<Message> batch;
  for (const int peer : peers.to)
    batch.push_back({true, peer, schedule::Payload::weights, memory, message_bytes});
  for (const int peer : peers.from) {
    memory += message_bytes;
    batch.push_back({false, peer, schedule::Payload::weights, memory, message_bytes});
  }
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

std::size_t scratch_bytes(const schedule::Program& program, int rank) {
  return std::size(communication_lanes) * lane_bytes(program, rank);
}

void warm_up(const schedule::Program& program, int rank, const Communicators& communicators,
             Launcher& launcher, std::span<const Queue> queues, std::span<std::byte> scratch) {
  if (scratch.size() < scratch_bytes(program, rank))
    throw LogicError(fmt::format("NCCL's first messages need {} bytes of device memory, {} were given",
                                 scratch_bytes(program, rank), scratch.size()));
  for (const Member& member : communicators.members()) {
    const Lane lane = member.team.lane;
    std::byte* const memory = scratch.data() + (lane == Lane::intra ? 0 : lane_bytes(program, rank));
    const Seat seat{*member.communicator, static_cast<int>(member.team.ranks.size()), member.index,
                    queues[static_cast<std::size_t>(lane)]};
    if (member.team.communicator < 0)
      launcher.launch(seat.communicator, [&] {
        exchange(seat, member.team.ranks, greetings(peers_of(program, rank, lane), memory));
      });
    for (const Kind kind : member.team.kinds)
      launcher.launch(seat.communicator, [&] { call(kind, seat, memory); });
  }
}

}  // namespace minitaw::comm::nccl
