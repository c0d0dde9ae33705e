#include "comm/mpi/pieces.hpp"

#include <algorithm>

namespace minitaw::comm::mpi {

void cut(Piece data, std::size_t largest, std::vector<Piece>& pieces) {
  for (; !data.empty(); data = data.subspan(pieces.back().size()))
    pieces.push_back(data.first(std::min(largest, data.size())));
}

Incoming::Incoming(Channel& channel, int peer, int tag, std::vector<Piece> places, std::size_t ahead)
    : channel_(channel), peer_(peer), tag_(tag), places_(std::move(places)), ahead_(ahead) {}

Piece Incoming::next() {
  for (; posted_ < std::min(taken_ + ahead_, places_.size()); ++posted_)
    open_.push_back(channel_.receive(peer_, tag_, places_[posted_]));
  channel_.wait(open_.front());
  open_.pop_front();
  return places_[taken_++];
}

void Outgoing::limit(std::size_t open) {
  for (; open_.size() > open; open_.pop_front()) channel_.wait(open_.front());
}

}  // namespace minitaw::comm::mpi
