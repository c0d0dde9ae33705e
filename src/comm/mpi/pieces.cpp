#include "comm/mpi/pieces.hpp"

#include <algorithm>

namespace minitaw::comm::mpi {

void cut(Piece data, std::size_t largest, std::vector<Piece>& pieces) {
  for (; !data.empty(); data = data.subspan(pieces.back().size()))
    pieces.push_back(data.first(std::min(largest, data.size())));
}

void Outgoing::send(Slot& slot) {
  open_.push_back(channel_.send(peer_, tag_, traffic_, slot.memory));
  slot.send = ++sent_;
}

void Outgoing::limit(std::size_t open) {
  for (; open_.size() > open; open_.pop_front()) channel_.wait(open_.front());
}

Slots::Slots(Piece memory, const Memory& with, std::vector<Piece> pieces, Outgoing* leaving)
    : pieces_(std::move(pieces)), ring_(memory.size() / with.piece_bytes), slot_bytes_(with.piece_bytes),
      memory_(memory.data()), copier_(with.copier), leaving_(leaving) {}

Slot& Slots::take(std::size_t k) {
  Slot& slot = at(k);
  if (in_place()) return slot;
  if (slot.send > 0) leaving_->wait_for(slot.send);
  if (slot.storing) copier_->wait_stored(slot.queue);
  const std::size_t place = k % ring_.size();
  slot = {.memory = Piece(memory_ + place * slot_bytes_, pieces_[k].size()), .in_place = false};
  return slot;
}

Slot& Slots::at(std::size_t k) {
  if (!in_place()) return ring_[k % ring_.size()];
  direct_.memory = pieces_[k];
  return direct_;
}

Loading::Loading(const Memory& memory, std::vector<Piece> pieces, Outgoing* leaving)
    : copier_(memory.copier), slots_(memory.loading, memory, std::move(pieces), leaving) {}

Slot& Loading::next() {
  if (!slots_.in_place()) {
    for (; started_ < std::min(taken_ + Copier::queues, slots_.count()); ++started_)
      copier_->load(started_ % Copier::queues, slots_.take(started_).memory, slots_.piece(started_));
    copier_->wait_loaded(taken_ % Copier::queues);
  }
  return slots_.at(taken_++);
}

Incoming::Incoming(Channel& channel, const Memory& memory, int peer, int tag, std::vector<Piece> pieces,
                   Outgoing* leaving)
    : channel_(channel), copier_(memory.copier), peer_(peer), tag_(tag),
      slots_(memory.landing, memory, std::move(pieces), leaving), ahead_(memory.ahead) {}

Slot& Incoming::next() {
  for (; posted_ < std::min(taken_ + ahead_, slots_.count()); ++posted_)
    open_.push_back(channel_.receive(peer_, tag_, slots_.take(posted_).memory));
  channel_.wait(open_.front());
  open_.pop_front();
  return slots_.at(taken_++);
}

void Incoming::keep(Slot& slot) {
  if (slot.in_place) return;
  slot.queue = taken_ % Copier::queues;
  slot.storing = true;
  copier_->store(slot.queue, slots_.piece(taken_ - 1), slot.memory);
}

void Incoming::finish() {
  if (copier_ == nullptr) return;
  for (std::size_t queue = 0; queue < Copier::queues; ++queue) copier_->wait_stored(queue);
}

}  // namespace minitaw::comm::mpi
