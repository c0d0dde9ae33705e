#include "comm/mpi/transport.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "comm/members.hpp"
#include "comm/mpi/check.hpp"
#include "comm/mpi/exchange.hpp"
#include "comm/mpi/rank.hpp"
#include "comm/mpi/staging.hpp"

namespace minitaw::comm::mpi {
namespace {

/// Tags of collectives start behind those of payloads.
constexpr int first_collective_tag = 64;

/// Collectives of communicator c carry tag first_collective_tag + c, which MPI must allow.
void check_tags(MPI_Comm world, std::size_t communicators) {
  const int* largest = nullptr;
  int known = 0;
  check(MPI_Comm_get_attr(world, MPI_TAG_UB, &largest, &known), "MPI_Comm_get_attr of MPI_TAG_UB");
  if (known && first_collective_tag + communicators > static_cast<std::size_t>(*largest))
    throw LogicError(
        fmt::format("{} communicators need more tags than the {} of this MPI", communicators, *largest));
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
                     const Patience& patience)
    : rank_(rank_in(world, program)), ranks_(static_cast<int>(program.ranks.size())),
      communicators_(program.communicators),
      intra_(world, memory[static_cast<int>(schedule::Lane::intra)], Waiter(patience, cancelled_, &hurry_)),
      inter_(world, memory[static_cast<int>(schedule::Lane::inter)], Waiter(patience, cancelled_, &hurry_)) {
  check_tags(world, communicators_.size());
}

Transport::Transport(MPI_Comm world, const schedule::Program& program, std::span<std::byte> staging,
                     const Patience& patience)
    : Transport(world, program, host_memories(world, program, staging), patience) {}

Channel& Transport::channel(schedule::Lane lane) {
  if (lane == schedule::Lane::compute) throw LogicError("communication was given to the compute lane");
  return lane == schedule::Lane::intra ? intra_ : inter_;
}

Ring Transport::ring(const Collective& collective, int first_rank) const {
  const schedule::Communicator& communicator = communicator_at(communicators_, collective.communicator);
  const int size = static_cast<int>(communicator.ranks.size());
  const int first = first_rank < 0 ? 0 : member_index(communicator, first_rank);
  return {&communicator.ranks, first, (member_index(communicator, rank_) - first + size) % size,
          first_collective_tag + collective.communicator};
}

void Transport::play(Operation operation, schedule::Lane lane, const Collective& collective, int first_rank) {
  const Ring members = ring(collective, first_rank);
  if (members.size() == 1 || collective.elements == 0) return;
  operation(
      channel(lane), members,
      {collective.data, collective.elements, collective.scalar, schedule::traffic_of(collective.payload)});
}

void Transport::exchange(schedule::Lane lane, std::span<const Message> batch, const Received& received) {
  mpi::exchange(channel(lane), batch, largest_message, received);
}

void Transport::broadcast(schedule::Lane lane, const Collective& collective) {
  play(mpi::broadcast, lane, collective, collective.root);
}

void Transport::reduce(schedule::Lane lane, const Collective& collective) {
  play(mpi::reduce, lane, collective, collective.root);
}

void Transport::all_gather(schedule::Lane lane, const Collective& collective) {
  play(mpi::all_gather, lane, collective, -1);
}

void Transport::reduce_scatter(schedule::Lane lane, const Collective& collective) {
  play(mpi::reduce_scatter, lane, collective, -1);
}

void Transport::all_reduce(schedule::Lane lane, const Collective& collective) {
  play(mpi::all_reduce, lane, collective, -1);
}

schedule::ByteMatrix Transport::sent() const {
  schedule::ByteMatrix matrix(ranks_);
  intra_.add_sent(rank_, matrix);
  inter_.add_sent(rank_, matrix);
  return matrix;
}

void Transport::reset_counters() {
  intra_.reset_counters();
  inter_.reset_counters();
}

}  // namespace minitaw::comm::mpi
