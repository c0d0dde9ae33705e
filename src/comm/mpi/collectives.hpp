#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/mpi/ring_operation.hpp"

namespace minitaw::comm::mpi {

/// The members of a communicator in ring order, seen by one of them. Member 0 is the root, where there is
/// one.
struct Ring {
  const std::vector<int>* ranks = nullptr;
  int first = 0;     ///< index in `ranks` of member 0
  int position = 0;  ///< of this rank, counted from member 0
  int tag = 0;

  [[nodiscard]] int size() const { return static_cast<int>(ranks->size()); }
  /// Global rank of a member, counted modulo the size.
  [[nodiscard]] int member(int index) const {
    return (*ranks)[static_cast<std::size_t>((first + index + size()) % size())];
  }
  [[nodiscard]] int next() const { return member(position + 1); }
  [[nodiscard]] int previous() const { return member(position - 1); }
  [[nodiscard]] bool is_first() const { return position == 0; }
  [[nodiscard]] bool is_last() const { return position == size() - 1; }
};

/// The buffer of a collective.
struct Buffer {
  std::byte* data = nullptr;
  std::int64_t elements = 0;
  Scalar scalar = Scalar::fp32;
  schedule::Traffic traffic = schedule::Traffic::weights;
};

/// This rank's part in a collective of two members and more, not begun; the contract is that of
/// comm::Transport. Throws LogicError if `kind` is no collective.
[[nodiscard]] std::unique_ptr<Operation> make_collective(Channel& channel, schedule::Kind kind,
                                                         const Ring& ring, const Buffer& buffer);

/// The steps of a member in which slice `first` starts at it, the slices below arrive one after the other and
/// are passed on, and the last to arrive does not leave. Slices go round `window` pieces at a time: a rank
/// with few slots must pass pieces on before it has sent all of its own.
[[nodiscard]] std::vector<RingStep> ring_steps(const Ring& ring, const Buffer& buffer, int first,
                                               const Memory& memory);

}  // namespace minitaw::comm::mpi
