#include "comm/mpi/staged_exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include "base/error.hpp"
#include "comm/mpi/pieces.hpp"

namespace minitaw::comm::mpi {
namespace {

/// All pieces from or to one rank under one tag.
struct Run {
  bool send;
  int peer;
  schedule::Payload payload;
  std::vector<Piece> pieces;

  [[nodiscard]] bool takes(const Message& m) const {
    return send == m.send && peer == m.peer && payload == m.payload;
  }
};

std::vector<Run> runs_of(std::span<const Message> batch, std::size_t piece_bytes) {
  std::vector<Run> runs;
  for (const bool send :
       {false, true})  // receives first, so that what the peer sends finds its place at once
    for (const Message& m : batch) {
      if (m.send != send || m.bytes == 0) continue;
      auto run = std::ranges::find_if(runs, [&](const Run& r) { return r.takes(m); });
      if (run == runs.end()) run = runs.insert(run, {m.send, m.peer, m.payload, {}});
      cut(Piece(m.data, m.bytes), piece_bytes, run->pieces);
    }
  return runs;
}

/// A run on its way. Half of its slots are with MPI, the others are being copied.
class Passage {
public:
  Passage(Channel& channel, Run run, std::vector<Piece> slots)
      : channel_(channel), copier_(*channel.moves().copier), run_(std::move(run)), slots_(std::move(slots)),
        with_mpi_(std::max<std::size_t>(1, slots_.size() / 2)) {}
  Passage(const Passage&) = delete;
  Passage& operator=(const Passage&) = delete;
  virtual ~Passage() = default;

  /// Does what can be done without waiting for another rank; returns whether that was anything.
  virtual bool advance() = 0;
  [[nodiscard]] bool done() const { return finished_ == run_.pieces.size(); }

protected:
  [[nodiscard]] Piece slot(std::size_t k) const {
    return slots_[k % slots_.size()].first(run_.pieces[k].size());
  }
  [[nodiscard]] std::size_t count() const { return run_.pieces.size(); }
  [[nodiscard]] int tag() const { return static_cast<int>(run_.payload); }

  /// Takes note of messages that are complete, the oldest first.
  template <class Then>
  bool finish(Then&& then) {
    const std::size_t before = finished_;
    for (; !open_.empty() && open_.front().test(); ++finished_) {
      open_.pop_front();
      then(finished_);
    }
    return finished_ > before;
  }

  Channel& channel_;
  Copier& copier_;
  Run run_;
  std::vector<Piece> slots_;
  std::size_t with_mpi_;
  std::size_t finished_ = 0;
  std::deque<Request> open_;
};

class Sending final : public Passage {
public:
  using Passage::Passage;
  bool advance() override {
    bool moved = finish([](std::size_t) {});
    moved |= load();
    for (; sent_ < loaded_ && sent_ < finished_ + with_mpi_; ++sent_, moved = true) {
      copier_.wait_loaded(sent_ % Copier::queues);
      open_.push_back(channel_.send(run_.peer, tag(), schedule::traffic_of(run_.payload), slot(sent_)));
      load();  // while that one is on its way
    }
    return moved;
  }

private:
  /// Starts copies into slots that no message reads any more.
  bool load() {
    const std::size_t before = loaded_;
    const std::size_t limit = std::min({count(), finished_ + slots_.size(), sent_ + Copier::queues});
    for (; loaded_ < limit; ++loaded_)
      copier_.load(loaded_ % Copier::queues, slot(loaded_), run_.pieces[loaded_]);
    return loaded_ > before;
  }

  std::size_t loaded_ = 0, sent_ = 0;
};

class Receiving final : public Passage {
public:
  using Passage::Passage;
  bool advance() override {
    bool moved =
        finish([this](std::size_t k) { copier_.store(k % Copier::queues, run_.pieces[k], slot(k)); });
    for (; posted_ < count() && posted_ < finished_ + with_mpi_; ++posted_, moved = true) {
      if (posted_ >= slots_.size()) copier_.wait_stored((posted_ - slots_.size()) % Copier::queues);
      open_.push_back(channel_.receive(run_.peer, tag(), slot(posted_)));
    }
    return moved;
  }

private:
  std::size_t posted_ = 0;
};

std::vector<Piece> slots_of(const Memory& memory) {
  std::vector<Piece> slots;
  cut(memory.landing, memory.piece_bytes, slots);
  cut(memory.loading, memory.piece_bytes, slots);
  return slots;
}

std::unique_ptr<Passage> open(Channel& channel, Run run, std::span<const Piece> slots) {
  std::vector<Piece> own(slots.begin(), slots.end());
  if (run.send) return std::make_unique<Sending>(channel, std::move(run), std::move(own));
  return std::make_unique<Receiving>(channel, std::move(run), std::move(own));
}

std::vector<std::unique_ptr<Passage>> open_all(Channel& channel, std::span<const Message> batch) {
  std::vector<Run> runs = runs_of(batch, channel.moves().piece_bytes);
  const std::vector<Piece> slots = slots_of(channel.moves());
  if (runs.size() > slots.size())
    throw LogicError(
        fmt::format("a batch of {} messages has only {} slots of pinned memory", runs.size(), slots.size()));
  std::vector<std::unique_ptr<Passage>> passages;
  const std::size_t each = runs.empty() ? 0 : slots.size() / runs.size();
  for (std::size_t i = 0; i < runs.size(); ++i)
    passages.push_back(open(channel, std::move(runs[i]), std::span(slots).subspan(i * each, each)));
  return passages;
}

}  // namespace

void exchange_staged(Channel& channel, std::span<const Message> batch) {
  const auto passages = open_all(channel, batch);
  const auto advance = [&] {
    bool moved = false;
    for (const auto& passage : passages) moved |= passage->advance();
    return moved;
  };
  // Each wait starts anew with a few quick looks, as long as something moves.
  while (!std::ranges::all_of(passages, [](const auto& p) { return p->done(); }))
    channel.waiter().until(advance);
  for (std::size_t queue = 0; queue < Copier::queues; ++queue) channel.moves().copier->wait_stored(queue);
}

}  // namespace minitaw::comm::mpi
