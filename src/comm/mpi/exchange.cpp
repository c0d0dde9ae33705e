#include <algorithm>
#include <fmt/format.h>

#include "base/error.hpp"
#include "comm/mpi/channel.hpp"

namespace minitaw::comm::mpi {
namespace {

/// Calls open(message) for the receives of a batch first, so that what the peer sends finds its place at
/// once.
template <class Open>
void receives_first(std::span<const Message> batch, const Open& open) {
  for (const bool send : {false, true})
    for (const Message& message : batch)
      if (message.send == send) open(message);
}

/// From and to memory that MPI reaches.
class DirectExchange final : public Operation {
public:
  DirectExchange(Channel& channel, std::span<const Message> batch) : channel_(channel), requests_(channel) {
    receives_first(batch, [&](const Message& m) {
      const int tag = static_cast<int>(m.payload);
      for (const Piece piece : cut({m.data, m.bytes}, piece_of(m.bytes)))
        if (m.send) requests_.send(m.peer, tag, schedule::traffic_of(m.payload), piece);
        else requests_.receive(m.peer, tag, piece);
    });
  }

  bool advance() override {
    channel_.check_cancelled();
    return requests_.finish();
  }
  [[nodiscard]] bool done() const override { return requests_.open() == 0; }

private:
  /// A long message goes as up to 32 messages that are all open at once, so that a slow link is busy while
  /// one of them shakes hands: over TCP at 100 Mbit/s both ways 12.3 MB/s of 12.5 instead of 11.4
  /// (docs/performance.md).
  static std::size_t piece_of(std::size_t bytes) {
    constexpr std::size_t smallest = std::size_t{1} << 20;
    return std::min(largest_message, std::max(smallest, (bytes + 31) / 32));
  }

  Channel& channel_;
  Requests requests_;
};

/// All messages of a batch to or from one rank under one tag. Half of its slots are with MPI, the others are
/// being copied.
class StagedTransfer {
public:
  StagedTransfer(Channel& channel, const Message& like)
      : copier_(*channel.memory.moves.copier), like_(like), requests_(channel) {}

  [[nodiscard]] bool takes(const Message& m) const {
    return like_.send == m.send && like_.peer == m.peer && like_.payload == m.payload;
  }
  void add(const std::vector<Piece>& pieces) { pieces_.insert(pieces_.end(), pieces.begin(), pieces.end()); }
  /// Before the first advance().
  void use(std::span<const Piece> slots) {
    slots_.assign(slots.begin(), slots.end());
    with_mpi_ = std::max<std::size_t>(1, slots_.size() / 2);
  }

  /// Does what can be done without waiting for another rank; returns whether that was anything.
  bool advance() { return like_.send ? send() : receive(); }
  [[nodiscard]] bool done() const { return requests_.finished() == pieces_.size(); }

private:
  bool send() {
    bool moved = requests_.finish();
    moved |= load();
    for (std::size_t k; (k = requests_.started()) < loaded_ && requests_.open() < with_mpi_; moved = true) {
      copier_.wait_loaded(k % Copier::queues);
      requests_.send(like_.peer, tag(), schedule::traffic_of(like_.payload), slot(k));
      load();  // while that one is on its way
    }
    return moved;
  }

  /// Starts copies into slots that no message reads any more.
  bool load() {
    const std::size_t before = loaded_;
    const std::size_t limit = std::min(
        {pieces_.size(), requests_.finished() + slots_.size(), requests_.started() + Copier::queues});
    for (; loaded_ < limit; ++loaded_)
      copier_.load(loaded_ % Copier::queues, slot(loaded_), pieces_[loaded_]);
    return loaded_ > before;
  }

  bool receive() {
    bool moved = false;
    for (; requests_.finish_one(); moved = true) {
      const std::size_t k = requests_.finished() - 1;
      copier_.store(k % Copier::queues, pieces_[k], slot(k));
    }
    for (std::size_t k; (k = requests_.started()) < pieces_.size() && requests_.open() < with_mpi_;
         moved = true) {
      if (k >= slots_.size()) copier_.wait_stored((k - slots_.size()) % Copier::queues);
      requests_.receive(like_.peer, tag(), slot(k));
    }
    return moved;
  }

  [[nodiscard]] Piece slot(std::size_t k) const { return slots_[k % slots_.size()].first(pieces_[k].size()); }
  [[nodiscard]] int tag() const { return static_cast<int>(like_.payload); }

  Copier& copier_;
  Message like_;
  std::vector<Piece> pieces_, slots_;
  std::size_t with_mpi_ = 1, loaded_ = 0;
  Requests requests_;
};

class StagedExchange final : public Operation {
public:
  StagedExchange(Channel& channel, std::span<const Message> batch) : channel_(channel) {
    const Memory& memory = channel.memory.moves;
    receives_first(batch, [&](const Message& m) {
      if (m.bytes == 0) return;
      auto found = std::ranges::find_if(transfers_, [&](const auto& t) { return t->takes(m); });
      if (found == transfers_.end())
        found = transfers_.insert(found, std::make_unique<StagedTransfer>(channel, m));
      (*found)->add(cut({m.data, m.bytes}, memory.piece_bytes));
    });
    std::vector<Piece> slots = cut(memory.landing, memory.piece_bytes);
    std::ranges::copy(cut(memory.loading, memory.piece_bytes), std::back_inserter(slots));
    if (transfers_.size() > slots.size())
      throw LogicError(fmt::format("a batch of {} messages has only {} slots of pinned memory",
                                   transfers_.size(), slots.size()));
    const std::size_t each = transfers_.empty() ? 0 : slots.size() / transfers_.size();
    for (std::size_t i = 0; i < transfers_.size(); ++i)
      transfers_[i]->use(std::span(slots).subspan(i * each, each));
  }
  ~StagedExchange() override {
    if (!done_) copier().settle();
  }

  bool advance() override {
    channel_.check_cancelled();
    bool moved = false;
    for (const auto& transfer : transfers_) moved |= transfer->advance();
    if (done_ || !std::ranges::all_of(transfers_, [](const auto& t) { return t->done(); })) return moved;
    for (std::size_t queue = 0; queue < Copier::queues; ++queue) copier().wait_stored(queue);
    done_ = true;
    return true;
  }
  [[nodiscard]] bool done() const override { return done_; }

private:
  [[nodiscard]] Copier& copier() const { return *channel_.memory.moves.copier; }

  Channel& channel_;
  std::vector<std::unique_ptr<StagedTransfer>> transfers_;
  bool done_ = false;
};

}  // namespace

std::unique_ptr<Operation> make_exchange(Channel& channel, std::span<const Message> batch) {
  if (channel.memory.moves.copier != nullptr) return std::make_unique<StagedExchange>(channel, batch);
  return std::make_unique<DirectExchange>(channel, batch);
}

}  // namespace minitaw::comm::mpi
