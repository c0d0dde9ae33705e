#include "comm/mpi/operations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.hpp"

namespace minitaw::comm::mpi {
namespace {

/// A long message goes as up to 32 messages that are all open at once, so that a slow link is busy while one
/// of them shakes hands: over TCP at 100 Mbit/s both ways 12.3 MB/s of 12.5 instead of 11.4
/// (docs/performance.md).
std::size_t piece_of(std::size_t bytes, std::size_t largest) {
  constexpr std::size_t smallest = std::size_t{1} << 20;
  return std::min(largest, std::max(smallest, (bytes + 31) / 32));
}

/// From and to memory that MPI reaches.
class DirectExchange final : public Operation {
public:
  DirectExchange(Channel& channel, std::span<const Message> batch, std::size_t largest) : channel_(channel) {
    // Receives first, so that what the peer sends finds its place at once.
    for (const bool send : {false, true})
      for (const Message& message : batch)
        if (message.send == send) open(message, largest);
  }

  bool advance() override {
    channel_.check_cancelled();
    return messages_.finish();
  }
  [[nodiscard]] bool done() const override { return messages_.open() == 0; }

private:
  void open(const Message& m, std::size_t largest) {
    std::vector<Piece> pieces;
    cut(Piece(m.data, m.bytes), piece_of(m.bytes, largest), pieces);
    const int tag = static_cast<int>(m.payload);
    for (const Piece piece : pieces)
      messages_.add(m.send ? channel_.send(m.peer, tag, schedule::traffic_of(m.payload), piece)
                           : channel_.receive(m.peer, tag, piece));
  }

  Channel& channel_;
  Requests messages_;
};

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
class StagedTransfer {
public:
  StagedTransfer(Channel& channel, Run run, std::vector<Piece> slots)
      : channel_(channel), copier_(*channel.moves().copier), run_(std::move(run)), slots_(std::move(slots)),
        with_mpi_(std::max<std::size_t>(1, slots_.size() / 2)) {
    messages_.reserve(count());
  }
  StagedTransfer(const StagedTransfer&) = delete;
  StagedTransfer& operator=(const StagedTransfer&) = delete;
  virtual ~StagedTransfer() = default;

  /// Does what can be done without waiting for another rank; returns whether that was anything.
  virtual bool advance() = 0;
  [[nodiscard]] bool done() const { return messages_.finished() == count(); }

protected:
  [[nodiscard]] Piece slot(std::size_t k) const {
    return slots_[k % slots_.size()].first(run_.pieces[k].size());
  }
  [[nodiscard]] std::size_t count() const { return run_.pieces.size(); }
  [[nodiscard]] int tag() const { return static_cast<int>(run_.payload); }

  Channel& channel_;
  Copier& copier_;
  Run run_;
  std::vector<Piece> slots_;
  std::size_t with_mpi_;
  Requests messages_;
};

class Sending final : public StagedTransfer {
public:
  using StagedTransfer::StagedTransfer;
  bool advance() override {
    bool moved = messages_.finish();
    moved |= load();
    for (; sent() < loaded_ && messages_.open() < with_mpi_; moved = true) {
      copier_.wait_loaded(sent() % Copier::queues);
      messages_.add(channel_.send(run_.peer, tag(), schedule::traffic_of(run_.payload), slot(sent())));
      load();  // while that one is on its way
    }
    return moved;
  }

private:
  [[nodiscard]] std::size_t sent() const { return messages_.started(); }

  /// Starts copies into slots that no message reads any more.
  bool load() {
    const std::size_t before = loaded_;
    const std::size_t limit =
        std::min({count(), messages_.finished() + slots_.size(), sent() + Copier::queues});
    for (; loaded_ < limit; ++loaded_)
      copier_.load(loaded_ % Copier::queues, slot(loaded_), run_.pieces[loaded_]);
    return loaded_ > before;
  }

  std::size_t loaded_ = 0;
};

class Receiving final : public StagedTransfer {
public:
  using StagedTransfer::StagedTransfer;
  bool advance() override {
    bool moved = store();
    for (; posted() < count() && messages_.open() < with_mpi_; moved = true) {
      if (posted() >= slots_.size()) copier_.wait_stored((posted() - slots_.size()) % Copier::queues);
      messages_.add(channel_.receive(run_.peer, tag(), slot(posted())));
    }
    return moved;
  }

private:
  [[nodiscard]] std::size_t posted() const { return messages_.started(); }

  bool store() {
    const std::size_t before = messages_.finished();
    while (messages_.finish_one()) {
      const std::size_t k = messages_.finished() - 1;
      copier_.store(k % Copier::queues, run_.pieces[k], slot(k));
    }
    return messages_.finished() > before;
  }
};

std::vector<Piece> slots_of(const Memory& memory) {
  std::vector<Piece> slots;
  cut(memory.landing, memory.piece_bytes, slots);
  cut(memory.loading, memory.piece_bytes, slots);
  return slots;
}

std::unique_ptr<StagedTransfer> open(Channel& channel, Run run, std::span<const Piece> slots) {
  std::vector<Piece> own(slots.begin(), slots.end());
  if (run.send) return std::make_unique<Sending>(channel, std::move(run), std::move(own));
  return std::make_unique<Receiving>(channel, std::move(run), std::move(own));
}

std::vector<std::unique_ptr<StagedTransfer>> open_all(Channel& channel, std::span<const Message> batch) {
  std::vector<Run> runs = runs_of(batch, channel.moves().piece_bytes);
  const std::vector<Piece> slots = slots_of(channel.moves());
  if (runs.size() > slots.size())
    throw LogicError(
        fmt::format("a batch of {} messages has only {} slots of pinned memory", runs.size(), slots.size()));
  std::vector<std::unique_ptr<StagedTransfer>> passages;
  const std::size_t each = runs.empty() ? 0 : slots.size() / runs.size();
  for (std::size_t i = 0; i < runs.size(); ++i)
    passages.push_back(open(channel, std::move(runs[i]), std::span(slots).subspan(i * each, each)));
  return passages;
}

class StagedExchange final : public Operation {
public:
  StagedExchange(Channel& channel, std::span<const Message> batch)
      : channel_(channel), passages_(open_all(channel, batch)) {}
  StagedExchange(const StagedExchange&) = delete;
  StagedExchange& operator=(const StagedExchange&) = delete;
  ~StagedExchange() override {
    if (!done_) channel_.moves().copier->settle();
  }

  bool advance() override {
    channel_.check_cancelled();
    bool moved = false;
    for (const auto& passage : passages_) moved |= passage->advance();
    if (done_ || !std::ranges::all_of(passages_, [](const auto& p) { return p->done(); })) return moved;
    for (std::size_t queue = 0; queue < Copier::queues; ++queue) channel_.moves().copier->wait_stored(queue);
    done_ = true;
    return true;
  }
  [[nodiscard]] bool done() const override { return done_; }

private:
  Channel& channel_;
  std::vector<std::unique_ptr<StagedTransfer>> passages_;
  bool done_ = false;
};

}  // namespace

std::unique_ptr<Operation> make_exchange(Channel& channel, std::span<const Message> batch,
                                         std::size_t largest) {
  if (channel.moves().copier != nullptr) return std::make_unique<StagedExchange>(channel, batch);
  return std::make_unique<DirectExchange>(channel, batch, largest);
}

}  // namespace minitaw::comm::mpi
