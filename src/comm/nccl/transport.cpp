#include "comm/nccl/transport.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "comm/members.hpp"
#include "comm/mpi/rank.hpp"
#include "comm/nccl/exchange.hpp"
#include "comm/nccl/warm_up.hpp"

namespace minitaw::comm::nccl {
namespace {

using schedule::Kind;

void check_lane(schedule::Lane lane) {
  if (lane == schedule::Lane::compute) throw LogicError("communication was given to the compute lane");
}

using Call = void (*)(const Seat&, const Buffer&, int root);

Call call_of(Kind kind) {
  switch (kind) {
  case Kind::broadcast:
    return nccl::broadcast;
  case Kind::reduce:
    return nccl::reduce;
  case Kind::all_gather:
    return nccl::all_gather;
  case Kind::reduce_scatter:
    return nccl::reduce_scatter;
  case Kind::all_reduce:
    return nccl::all_reduce;
  default:
    throw LogicError(fmt::format("{} is no collective", name_of(kind)));
  }
}

bool rooted(Kind kind) { return kind == Kind::broadcast || kind == Kind::reduce; }

}  // namespace

Transport::Transport(MPI_Comm world, const schedule::Program& program, Api& api, const Options& options)
    : rank_(mpi::rank_in(world, program)), program_communicators_(program.communicators),
      queues_(options.queues), counters_(rank_, static_cast<int>(program.ranks.size())), colours_(program),
      launcher_(api, options.patience), communicators_(world, program, api, launcher_, options.setup_limit) {
  warm_up(program, rank_, colours_, communicators_, launcher_, queues_, options.scratch);
}

Transport::~Transport() = default;

Transport::Started Transport::start(schedule::Lane lane, std::span<const Message> messages) {
  check_lane(lane);
  const Batch batch(messages, rank_, colours_, communicators_);
  if (batch.communicators().empty()) return nullptr;
  launcher_.launch(batch.communicators(), [&] { batch.issue(queue(lane)); });
  for (const Message& m : messages)
    if (m.send) counters_.add_message(m.peer, schedule::traffic_of(m.payload), m.bytes);
  return nullptr;
}

Transport::Started Transport::start(schedule::Lane lane, Kind kind, const Collective& c) {
  check_lane(lane);
  const Call call = call_of(kind);
  const schedule::Communicator& communicator = communicator_at(program_communicators_, c.communicator);
  (void)member_index(communicator, rank_);
  const int root = rooted(kind) ? member_index(communicator, c.root) : -1;
  if (communicator.ranks.size() == 1 || c.elements == 0) return nullptr;
  const Seat seat = seat_of(communicators_.find(Calls{lane, c.communicator}), queue(lane));
  launcher_.launch(seat.communicator, [&] { call(seat, {c.data, c.elements, c.scalar}, root); });
  counters_.add_collective(kind, communicator.ranks, c);
  return nullptr;
}

void Transport::poll() {
  launcher_.use_if_idle([this] { communicators_.poll(); });
}

void Transport::cancel() {
  launcher_.cancel([this] { communicators_.abort(); });
}

}  // namespace minitaw::comm::nccl
