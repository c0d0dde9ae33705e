#include "comm/nccl/transport.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "base/error.hpp"
#include "base/range.hpp"
#include "comm/mpi/mpi.hpp"
#include "comm/nccl/calls.hpp"
#include "comm/transport.hpp"

namespace minitaw::comm::nccl {

namespace {

/// A member's view of a ring.
struct RingView {
  std::span<const int> ring;
  int index;

  [[nodiscard]] int size() const { return static_cast<int>(ring.size()); }
  [[nodiscard]] int neighbour(int distance) const {
    return ring[static_cast<std::size_t>((index + distance + size()) % size())];
  }
  /// Steps along the ring from `rank` to here.
  [[nodiscard]] int from(int rank) const {
    const auto other = static_cast<int>(std::ranges::find(ring, rank) - ring.begin());
    return (index - other + size()) % size();
  }
};

}  // namespace

Counters::Counters(int rank, int ranks)
    : rank_(rank), ranks_(ranks), cells_(static_cast<std::size_t>(ranks * schedule::traffic_kinds)) {}

void Counters::add_collective(schedule::Kind kind, std::span<const int> ring, const Collective& c) {
  const RingView self{ring, static_cast<int>(std::ranges::find(ring, rank_) - ring.begin())};
  const int n = self.size();
  const auto traffic = schedule::traffic_of(c.payload);
  const auto bytes = [&](std::int64_t elements) {
    return static_cast<std::uint64_t>(elements) * bytes_of(c.scalar);
  };
  const auto all_but = [&](int member) { return bytes(c.elements - slice(c.elements, n, member).count); };
  if (n == 1) return;
  using enum schedule::Kind;
  if (kind == broadcast && self.from(c.root) < n - 1) add(self.neighbour(1), traffic, bytes(c.elements));
  if (kind == reduce && self.from(c.root) > 0) add(self.neighbour(-1), traffic, bytes(c.elements));
  if (kind == all_gather || kind == all_reduce) add(self.neighbour(1), traffic, all_but(self.index + 1));
  if (kind == reduce_scatter || kind == all_reduce) add(self.neighbour(1), traffic, all_but(self.index));
}

void Counters::add(int peer, schedule::Traffic traffic, std::uint64_t bytes) {
  cells_[static_cast<std::size_t>(peer * schedule::traffic_kinds + static_cast<int>(traffic))].fetch_add(
      bytes, std::memory_order_relaxed);
}

schedule::ByteMatrix Counters::matrix() const {
  schedule::ByteMatrix matrix(ranks_);
  for (std::size_t cell = 0; cell < cells_.size(); ++cell)
    matrix.add(rank_, static_cast<int>(cell) / schedule::traffic_kinds,
               static_cast<schedule::Traffic>(static_cast<int>(cell) % schedule::traffic_kinds),
               cells_[cell].load(std::memory_order_relaxed));
  return matrix;
}

void Counters::reset() {
  for (auto& cell : cells_) cell.store(0, std::memory_order_relaxed);
}

namespace {

using schedule::Kind;

void check_lane(schedule::Lane lane) {
  if (lane == schedule::Lane::compute) throw LogicError("communication was given to the compute lane");
}

using Call = void (*)(const Membership&, const Buffer&, int root);

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
      launcher_(api, options.policy), communicators_(world, program, api, launcher_, options.setup_limit) {
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
  const Membership self = membership_of(communicators_.find(Calls{lane, c.communicator}), queue(lane));
  launcher_.launch(self.communicator, [&] { call(self, {c.data, c.elements, c.scalar}, root); });
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
