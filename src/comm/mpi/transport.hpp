// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <array>
#include <mpi.h>
#include <span>
#include <string_view>
#include "comm/transport.hpp"

namespace minitaw::comm::mpi {
using Bytes = std::span<std::byte>;

/// Copies between a buffer that MPI cannot reach and pinned memory that it can. There are two
/// queues in each direction; used in turn, one copy can be waited for while the next one runs. Used
/// by one thread at a time.
class Copier {
public:
  static constexpr std::size_t queues = 2;
  enum class Way { load, store };  ///< from the buffer to pinned memory, and back

  virtual ~Copier() = default;

  /// Starts a copy; both sides have the same size.
  virtual void copy(Way way, std::size_t queue, Bytes to, Bytes from) = 0;
  /// Returns when everything started on the queue is complete, without waiting for another rank.
  virtual void wait(Way way, std::size_t queue) = 0;
};

/// The memory of a lane beside buffers: slots in which the host adds up, and through which a buffer
/// passes that MPI cannot reach. A buffer travels in pieces, each an MPI message.
struct LaneMemory {
  /// Size of a slot and of the pieces of a collective. It is equal on all ranks, or messages would
  /// not match.
  std::size_t piece_bytes = schedule::piece_bytes;
  /// With a copier at least 16, enough for all collectives (docs/decisions.md, 6);
  /// else 2, or none on a lane without reductions.
  Bytes slots{};
  Copier* copier = nullptr;  ///< between slots and buffers; none: buffers are host memory
  bool direct = false;       ///< MPI reaches buffers: what only moves passes through no slots
  /// Owns slots and copier if they are to live as long as the transport.
  std::shared_ptr<const void> owner{};
};

using LaneMemories = std::array<LaneMemory, schedule::lanes>;  ///< by schedule::Lane

/// Transport over MPI. Collectives are chains and rings over point-to-point messages
/// (docs/decisions.md, 1): bytes are counted where MPI gets them, and sums are
/// added on the host in a fixed order. An operation moves only while it is advanced. Two messages
/// may be under way on a lane, unless staged. A staged rank can talk only to staged ranks.
///
/// Collective over `world`, the ranks of the program (else LogicError). The memory of the lanes
/// outlives the transport. Throws LogicError if a lane has too few slots.
std::unique_ptr<Transport> make_transport(MPI_Comm world,
    const schedule::Program& program,
    const LaneMemories& lanes,
    const std::string& name);
/// For buffers in host memory. `staging`: 2 piece_bytes for each lane with reductions, in order;
/// else LogicError.
std::unique_ptr<Transport> make_transport(
    MPI_Comm world, const schedule::Program& program, Bytes staging);

/// Returns whether MPI is handed device pointers where data only moves; sums always pass through
/// pinned host memory. So it is if on every rank MINITAW_MPI_DIRECT is 1, or it is not set and MPI
/// says that it takes pointers to this build's device memory. Collective; throws InputError on all
/// where some rank has neither 0 nor 1.
bool agree_on_direct(MPI_Comm world);

/// Kokkos's label of the pinned host memory that device_transport() takes: 16 MiB for each lane on
/// which the rank communicates.
inline constexpr const char* pinned_label = "minitaw::pinned";
std::uint64_t pinned_bytes(const schedule::RankProgram& rank);

/// A transport over MPI for buffers in the memory of Kokkos's default execution space. Collective
/// over `world`. Takes pinned_bytes(), and nothing on the device. `direct`: agree_on_direct(). On a
/// host the copies are plain ones. In minitaw_comm_mpi_device.
std::unique_ptr<Transport> device_transport(
    MPI_Comm world, const schedule::Program& program, bool direct);
}  // namespace minitaw::comm::mpi
