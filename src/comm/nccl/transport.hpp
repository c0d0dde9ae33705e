#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mpi.h>
#include <span>
#include <vector>

#include "comm/nccl/calls.hpp"
#include "comm/nccl/communicators.hpp"
#include "comm/transport.hpp"
#include "schedule/account.hpp"

namespace minitaw::comm::nccl {

/// Bytes that one rank has sent. NCCL does not say which way a collective goes, so its bytes are those that
/// the rule of schedule/account.hpp gives for the call. May be used by several threads.
class Counters {
public:
  Counters(int rank, int ranks);
  void add_message(int peer, schedule::Traffic traffic, std::uint64_t bytes) { add(peer, traffic, bytes); }
  /// `ring` are the members in ring order, among them this rank.
  void add_collective(schedule::Kind kind, std::span<const int> ring, const Collective& collective);

  [[nodiscard]] schedule::ByteMatrix matrix() const;
  void reset();

private:
  void add(int peer, schedule::Traffic traffic, std::uint64_t bytes);

  int rank_, ranks_;
  std::vector<std::atomic<std::uint64_t>> cells_;  ///< [peer][traffic]
};

struct Options {
  std::array<Queue, schedule::lanes> queues{};  ///< by schedule::Lane; they outlive the transport
  std::span<std::byte> scratch;                 ///< device memory, scratch_bytes(); for the constructor
  mpi::WaitPolicy policy{.spins = 2, .yields = 4};
  std::chrono::seconds setup_limit{300};  ///< for NCCL to find all ranks
};

/// Transport over NCCL: work goes on the device queue of its lane, where NCCL executes it. Communicators and
/// connections are made in the constructor (docs/decisions/0007-nccl-communicators.md).
///
/// NCCL wants the calls of all communicators of a device in an order that suits all ranks: let one thread
/// issue those of all lanes, in the order of the program. Lanes in threads of their own do not disturb each
/// other, but their kernels must then find room on the device together. A communicator executes its calls in
/// the order of their issue, whatever their lanes: keep each to one lane, as schedule::lane_of() does.
///
/// sent() counts a message where it is handed to NCCL, and a collective by the rule of schedule/account.hpp:
/// NCCL does not tell the way that it takes.
class Transport final : public comm::Transport {
public:
  /// Collective over `world`, whose ranks are those of the program (else LogicError) and have a device each,
  /// current on the calling thread. Keeps nothing of `program`. Throws Error with NCCL's words.
  Transport(MPI_Comm world, const schedule::Program& program, Api& api, const Options& options);
  ~Transport() override;

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] bool on_stream() const override { return true; }
  [[nodiscard]] Started start(schedule::Lane lane, std::span<const Message> batch) override;
  [[nodiscard]] Started start(schedule::Lane lane, schedule::Kind kind,
                              const Collective& collective) override;

  [[nodiscard]] schedule::ByteMatrix sent() const override { return counters_.matrix(); }
  [[nodiscard]] const char* bytes_source() const override { return "by formula"; }
  void reset_counters() override { counters_.reset(); }
  void poll() override;
  /// Aborts all communicators, so that what is on the device queues ends as well.
  void cancel() override;

private:
  [[nodiscard]] Queue queue(schedule::Lane lane) const { return queues_[static_cast<std::size_t>(lane)]; }

  int rank_;
  std::vector<schedule::Communicator> program_communicators_;
  std::array<Queue, schedule::lanes> queues_;
  Counters counters_;
  Colours colours_;
  Launcher launcher_;
  Communicators communicators_;
};

}  // namespace minitaw::comm::nccl
