#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "comm/mpi/channel.hpp"
#include "comm/mpi/memory.hpp"

namespace minitaw::comm::mpi {

/// Appends `data` cut into pieces of at most `largest` bytes; nothing if it is empty. Both sides of a message
/// cut alike, so pieces need no header.
void cut(Piece data, std::size_t largest, std::vector<Piece>& pieces);

/// Where a piece is while this rank holds it.
struct Slot {
  Piece memory;
  bool in_place = true;   ///< memory is the buffer itself
  std::size_t send = 0;   ///< number of the send that reads it; 0: none
  bool storing = false;   ///< a copy to the buffer reads it
  std::size_t queue = 0;  ///< of that copy
};

/// Pieces to one rank, in order.
class Outgoing {
public:
  Outgoing(Channel& channel, int peer, int tag, schedule::Traffic traffic)
      : channel_(channel), peer_(peer), tag_(tag), traffic_(traffic) {}
  void send(Slot& slot);
  /// Waits until at most `open` pieces are still on their way.
  void limit(std::size_t open);
  /// Waits for the send of that number.
  void wait_for(std::size_t send) { limit(sent_ - send); }
  void finish() { limit(0); }

private:
  Channel& channel_;
  int peer_, tag_;
  schedule::Traffic traffic_;
  std::size_t sent_ = 0;
  std::deque<Request> open_;
};

/// The slots of a run of pieces: slot memory used in turn, or the pieces themselves if there is none.
class Slots {
public:
  /// `leaving` are the sends that read these slots.
  Slots(Piece memory, const Memory& with, std::vector<Piece> pieces, Outgoing* leaving);
  /// The slot of piece k, free to be written: waits for the send and the copy that still read it.
  Slot& take(std::size_t k);
  /// The slot of piece k, as it is.
  Slot& at(std::size_t k);

  [[nodiscard]] bool in_place() const { return ring_.empty(); }
  [[nodiscard]] std::size_t count() const { return pieces_.size(); }
  [[nodiscard]] Piece piece(std::size_t k) const { return pieces_[k]; }

private:
  std::vector<Piece> pieces_;
  std::vector<Slot> ring_;
  std::size_t slot_bytes_;
  std::byte* memory_;
  Copier* copier_;
  Outgoing* leaving_;
  Slot direct_;
};

/// This rank's own pieces, in the order of use, where MPI and additions can read them. Copies run ahead.
class Loading {
public:
  Loading(const Memory& memory, std::vector<Piece> pieces, Outgoing* leaving);
  Slot& next();

private:
  Copier* copier_;
  Slots slots_;
  std::size_t started_ = 0, taken_ = 0;
};

/// Pieces from one rank, in order, a few receives ahead of the reader.
class Incoming {
public:
  /// Piece k belongs to pieces[k]; it may be sent on with `leaving`.
  Incoming(Channel& channel, const Memory& memory, int peer, int tag, std::vector<Piece> pieces,
           Outgoing* leaving);
  /// Waits for the next piece.
  Slot& next();
  /// What is in `slot` becomes the content of the piece that came last.
  void keep(Slot& slot);
  /// Waits until everything kept is in the buffer.
  void finish();

private:
  Channel& channel_;
  Copier* copier_;
  int peer_, tag_;
  Slots slots_;
  std::size_t ahead_, posted_ = 0, taken_ = 0;
  std::deque<Request> open_;
};

}  // namespace minitaw::comm::mpi
