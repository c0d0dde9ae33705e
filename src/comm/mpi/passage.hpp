// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <limits>
#include "comm/mpi/transport.hpp"

namespace minitaw::comm::mpi {
inline constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();
/// Pieces of a collective that are under way at a time, in either direction.
inline constexpr std::size_t usual_ahead = 4;

/// One piece of the buffer, and where it comes from and goes to.
struct Step {
  Bytes piece;
  bool arrives = false;  ///< it comes from another rank
  bool leaves = false;   ///< the result goes to another rank
};

/// A rank's part in a message, a chain or a ring.
struct Route {
  MPI_Comm comm = MPI_COMM_NULL;
  int tag = 0;
  int from = -1, to = -1;  ///< ranks of the job
  bool sums = false;  ///< a step adds this rank's piece to what arrives; else it passes that on
  model::Dtype dtype = model::Dtype::fp32;
  /// Sums are written to the buffer if MPI reads the buffer itself, else to the slot of the piece
  /// received.
  bool may_overwrite = false;

  std::size_t piece_bytes = schedule::piece_bytes;
  std::size_t ahead = usual_ahead;     ///< receives are open
  std::size_t open_sends = unlimited;  ///< a step that sends waits until no more sends are open
  Bytes landing{};                     ///< slots for what arrives; empty: it arrives in the buffer
  Bytes loading{};            ///< slots for what this rank contributes; empty: it is in the buffer
  Copier* copier = nullptr;   ///< between slots and buffer; none: the buffer is host memory
  std::vector<Step> steps{};  ///< in order

  /// Returns whether the step uses what the buffer holds.
  bool reads(const Step& step) const { return sums || !step.arrives; }

  /// Returns whether the result is written to the piece in the buffer.
  bool keeps(const Step& step) const { return sums ? !step.leaves : step.arrives; }
};

/// The operation that executes the steps of a route: receives and fetches run some steps ahead. A
/// slot is written again when all that read it is over.
std::unique_ptr<Operation> make_passage(Route route);
}  // namespace minitaw::comm::mpi
