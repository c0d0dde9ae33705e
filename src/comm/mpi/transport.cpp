#include "comm/mpi/transport.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "comm/mpi/memory.hpp"
#include "comm/mpi/mpi.hpp"
#include "comm/mpi/operations.hpp"
#include "comm/transport.hpp"

namespace minitaw::comm::mpi {
namespace {

using schedule::Kind;

/// Tags of collectives start behind those of messages, which are their payloads.
constexpr std::size_t first_collective_tag = 64;

int collective_tag(std::size_t communicator, schedule::Lane lane) {
  return static_cast<int>(first_collective_tag + communicator * schedule::lanes +
                          static_cast<std::size_t>(lane));
}

/// Whether MPI allows the tags of all communicators.
void check_tags(MPI_Comm world, std::size_t communicators) {
  const int* largest = nullptr;
  int known = 0;
  check(MPI_Comm_get_attr(world, MPI_TAG_UB, &largest, &known), "MPI_Comm_get_attr of MPI_TAG_UB");
  if (known && collective_tag(communicators, schedule::Lane::compute) > *largest)
    throw LogicError(
        fmt::format("{} communicators need more tags than the {} of this MPI", communicators, *largest));
}

/// As far as it gets at once.
comm::Transport::Started begin(comm::Transport::Started operation) {
  operation->advance();
  return operation->done() ? nullptr : std::move(operation);
}

LaneMemories host_memories(MPI_Comm world, const schedule::Program& program, std::span<std::byte> staging) {
  const int rank = rank_in(world, program);
  const Staging shares = share_staging(program.ranks[static_cast<std::size_t>(rank)], staging);
  LaneMemories memories;
  for (std::size_t lane = 0; lane < memories.size(); ++lane) memories[lane] = host_memory(shares[lane]);
  return memories;
}

}  // namespace

Transport::Transport(MPI_Comm world, const schedule::Program& program, const LaneMemories& memory,
                     const WaitPolicy& policy)
    : rank_(rank_in(world, program)), ranks_(static_cast<int>(program.ranks.size())),
      staged_(std::ranges::any_of(memory, [](const LaneMemory& m) { return m.moves.copier != nullptr; })),
      communicators_(program.communicators), waiter_(policy, cancelled_), comm_(world) {
  check_tags(world, communicators_.size());
  for (std::size_t lane = 0; lane < channels_.size(); ++lane)
    if (static_cast<schedule::Lane>(lane) != schedule::Lane::compute)
      channels_[lane] = std::make_unique<Channel>(comm_.get(), memory[lane], cancelled_);
}

Transport::Transport(MPI_Comm world, const schedule::Program& program, std::span<std::byte> staging,
                     const WaitPolicy& policy)
    : Transport(world, program, host_memories(world, program, staging), policy) {}

Channel& Transport::channel(schedule::Lane lane) {
  const auto& channel = channels_[static_cast<std::size_t>(lane)];
  if (channel == nullptr) throw LogicError("communication was given to the compute lane");
  return *channel;
}

Ring Transport::ring(schedule::Lane lane, Kind kind, const Collective& collective) const {
  const schedule::Communicator& communicator = communicator_at(communicators_, collective.communicator);
  const int size = static_cast<int>(communicator.ranks.size());
  const bool rooted = kind == Kind::broadcast || kind == Kind::reduce;
  const int first = rooted ? member_index(communicator, collective.root) : 0;
  return {&communicator.ranks, first, (member_index(communicator, rank_) - first + size) % size,
          collective_tag(static_cast<std::size_t>(collective.communicator), lane)};
}

Transport::Started Transport::start(schedule::Lane lane, std::span<const Message> batch) {
  return begin(make_exchange(channel(lane), batch));
}

Transport::Started Transport::start(schedule::Lane lane, Kind kind, const Collective& collective) {
  Channel& on = channel(lane);
  const Ring members = ring(lane, kind, collective);
  if (members.size() == 1 || collective.elements == 0) return nullptr;
  return begin(make_collective(
      on, kind, members,
      {collective.data, collective.elements, collective.scalar, schedule::traffic_of(collective.payload)}));
}

/// Each wait starts anew with a few quick looks, as long as something moves.
void Transport::wait(Operation& operation) {
  while (!operation.done()) waiter_.until([&] { return operation.advance(); });
}

schedule::ByteMatrix Transport::sent() const {
  schedule::ByteMatrix matrix(ranks_);
  for (const auto& channel : channels_)
    if (channel != nullptr) channel->add_sent(rank_, matrix);
  return matrix;
}

void Transport::reset_counters() {
  for (const auto& channel : channels_)
    if (channel != nullptr) channel->reset_counters();
}

}  // namespace minitaw::comm::mpi
