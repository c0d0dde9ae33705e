#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "comm/mpi/channel.hpp"
#include "comm/mpi/memory.hpp"
#include "comm/transport.hpp"

namespace minitaw::comm::mpi {

/// MPI counts in int: longer messages travel in pieces of this size.
inline constexpr std::size_t largest_message = std::size_t{1} << 30;

/// All messages of a batch at once; the payload is the tag. Messages of no bytes do not travel.
///
/// On a staged lane every message gets slots of its own, so that none waits for another one: a peer may not
/// come to the first before it has had the last. Messages of equal payload to or from one rank follow each
/// other, since MPI matches them in order. Throws LogicError if the batch needs more slots than there are.
[[nodiscard]] std::unique_ptr<Operation> make_exchange(Channel& channel, std::span<const Message> batch,
                                                       std::size_t largest = largest_message);

/// What happens to one piece of a buffer at one member of a collective.
struct RingStep {
  Piece piece;
  bool arrives = false;  ///< it comes from a neighbour
  bool leaves = false;   ///< the result goes to the other neighbour
  bool own = false;      ///< this rank's piece is read; if one arrives too, the result is their sum
  bool stays = false;    ///< the result becomes the piece in the buffer
};

/// A member's part in a collective: its steps, in order.
struct RingPlan {
  std::vector<RingStep> steps;
  int from = -1, to = -1;  ///< neighbours, global ranks
  int tag = 0;
  schedule::Traffic traffic = schedule::Traffic::weights;
  Scalar scalar = Scalar::fp32;
  /// Where MPI reads the buffer itself, sums are written there; else they are where the other piece came.
  bool may_overwrite = false;
  /// A step that sends waits until no more sends than these are open.
  std::size_t open_sends = std::numeric_limits<std::size_t>::max();
};

/// Memory for pieces, used in turn: piece k has slot k modulo their number. No slots at all: pieces are used
/// where they are in the buffer.
class Slots {
public:
  struct Slot {
    std::size_t send = 0;   ///< number of the send that reads it; 0: none
    bool storing = false;   ///< a copy to the buffer reads it
    std::size_t queue = 0;  ///< of that copy
  };

  Slots(Piece memory, std::size_t slot_bytes)
      : memory_(memory.data()), slot_bytes_(slot_bytes), slots_(memory.size() / slot_bytes) {}

  [[nodiscard]] bool in_buffer() const { return slots_.empty(); }
  [[nodiscard]] Slot& slot(std::size_t k) { return slots_[k % slots_.size()]; }
  [[nodiscard]] Piece memory(std::size_t k, std::size_t bytes) const {
    return {memory_ + k % slots_.size() * slot_bytes_, bytes};
  }

private:
  std::byte* memory_;
  std::size_t slot_bytes_;
  std::vector<Slot> slots_;
};

/// Executes a plan. Receives are posted, and own pieces fetched, some steps ahead. A slot is written again
/// only when the send and the copy that read it are over.
class RingOperation final : public Operation {
public:
  /// Does nothing yet.
  RingOperation(Channel& channel, const Memory& memory, RingPlan plan);
  RingOperation(const RingOperation&) = delete;
  RingOperation& operator=(const RingOperation&) = delete;
  /// If it is not over (it was cancelled), no copy reads or writes the buffer afterwards.
  ~RingOperation() override;

  /// Executes one step at most: a step may add up a piece, and other lanes may share the thread.
  bool advance() override;
  [[nodiscard]] bool done() const override { return done_; }

private:
  /// A piece that this rank holds, in the buffer (no slot) or in a slot.
  struct Held {
    Piece memory;
    Slots::Slot* slot = nullptr;
  };

  bool post_receives();
  bool start_loads();
  [[nodiscard]] bool ready();
  void execute(const RingStep& step);
  void finish_stores();

  /// Whether the slot of piece k may be written now: no send reads it, and no copy any more.
  [[nodiscard]] bool vacate(Slots& slots, std::size_t k);
  [[nodiscard]] Held take_own(const RingStep& step);
  [[nodiscard]] Held take_arrived(const RingStep& step);
  [[nodiscard]] Held sum(const Held& arrived, const Held& own) const;
  void send(const Held& held);
  void keep(const Held& held, Piece place);

  Channel& channel_;
  Memory memory_;
  RingPlan plan_;
  Slots landing_, loading_;
  Requests sends_, receives_;
  std::size_t next_ = 0;                        ///< step to execute
  std::size_t next_posted_ = 0;                 ///< first step whose receive may still have to be posted
  std::size_t next_loaded_ = 0;                 ///< first step whose own piece may still have to be fetched
  std::size_t loads_ = 0, own_ = 0, kept_ = 0;  ///< fetches begun; own pieces used; stores begun
  bool done_ = false;
};

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
