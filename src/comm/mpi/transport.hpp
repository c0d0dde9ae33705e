#pragma once

#include <mpi.h>

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "comm/mpi/channel.hpp"
#include "comm/mpi/memory.hpp"
#include "comm/mpi/operations.hpp"
#include "comm/mpi/wait.hpp"
#include "comm/transport.hpp"

namespace minitaw::comm::mpi {

/// The memory of each lane, by schedule::Lane.
using LaneMemories = std::array<LaneMemory, schedule::lanes>;

/// Transport over MPI. Collectives are chains and rings over point-to-point messages
/// (docs/decisions/0001-own-collectives.md): bytes are counted where they are handed to MPI, and sums are
/// added on the host in a fixed order. An operation moves only while somebody advances it.
class Transport final : public comm::Transport {
public:
  /// Collective over `world`, whose ranks are those of the program (else LogicError). Keeps nothing of
  /// `program`; the memory of the lanes must outlive the transport. Without a word about cores it waits as if
  /// they were scarce.
  Transport(MPI_Comm world, const schedule::Program& program, const LaneMemories& memory,
            const WaitPolicy& policy = {.spins = 2, .yields = 4});
  /// For buffers in host memory; `staging` has as many bytes as schedule::Footprint says.
  Transport(MPI_Comm world, const schedule::Program& program, std::span<std::byte> staging,
            const WaitPolicy& policy = {.spins = 2, .yields = 4});

  [[nodiscard]] int rank() const override { return rank_; }
  /// Two: the handshake of the next message passes while the one before it does. Staged ones share slots.
  [[nodiscard]] int messages_at_once() const override { return staged_ ? 1 : 2; }
  [[nodiscard]] Started start(schedule::Lane lane, std::span<const Message> batch) override;
  [[nodiscard]] Started start(schedule::Lane lane, schedule::Kind kind,
                              const Collective& collective) override;

  [[nodiscard]] schedule::ByteMatrix sent() const override;
  void reset_counters() override;
  void cancel() override { cancelled_.store(true); }

private:
  void wait(Operation& operation) override;
  [[nodiscard]] Channel& channel(schedule::Lane lane);
  [[nodiscard]] Ring ring(schedule::Lane lane, schedule::Kind kind, const Collective& collective) const;

  int rank_;
  int ranks_;
  bool staged_;
  std::vector<schedule::Communicator> communicators_;
  std::atomic<bool> cancelled_{false};
  Waiter waiter_;
  OwnComm comm_;
  std::array<std::unique_ptr<Channel>, schedule::lanes> channels_;  ///< by schedule::Lane; none for compute
};

}  // namespace minitaw::comm::mpi
