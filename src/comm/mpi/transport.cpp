#include "comm/mpi/transport.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "base/error.hpp"
#include "comm/mpi/channel.hpp"
#include "comm/mpi/mpi.hpp"

namespace minitaw::comm::mpi {

using schedule::Kind;
using schedule::Lane;

void Copier::settle() noexcept {
  for (std::size_t queue = 0; queue < queues; ++queue) {
    try {
      wait_loaded(queue);
      wait_stored(queue);
    } catch (const std::exception&) {  // a failed copy touches its buffer no more; who cancelled reports
    }
  }
}

std::vector<Piece> cut(Piece data, std::size_t largest) {
  std::vector<Piece> pieces;
  for (; !data.empty(); data = data.subspan(pieces.back().size()))
    pieces.push_back(data.first(std::min(largest, data.size())));
  return pieces;
}

Requests::~Requests() {
  for (std::size_t k = finished_; k < requests_.size(); ++k) {
    Request& request = requests_[k];
    if (request.handle == MPI_REQUEST_NULL) continue;
    if (request.receives) MPI_Cancel(&request.handle);
    MPI_Request_free(&request.handle);
  }
}

void Requests::send(int peer, int tag, schedule::Traffic traffic, std::span<const std::byte> data) {
  check(MPI_Isend(data.data(), static_cast<int>(data.size()), MPI_BYTE, peer, tag, channel_.comm,
                  &requests_.emplace_back().handle),
        "MPI_Isend");
  channel_.sent.add(peer, traffic, data.size());
}

void Requests::receive(int peer, int tag, Piece place) {
  Request& request = requests_.emplace_back(MPI_REQUEST_NULL, true, place.size());
  check(MPI_Irecv(place.data(), static_cast<int>(place.size()), MPI_BYTE, peer, tag, channel_.comm,
                  &request.handle),
        "MPI_Irecv");
}

bool Requests::finish_one() {
  if (open() == 0) return false;
  Request& request = requests_[finished_];
  int done = 0, bytes = 0;
  MPI_Status status;
  check(MPI_Test(&request.handle, &done, &status),
        request.receives ? "MPI_Test of a receive" : "MPI_Test of a send");
  if (done == 0) return false;
  ++finished_;
  if (!request.receives) return true;
  check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
  if (static_cast<std::size_t>(bytes) != request.bytes)
    throw Error(fmt::format("a message from rank {} has {} bytes where {} were expected", status.MPI_SOURCE,
                            bytes, request.bytes));
  return true;
}

bool Requests::finish() {
  const std::size_t before = finished_;
  while (finish_one()) continue;
  return finished_ > before;
}

namespace {

/// Tags of collectives start behind those of messages, which are their payloads.
int collective_tag(std::size_t communicator, Lane lane) {
  constexpr std::size_t first = 64;
  return static_cast<int>(first + communicator * schedule::lanes + static_cast<std::size_t>(lane));
}

class MpiTransport final : public Transport {
public:
  MpiTransport(MPI_Comm world, const schedule::Program& program, const LaneMemories& memory,
               const WaitPolicy& policy)
      : Transport(rank_in(world, program), size_of(world)),
        staged_(std::ranges::any_of(memory, [](const LaneMemory& m) { return m.moves.copier != nullptr; })),
        communicators_(program.communicators), policy_(policy) {
    check_tags(world);
    // A communicator of our own, so that nobody else's messages match ours; failures come back as codes.
    check(MPI_Comm_dup(world, &own_.comm), "MPI_Comm_dup");
    check(MPI_Comm_set_errhandler(own_.comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    channels_.reserve(memory.size());
    for (const LaneMemory& lane : memory) channels_.push_back({own_.comm, lane, sent_, cancelled_});
  }

  /// Two: the handshake of the next message passes while the one before it does. Staged ones share slots.
  [[nodiscard]] int messages_at_once() const override { return staged_ ? 1 : 2; }

  [[nodiscard]] Started start(Lane lane, std::span<const Message> batch) override {
    check_lane(lane);
    return begin(make_exchange(channel(lane), batch));
  }
  [[nodiscard]] Started start(Lane lane, Kind kind, const Collective& c) override {
    const Membership member = membership_of(communicators_, rank(), lane, kind, c);
    if (member.size() == 1 || c.elements == 0) return nullptr;
    const int tag = collective_tag(static_cast<std::size_t>(c.communicator), lane);
    return begin(make_collective(channel(lane), kind, member, tag, c));
  }
  void cancel() override { cancelled_.store(true); }

private:
  /// Each wait starts anew with a few quick looks, as long as something moves.
  void wait(Operation& operation) override {
    while (!operation.done()) wait_until(policy_, cancelled_, [&] { return operation.advance(); });
  }

  /// As far as it gets at once.
  static Started begin(Started operation) {
    operation->advance();
    return operation->done() ? nullptr : std::move(operation);
  }

  [[nodiscard]] Channel& channel(Lane lane) { return channels_[static_cast<std::size_t>(lane)]; }

  /// Whether MPI allows the tags of all communicators.
  void check_tags(MPI_Comm world) const {
    const int* largest = nullptr;
    int known = 0;
    check(MPI_Comm_get_attr(world, MPI_TAG_UB, &largest, &known), "MPI_Comm_get_attr of MPI_TAG_UB");
    if (known != 0 && collective_tag(communicators_.size(), Lane::compute) > *largest)
      throw LogicError(fmt::format("{} communicators need more tags than the {} of this MPI",
                                   communicators_.size(), *largest));
  }

  bool staged_;
  std::vector<schedule::Communicator> communicators_;
  std::atomic<bool> cancelled_{false};
  WaitPolicy policy_;
  OwnComm own_;
  std::vector<Channel> channels_;  ///< by schedule::Lane
};

}  // namespace

Memory through_slots(Piece pinned, std::size_t piece_bytes, Copier& copier) {
  constexpr std::size_t ahead = 4;
  const std::size_t half = pinned.size() / piece_bytes / 2;
  if (half < 2 * ahead)
    throw LogicError(fmt::format("{} bytes of pinned memory hold {} slots of {} bytes; 16 are needed",
                                 pinned.size(), pinned.size() / piece_bytes, piece_bytes));
  return {.piece_bytes = piece_bytes,
          .ahead = ahead,
          .window = ahead,
          .landing = pinned.first(half * piece_bytes),
          .loading = pinned.subspan(half * piece_bytes, half * piece_bytes),
          .copier = &copier};
}

std::unique_ptr<Transport> make_transport(MPI_Comm world, const schedule::Program& program,
                                          const LaneMemories& memory, const WaitPolicy& policy) {
  return std::make_unique<MpiTransport>(world, program, memory, policy);
}

std::unique_ptr<Transport> make_transport(MPI_Comm world, const schedule::Program& program,
                                          std::span<std::byte> staging, const WaitPolicy& policy) {
  constexpr std::size_t share = 2 * schedule::chunk_bytes;
  const auto& actions = program.ranks[static_cast<std::size_t>(rank_in(world, program))].actions;
  LaneMemories memories;
  for (std::size_t l = 0; l < memories.size(); ++l) {
    const auto lane = static_cast<Lane>(l);
    Memory& sums = memories[l].sums;
    sums.ahead = 2;
    const auto reduces = [&](const schedule::Action& a) {
      return a.lane == lane &&
             (a.kind == Kind::reduce || a.kind == Kind::reduce_scatter || a.kind == Kind::all_reduce);
    };
    if (std::ranges::none_of(actions, reduces)) continue;
    if (staging.size() < share)
      throw LogicError(fmt::format("{} bytes of staging memory are left for lane {}, which needs {}",
                                   staging.size(), name_of(lane), share));
    sums.landing = staging.first(share);
    staging = staging.subspan(share);
  }
  return make_transport(world, program, memories, policy);
}

}  // namespace minitaw::comm::mpi
