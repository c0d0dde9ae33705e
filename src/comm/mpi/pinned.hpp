#pragma once

#include <cstddef>

#include "schedule/program.hpp"

namespace minitaw::comm::mpi {

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
