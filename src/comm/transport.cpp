#include "comm/transport.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "base/bf16.hpp"
#include "base/error.hpp"

namespace minitaw::comm {

void SentBytes::add(int peer, schedule::Traffic traffic, std::uint64_t bytes) {
  cells_[peer * schedule::traffic_kinds + static_cast<int>(traffic)].fetch_add(bytes,
                                                                               std::memory_order_relaxed);
}

schedule::ByteMatrix SentBytes::matrix() const {
  schedule::ByteMatrix matrix(ranks_);
  for (int cell = 0; cell < static_cast<int>(cells_.size()); ++cell)
    matrix.add(rank_, cell / schedule::traffic_kinds,
               static_cast<schedule::Traffic>(cell % schedule::traffic_kinds),
               cells_[cell].load(std::memory_order_relaxed));
  return matrix;
}

Transport::Started SoloTransport::start(schedule::Lane, const Message& message) {
  throw LogicError(fmt::format("a job of one rank was asked for a message with rank {}", message.peer));
}

void check_lane(schedule::Lane lane) {
  if (lane == schedule::Lane::compute) throw LogicError("communication was given to the compute lane");
}

Membership membership_of(const std::vector<schedule::Communicator>& communicators, int rank,
                         schedule::Lane lane, schedule::Kind kind, const Collective& collective) {
  check_lane(lane);
  if (!is_collective(kind)) throw LogicError(fmt::format("{} is no collective", name_of(kind)));
  const int number = collective.communicator;
  if (number < 0 || static_cast<std::size_t>(number) >= communicators.size())
    throw LogicError(fmt::format("the program has no communicator {}", number));
  const schedule::Communicator& communicator = communicators[number];
  const auto index_of = [&](int member) {
    const auto found = std::ranges::find(communicator.ranks, member);
    if (found == communicator.ranks.end())
      throw LogicError(fmt::format("rank {} is not a member of communicator {}", member, communicator.name));
    return static_cast<int>(found - communicator.ranks.begin());
  };
  const bool rooted = kind == schedule::Kind::broadcast || kind == schedule::Kind::reduce;
  return {&communicator.ranks, index_of(rank), rooted ? index_of(collective.root) : 0};
}

std::size_t bytes_of(Scalar scalar) { return scalar == Scalar::fp32 ? sizeof(float) : sizeof(Bf16); }

// Plain loops: they run on communication threads, which must not enter the compute threads' parallel regions.
void add(Scalar scalar, std::byte* target, const std::byte* other, std::int64_t elements) {
  if (scalar == Scalar::fp32) {
    auto* __restrict const to = reinterpret_cast<float*>(target);
    const auto* __restrict const from = reinterpret_cast<const float*>(other);
    for (std::int64_t i = 0; i < elements; ++i) to[i] += from[i];
  } else {
    auto* __restrict const to = reinterpret_cast<Bf16*>(target);
    const auto* __restrict const from = reinterpret_cast<const Bf16*>(other);
    for (std::int64_t i = 0; i < elements; ++i) to[i] = to_bf16(to_float(to[i]) + to_float(from[i]));
  }
}

}  // namespace minitaw::comm
