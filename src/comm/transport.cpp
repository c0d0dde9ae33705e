// SPDX-License-Identifier: BSD-3-Clause
#include "comm/transport.hpp"
#include <algorithm>
#include "base/error.hpp"

namespace minitaw::comm {
Transport::Transport(std::string name, int rank, const schedule::Program& program)
    : sent_(program.job_ranks()),
      name_(std::move(name)),
      rank_(rank),
      communicators_(program.communicators) {
  for (const int c : indices(communicators_))
    communicators_[c].ranks = members_of(program, c, rank);
}

constexpr auto on_compute_lane = "communication was given to the compute lane";

Transport::Started Transport::start(schedule::Lane lane, const Message& message) {
  if (lane == schedule::Lane::compute)
    throw LogicError(on_compute_lane);
  return message.bytes == 0 ? nullptr : start_transfer(lane, message);
}

Transport::Started Transport::start(
    schedule::Lane lane, schedule::Kind kind, const Collective& collective) {
  if (lane == schedule::Lane::compute)
    throw LogicError(on_compute_lane);
  const Membership self = membership(kind, collective);
  return self.size() == 1 || collective.elements == 0
             ? nullptr
             : start_transfer(lane, kind, self, collective);
}

Membership Transport::membership(schedule::Kind kind, const Collective& collective) const {
  if (!is_collective(kind))
    throw LogicError("{} is no collective", name_of(kind));
  const int number = collective.communicator;
  if (number < 0 || static_cast<std::size_t>(number) >= communicators_.size())
    throw LogicError("the program has no communicator {}", number);
  const schedule::Communicator& communicator = communicators_[number];
  const auto index_of = [&](int member) {
    const int index = communicator.index_of(member);
    if (index < 0)
      throw LogicError("rank {} is not a member of communicator {}", member, communicator.name);
    return index;
  };
  return {&communicator.ranks, index_of(rank_), is_rooted(kind) ? index_of(collective.root) : 0};
}

void add(model::Dtype dtype, std::byte* target, const std::byte* other, std::int64_t elements) {
  model::with_element(dtype, [&]<class E>(E) {
    convert<true>(reinterpret_cast<E*>(target), reinterpret_cast<const E*>(other), elements);
  });
}
}  // namespace minitaw::comm
