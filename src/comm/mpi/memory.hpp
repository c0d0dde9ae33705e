#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "schedule/account.hpp"
#include "schedule/program.hpp"

namespace minitaw::comm::mpi {

/// A part of a buffer, or of pinned memory, that travels as one MPI message.
using Piece = std::span<std::byte>;

/// Appends `data` cut into pieces of at most `largest` bytes; nothing if it is empty. Both sides of a message
/// cut alike, so pieces need no header.
void cut(Piece data, std::size_t largest, std::vector<Piece>& pieces);

/// Copies between a buffer that MPI cannot reach and pinned memory that it can. There are two queues in each
/// direction; used in turn, one copy can be waited for while the next one runs. Used by one thread at a time.
class Copier {
public:
  static constexpr std::size_t queues = 2;

  Copier() = default;
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;
  virtual ~Copier() = default;

  /// Starts a copy; both sides have the same size.
  virtual void load(std::size_t queue, Piece pinned, Piece buffer) = 0;
  virtual void store(std::size_t queue, Piece buffer, Piece pinned) = 0;
  /// Returns when everything started on the queue is complete. A copy ends by itself, so this is not a wait
  /// for another rank.
  virtual void wait_loaded(std::size_t queue) = 0;
  virtual void wait_stored(std::size_t queue) = 0;

  /// Returns when every copy is complete or has failed: for the end of an operation that was cancelled, whose
  /// buffers may be freed next.
  void settle() noexcept;
};

/// How the pieces of a buffer appear to MPI on one lane: in the buffer itself, or in slots, memory of
/// piece_bytes each that is used in turn.
struct Memory {
  std::size_t piece_bytes = schedule::chunk_bytes;  ///< equal on all ranks, or messages would not match
  std::size_t ahead = 4;                            ///< receives that a collective keeps open
  /// A ring sends so many pieces of its slice before it passes on what arrives.
  std::size_t window = std::numeric_limits<std::size_t>::max();
  Piece landing{};           ///< slots for what arrives; empty: it arrives in the buffer
  Piece loading{};           ///< slots for what this rank contributes; empty: it is read from the buffer
  Copier* copier = nullptr;  ///< between slots and buffer; none: the buffer is host memory
};

/// The memory of a lane: for what only moves, and for what is added up on the way.
struct LaneMemory {
  Memory moves;
  Memory sums;
  std::shared_ptr<const void> owner{};  ///< of slots and copier, if they are to live as long as the lane
};

/// MPI reads and writes buffers itself; `staging`, two chunk_bytes or nothing, takes what is to be added.
[[nodiscard]] LaneMemory host_memory(Piece staging);

/// Everything passes through slots in `pinned`, which outlives the transport as the copier does. A staged
/// rank can talk only to staged ranks, and with equal piece_bytes. Four pieces are on their way at a time in
/// either direction, so 16 slots are enough for all collectives; a ring needs 2 * ahead landing slots and
/// window + 2 loading slots, or it could stand still (docs/decisions/0006-pinned-slots.md). Throws LogicError
/// if there are fewer.
[[nodiscard]] LaneMemory staged_memory(Piece pinned, std::size_t piece_bytes, Copier& copier);

/// MPI is handed device pointers where it only moves data; sums are staged.
[[nodiscard]] LaneMemory direct_memory(Piece pinned, std::size_t piece_bytes, Copier& copier);

/// Staging memory by lane, empty for lanes without reductions.
using Staging = std::array<std::span<std::byte>, schedule::lanes>;

/// Shares the staging memory of a rank: each lane with a reduce, reduce_scatter or all_reduce gets 2
/// chunk_bytes, in the order of the lanes, as schedule::Footprint counts. Throws LogicError if there is not
/// enough.
[[nodiscard]] Staging share_staging(const schedule::RankProgram& rank, std::span<std::byte> memory);

/// Pinned memory of a staged lane.
struct PinnedShape {
  std::size_t slots = 0;
  std::size_t piece_bytes = 0;
  [[nodiscard]] std::size_t bytes() const { return slots * piece_bytes; }
  friend bool operator==(const PinnedShape&, const PinnedShape&) = default;
};

/// 16 slots of 1 MiB, on all lanes and all ranks: both sides of a message cut alike, and it may leave on one
/// lane and arrive on another. Nothing if no rank communicates on the lane.
[[nodiscard]] PinnedShape pinned_shape(const schedule::Program& program, schedule::Lane lane);

/// Bytes of pinned host memory that a rank of a staged transport takes: pinned_shape() for each lane on which
/// this rank communicates. Not part of schedule::Footprint, which counts device memory.
[[nodiscard]] std::size_t pinned_bytes(const schedule::Program& program, int rank);

/// Whether a rank communicates on a lane.
[[nodiscard]] bool communicates(const schedule::RankProgram& rank, schedule::Lane lane);

}  // namespace minitaw::comm::mpi
