#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/mpi/channel.hpp"
#include "comm/mpi/pieces.hpp"
#include "comm/slices.hpp"
#include "comm/transport.hpp"

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

/// Pieces of a slice of a buffer, and of all of it, in order.
[[nodiscard]] std::vector<Piece> cut(const Buffer& buffer, const Slice& slice, std::size_t piece_bytes);
[[nodiscard]] std::vector<Piece> whole(const Buffer& buffer, const Memory& memory);

/// Memory for a collective that only moves data. Pieces are for passing on what has come while more comes:
/// between two members of a ring, in place, they would only cost a handshake each.
[[nodiscard]] Memory moving_memory(const Channel& channel, const Ring& ring);

/// What happens to one piece on its way round a ring, at one member.
struct RingStep {
  Piece piece;
  bool arrives = false;  ///< from the previous member
  bool leaves = false;   ///< for the next one
  friend bool operator==(const RingStep& a, const RingStep& b) {
    return a.piece.data() == b.piece.data() && a.piece.size() == b.piece.size() && a.arrives == b.arrives &&
           a.leaves == b.leaves;
  }
};

/// The steps of a member in which slice `first` starts at it, the slices below arrive one after the other and
/// are passed on, and the last to arrive stays. Slices go round `window` pieces at a time: a rank with few
/// slots must pass pieces on before it has sent all of its own.
[[nodiscard]] std::vector<RingStep> ring_steps(const Ring& ring, const Buffer& buffer, int first,
                                               const Memory& memory);
/// Pieces of the steps that arrive, or of those that do not.
[[nodiscard]] std::vector<Piece> pieces_of(const std::vector<RingStep>& steps, bool arrive);

/// The sum of two pieces, where it may be written: in the buffer if `own` is there and may change, else in
/// the slot of what arrived.
[[nodiscard]] Slot& sum(Scalar scalar, Slot& arrived, Slot& own, bool own_may_change);

// The operations, for rings of two members and more; the contract is that of comm::Transport.
void broadcast(Channel& channel, const Ring& ring, const Buffer& buffer);
void reduce(Channel& channel, const Ring& ring, const Buffer& buffer);
void all_gather(Channel& channel, const Ring& ring, const Buffer& buffer);
void reduce_scatter(Channel& channel, const Ring& ring, const Buffer& buffer);
void all_reduce(Channel& channel, const Ring& ring, const Buffer& buffer);

}  // namespace minitaw::comm::mpi
