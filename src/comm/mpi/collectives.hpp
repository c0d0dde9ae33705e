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

/// Pieces of a slice of a buffer, appended in order.
void cut(const Buffer& buffer, const Slice& slice, std::vector<Piece>& pieces);
[[nodiscard]] std::vector<Piece> whole(const Buffer& buffer);

/// Where pieces of the same sizes wait to be added: the lane's staging memory, used in turn.
[[nodiscard]] std::vector<Piece> staged(const Channel& channel, const std::vector<Piece>& pieces);
/// target += other
void add(Scalar scalar, Piece target, Piece other);

// The operations, for rings of two members and more; the contract is that of comm::Transport.
void broadcast(Channel& channel, const Ring& ring, const Buffer& buffer);
void reduce(Channel& channel, const Ring& ring, const Buffer& buffer);
void all_gather(Channel& channel, const Ring& ring, const Buffer& buffer);
void reduce_scatter(Channel& channel, const Ring& ring, const Buffer& buffer);
void all_reduce(Channel& channel, const Ring& ring, const Buffer& buffer);

}  // namespace minitaw::comm::mpi
