#include "comm/mpi/transport.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "base/error.hpp"
#include "comm/mpi/mpi.hpp"
#include "comm/mpi/operations.hpp"

namespace minitaw::comm::mpi {

using schedule::Kind;
using schedule::Lane;

void Copier::settle() noexcept {
  for (std::size_t queue = 0; queue < queues; ++queue) {
    try {
      wait(Way::load, queue);
      wait(Way::store, queue);
    } catch (const std::exception&) {  // a failed copy touches its buffer no more; who cancelled reports
    }
  }
}

namespace {

/// Tags of collectives start behind those of messages, which are their payloads.
int collective_tag(std::size_t communicator, Lane lane) {
  constexpr std::size_t first = 64;
  return static_cast<int>(first + communicator * schedule::lanes + index_of(lane));
}

class MpiTransport final : public Transport {
public:
  MpiTransport(MPI_Comm world, const schedule::Program& program, const LaneMemories& memory,
               const std::string& name)
      : Transport(name, rank_in(world, program), size_of(world)),
        staged_(std::ranges::any_of(memory, [](const LaneMemory& m) { return m.moves.copier != nullptr; })),
        communicators_(program.communicators) {
    check_tags(world);
    // A communicator of our own, so that nobody else's messages match ours; failures come back as codes.
    check(MPI_Comm_dup(world, &own_.comm), "MPI_Comm_dup");
    check(MPI_Comm_set_errhandler(own_.comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    channels_.reserve(memory.size());
    for (const LaneMemory& lane : memory) channels_.push_back({own_.comm, lane, sent_, cancelled_});
  }

  /// Two: the handshake of the next message passes while the one before it does. Staged ones share slots.
  [[nodiscard]] int messages_at_once() const override { return staged_ ? 1 : 2; }

  [[nodiscard]] Started start(Lane lane, const Message& message) override {
    check_lane(lane);
    return begin(make_message(channel(lane), message));
  }
  [[nodiscard]] Started start(Lane lane, Kind kind, const Collective& c) override {
    const Membership member = membership_of(communicators_, rank(), lane, kind, c);
    if (member.size() == 1 || c.elements == 0) return nullptr;
    return begin(make_collective(channel(lane), kind, member, collective_tag(c.communicator, lane), c));
  }
  void cancel() override { cancelled_.store(true); }

private:
  /// As far as it gets at once.
  static Started begin(Started operation) {
    operation->advance();
    return operation->done() ? nullptr : std::move(operation);
  }

  [[nodiscard]] Channel& channel(Lane lane) { return channels_[index_of(lane)]; }

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
                                          const LaneMemories& memory, const std::string& name) {
  return std::make_unique<MpiTransport>(world, program, memory, name);
}

std::unique_ptr<Transport> make_transport(MPI_Comm world, const schedule::Program& program,
                                          std::span<std::byte> staging) {
  constexpr std::size_t share = 2 * schedule::chunk_bytes;
  const auto& actions = program.ranks[rank_in(world, program)].actions;
  LaneMemories memories;
  for (std::size_t l = 0; l < memories.size(); ++l) {
    const auto lane = static_cast<Lane>(l);
    Memory& sums = memories[l].sums;
    sums.ahead = 2;
    const auto reduces = [&](const schedule::Action& a) { return a.lane == lane && is_reducing(a.kind); };
    if (std::ranges::none_of(actions, reduces)) continue;
    if (staging.size() < share)
      throw LogicError(fmt::format("{} bytes of staging memory are left for lane {}, which needs {}",
                                   staging.size(), name_of(lane), share));
    sums.landing = staging.first(share);
    staging = staging.subspan(share);
  }
  return make_transport(world, program, memories, "mpi");
}

}  // namespace minitaw::comm::mpi
