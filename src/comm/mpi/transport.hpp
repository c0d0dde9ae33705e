// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <array>
#include <limits>
#include <mpi.h>
#include <span>
#include <string_view>
#include "comm/transport.hpp"

namespace minitaw::comm::mpi {
/// A part of a buffer, or of pinned memory, that travels as one MPI message.
using Piece = std::span<std::byte>;

/// Copies between a buffer that MPI cannot reach and pinned memory that it can. There are two
/// queues in each direction; used in turn, one copy can be waited for while the next one runs. Used
/// by one thread at a time.
class Copier {
public:
  static constexpr std::size_t queues = 2;
  enum class Way { load, store };  ///< from the buffer to pinned memory, and back

  virtual ~Copier() = default;

  /// Starts a copy; both sides have the same size.
  virtual void copy(Way way, std::size_t queue, Piece to, Piece from) = 0;
  /// Returns when everything started on the queue is complete, without waiting for another rank.
  virtual void wait(Way way, std::size_t queue) = 0;
  /// Returns when every copy is complete or has failed: buffers of a cancelled operation may be
  /// freed next.
  void settle() noexcept;
};

/// Where MPI reads and writes the pieces of a buffer on a lane: in the buffer itself, or in slots
/// that are used in turn.
struct Memory {
  std::size_t piece_bytes =
      schedule::piece_bytes;  ///< equal on all ranks, or messages would not match
  std::size_t ahead = 4;      ///< receives that a collective keeps open
  /// A ring sends so many pieces of its slice before it passes on what arrives.
  std::size_t window = std::numeric_limits<std::size_t>::max();
  Piece landing{};  ///< slots for what arrives; empty: it arrives in the buffer
  Piece
      loading{};  ///< slots for what this rank contributes, after those; empty: read in the buffer
  Copier* copier = nullptr;  ///< between slots and buffer; none: the buffer is host memory
};

/// The memory of a lane: for what only moves, and for what is added up on the way.
struct LaneMemory {
  Memory moves, sums;
  std::shared_ptr<const void>
      owner{};  ///< of slots and copier, if they are to live as long as the lane
};

using LaneMemories = std::array<LaneMemory, schedule::lanes>;  ///< by schedule::Lane

/// Memory of a lane where everything passes through slots in `pinned`; that and the copier outlive
/// the transport. A staged rank can talk only to staged ranks with equal piece_bytes. Four pieces
/// are on their way at a time in either direction. 16 slots are enough for all collectives: a ring
/// needs 2 * ahead landing slots and window + 2 loading slots, or it could stand still
/// (docs/decisions/0006-pinned-slots.md). Throws LogicError if there are fewer.
Memory through_slots(Piece pinned, std::size_t piece_bytes, Copier& copier);

/// Transport over MPI. Collectives are chains and rings over point-to-point messages
/// (docs/decisions/0001-own-collectives.md): bytes are counted where MPI gets them, and sums are
/// added on the host in a fixed order. An operation moves only while it is advanced. Two messages
/// may be under way on a lane, unless staged.
///
/// Collective over `world`, the ranks of the program (else LogicError). The memory of the lanes
/// outlives the transport.
std::unique_ptr<Transport> make_transport(MPI_Comm world,
    const schedule::Program& program,
    const LaneMemories& memory,
    const std::string& name);
/// For buffers in host memory. `staging`: 2 piece_bytes for each lane with reductions, in order;
/// else LogicError.
std::unique_ptr<Transport> make_transport(
    MPI_Comm world, const schedule::Program& program, Piece staging);

/// Path of device buffers to MPI.
enum class Reach {
  staged,  ///< through pinned host memory
  direct,  ///< MPI is handed device pointers where data only moves; sums are staged
};
std::string_view name_of(Reach reach);
/// The reach of a job: direct if on every rank MINITAW_MPI_DIRECT is 1, or it is not set and MPI
/// says that it takes pointers to this build's device memory. Collective; throws InputError on all
/// where some rank has neither 0 nor 1.
Reach agreed_reach(MPI_Comm world);

/// Kokkos's label of the pinned host memory that device_transport() takes: 16 MiB for each lane on
/// which the rank communicates.
inline constexpr const char* pinned_label = "minitaw::pinned";
std::uint64_t pinned_bytes(const schedule::RankProgram& rank);

/// A transport over MPI for buffers in the memory of Kokkos's default execution space. Collective
/// over `world`. Takes pinned_bytes(), and nothing on the device. All ranks name the same reach. On
/// a host the copies are plain ones. Like agreed_reach(), in minitaw_comm_mpi_device.
std::unique_ptr<Transport> device_transport(
    MPI_Comm world, const schedule::Program& program, Reach reach);
}  // namespace minitaw::comm::mpi
