#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "comm/mpi/channel.hpp"

namespace minitaw::comm::mpi {

using Piece = std::span<std::byte>;

/// Appends `data` cut into pieces of at most `largest` bytes; nothing if it is empty. Both sides of a message
/// cut alike, so pieces need no header.
void cut(Piece data, std::size_t largest, std::vector<Piece>& pieces);

/// Pieces from one rank, in order, a few receives ahead of the reader.
class Incoming {
public:
  /// Piece k lands in places[k]; at most `ahead` receives are open.
  Incoming(Channel& channel, int peer, int tag, std::vector<Piece> places, std::size_t ahead);
  /// Waits for the next piece. Says at once that the places of all earlier pieces may be written again.
  Piece next();

private:
  Channel& channel_;
  int peer_, tag_;
  std::vector<Piece> places_;
  std::size_t ahead_, posted_ = 0, taken_ = 0;
  std::deque<Request> open_;
};

/// Pieces to one rank, in order.
class Outgoing {
public:
  Outgoing(Channel& channel, int peer, int tag, schedule::Traffic traffic)
      : channel_(channel), peer_(peer), tag_(tag), traffic_(traffic) {}
  void send(Piece piece) { open_.push_back(channel_.send(peer_, tag_, traffic_, piece)); }
  /// Waits until at most `open` pieces are still on their way.
  void limit(std::size_t open);
  void finish() { limit(0); }

private:
  Channel& channel_;
  int peer_, tag_;
  schedule::Traffic traffic_;
  std::deque<Request> open_;
};

}  // namespace minitaw::comm::mpi
