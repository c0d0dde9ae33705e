// SPDX-License-Identifier: BSD-3-Clause
#include "comm/mpi/transport.hpp"
#include <algorithm>
#include "base/error.hpp"
#include "comm/mpi/mpi.hpp"
#include "comm/mpi/sends.hpp"

namespace minitaw::comm::mpi {
using schedule::Kind, schedule::Lane;

void Copier::settle() noexcept {
  for (std::size_t queue = 0; queue < queues; ++queue) {
    try {
      wait(Way::load, queue);
      wait(Way::store, queue);
    } catch (
        const std::exception&) {  // a failed copy touches its buffer no more; who cancelled reports
    }
  }
}

namespace {
/// MPI counts in int: longer messages travel in pieces of this size.
constexpr std::size_t largest_message = std::size_t{1} << 30;
constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

/// `data` in pieces of at most `largest` bytes. Both sides of a message cut alike: pieces need no
/// header.
std::vector<Piece> cut(Piece data, std::size_t largest) {
  std::vector<Piece> pieces;
  for (; !data.empty(); data = data.subspan(pieces.back().size()))
    pieces.push_back(data.first(std::min(largest, data.size())));
  return pieces;
}

/// A communicator for each kind of traffic, by which MPI's calls count (sends.hpp).
using Comms = std::array<OwnComm, schedule::traffic_kinds>;

/// One lane's end of the network, for one thread at a time. Lanes share the communicators; tags
/// differ.
struct Channel {
  const Comms& comms;
  LaneMemory memory;
  const std::atomic<bool>& cancelled;
};

/// MPI messages under way, of at most INT_MAX bytes each. They are complete in the order of their
/// start, so that a look costs one test. Their memory must live until then. After an error,
/// receives are withdrawn and sends are left to MPI.
class Requests {
public:
  explicit Requests(MPI_Comm comm) : comm_(comm) {}

  Requests& operator=(Requests&&) = delete;

  ~Requests() {
    for (std::size_t k = finished_; k < requests_.size(); ++k) {
      Request& request = requests_[k];
      if (request.handle == MPI_REQUEST_NULL)
        continue;
      if (request.receives)
        MPI_Cancel(&request.handle);
      MPI_Request_free(&request.handle);
    }
  }

  void send(int peer, int tag, Piece data) {
    check(MPI_Isend(data.data(),
              static_cast<int>(data.size()),
              MPI_BYTE,
              peer,
              tag,
              comm_,
              &requests_.emplace_back().handle),
        "MPI_Isend");
  }

  void receive(int peer, int tag, Piece place) {
    Request& request = requests_.emplace_back(MPI_REQUEST_NULL, true, place.size());
    check(MPI_Irecv(place.data(),
              static_cast<int>(place.size()),
              MPI_BYTE,
              peer,
              tag,
              comm_,
              &request.handle),
        "MPI_Irecv");
  }

  /// Returns whether the oldest open message is complete now. Throws Error if it failed or has
  /// another length.
  bool finish_one() {
    if (open() == 0)
      return false;
    Request& request = requests_[finished_];
    int done = 0, bytes = 0;
    MPI_Status status;
    check(MPI_Test(&request.handle, &done, &status),
        request.receives ? "MPI_Test of a receive" : "MPI_Test of a send");
    if (done == 0)
      return false;
    ++finished_;
    if (!request.receives)
      return true;
    check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
    if (static_cast<std::size_t>(bytes) != request.bytes)
      throw Error(fmt::format("a message from rank {} has {} bytes where {} were expected",
          status.MPI_SOURCE,
          bytes,
          request.bytes));
    return true;
  }

  bool finish() {
    const std::size_t before = finished_;
    while (finish_one())
      continue;
    return finished_ > before;
  }

  std::size_t started() const { return requests_.size(); }

  std::size_t finished() const { return finished_; }

  std::size_t open() const { return started() - finished(); }

private:
  struct Request {
    MPI_Request handle = MPI_REQUEST_NULL;
    bool receives = false;
    std::size_t bytes = 0;
  };

  MPI_Comm comm_;
  std::vector<Request> requests_;
  std::size_t finished_ = 0;
};

/// One step of a collective for one piece of a buffer on this rank.
struct Step {
  Piece piece;
  bool arrives = false;  ///< it comes from another rank
  bool leaves = false;   ///< the result goes to another rank
};

/// A rank's part in a message, a chain or a ring: its steps, in order.
struct Plan {
  Memory memory;
  bool sums =
      false;  ///< a step adds this rank's piece to what arrives; else it passes on what arrives
  std::vector<Step> steps;
  int from = -1, to = -1;  ///< ranks of the job
  int tag = 0;
  schedule::Traffic traffic = schedule::Traffic::weights;
  model::Dtype dtype = model::Dtype::fp32;
  /// Sums are written to the buffer if MPI reads the buffer itself, else to the slot of the piece
  /// received.
  bool may_overwrite = false;
  /// A step that sends waits until no more sends than these are open.
  std::size_t open_sends = unlimited;

  bool reads(const Step& step) const { return sums || !step.arrives; }

  /// Returns whether the result is written to the piece in the buffer.
  bool keeps(const Step& step) const { return sums ? !step.leaves : step.arrives; }
};

/// Memory for a piece, and what still reads it.
struct Slot {
  std::size_t send = 0;   ///< number of the send that reads it; 0: none
  bool storing = false;   ///< a copy to the buffer reads it
  std::size_t queue = 0;  ///< of that copy
};

/// Where this rank holds a piece: in a slot, or in the buffer (nullptr).
struct Held {
  Piece memory;
  Slot* slot = nullptr;
};

/// Slots, used in turn: piece k has slot k modulo their number. Without slots, pieces stay in the
/// buffer.
class Slots {
public:
  Slots(Piece memory, std::size_t slot_bytes)
      : memory_(memory),
        slot_bytes_(slot_bytes),
        slots_(memory.size() / slot_bytes) {}

  bool in_buffer() const { return slots_.empty(); }

  /// The place of piece k, which is `piece` of the buffer.
  Held at(std::size_t k, Piece piece) {
    if (in_buffer())
      return {piece};
    const std::size_t number = k % slots_.size();
    return {memory_.subspan(number * slot_bytes_, piece.size()), &slots_[number]};
  }

private:
  Piece memory_;
  std::size_t slot_bytes_;
  std::vector<Slot> slots_;
};

/// Executes a plan: receives and fetches run some steps ahead. A slot is written again when all
/// that read it is over.
class Passage final : public Operation {
public:
  Passage(Channel& channel, Plan plan)
      : channel_(channel),
        plan_(std::move(plan)),
        landing_(memory().landing, memory().piece_bytes),
        loading_(memory().loading, memory().piece_bytes),
        sends_(comm()),
        receives_(comm()) {}

  /// If it is not over (it was cancelled), no copy reads or writes the buffer afterwards.
  ~Passage() override {
    if (!done_ && memory().copier != nullptr)
      memory().copier->settle();
  }

  bool advance() override {
    if (channel_.cancelled.load(std::memory_order_relaxed))
      throw Cancelled();
    bool moved = post_receives();
    moved |= start_loads();
    while (ready()) {
      execute(plan_.steps[next_++]);
      moved = true;
      if (plan_.sums || memory().copier != nullptr)
        break;  // that took time, and lanes share the thread
    }
    moved |= sends_.finish();
    if (done_ || next_ < plan_.steps.size() || sends_.open() > 0)
      return moved;
    for (std::size_t queue = 0; queue < std::min(kept_, Copier::queues); ++queue)
      memory().copier->wait(Copier::Way::store, queue);
    done_ = true;
    return true;
  }

  bool done() const override { return done_; }

private:
  bool post_receives() {
    const std::size_t before = receives_.started();
    for (; next_posted_ < plan_.steps.size() && receives_.open() < memory().ahead; ++next_posted_) {
      const Step& step = plan_.steps[next_posted_];
      if (!step.arrives)
        continue;
      const Held place = landing_.at(receives_.started(), step.piece);
      if (!vacate(place.slot))
        break;
      receives_.receive(plan_.from, plan_.tag, place.memory);
    }
    return receives_.started() > before;
  }

  bool start_loads() {
    if (loading_.in_buffer())
      return false;
    const std::size_t before = loads_;
    for (; next_loaded_ < plan_.steps.size() && loads_ < own_ + Copier::queues; ++next_loaded_) {
      const Step& step = plan_.steps[next_loaded_];
      if (!plan_.reads(step))
        continue;
      const Held place = loading_.at(loads_, step.piece);
      if (!vacate(place.slot))
        break;
      memory().copier->copy(Copier::Way::load, loads_ % Copier::queues, place.memory, step.piece);
      ++loads_;
    }
    return loads_ > before;
  }

  /// Returns whether a slot may be written now: no send and no copy reads it any more.
  [[nodiscard]] bool vacate(Slot* slot) {
    if (slot == nullptr)
      return true;
    if (slot->send > sends_.finished())
      return false;
    if (slot->storing)
      memory().copier->wait(Copier::Way::store, slot->queue);
    *slot = {};
    return true;
  }

  bool ready() {
    if (next_ == plan_.steps.size())
      return false;
    const Step& step = plan_.steps[next_];
    if (step.leaves && sends_.open() > plan_.open_sends)
      return false;
    if (plan_.reads(step) && !loading_.in_buffer() && loads_ == own_)
      return false;
    return !step.arrives || receives_.finish_one();  // last: it is complete only once
  }

  void execute(const Step& step) {
    Held held;
    if (!step.arrives)
      held = take_own(step);
    else if (!plan_.reads(step))
      held = take_arrived(step);
    else
      held = sum(take_arrived(step), take_own(step));
    if (step.leaves) {
      sends_.send(plan_.to, plan_.tag, held.memory);
      if (held.slot != nullptr)
        held.slot->send = sends_.started();
    }
    if (plan_.keeps(step) && held.slot != nullptr) {
      *held.slot = {held.slot->send, true, kept_++ % Copier::queues};
      memory().copier->copy(Copier::Way::store, held.slot->queue, step.piece, held.memory);
    }
  }

  Held take_own(const Step& step) {
    if (!loading_.in_buffer())
      memory().copier->wait(Copier::Way::load, own_ % Copier::queues);
    return loading_.at(own_++, step.piece);
  }

  Held take_arrived(const Step& step) { return landing_.at(receives_.finished() - 1, step.piece); }

  Held sum(const Held& arrived, const Held& own) const {
    const bool in_buffer = own.slot == nullptr && plan_.may_overwrite;
    const Held &target = in_buffer ? own : arrived, &other = in_buffer ? arrived : own;
    add(plan_.dtype,
        target.memory.data(),
        other.memory.data(),
        static_cast<std::int64_t>(target.memory.size() / model::bytes_of(plan_.dtype)));
    return target;
  }

  const Memory& memory() const { return plan_.memory; }

  MPI_Comm comm() const { return channel_.comms[index_of(plan_.traffic)].comm; }

  Channel& channel_;
  Plan plan_;
  Slots landing_, loading_;
  Requests sends_, receives_;
  std::size_t next_ = 0;         ///< step to execute
  std::size_t next_posted_ = 0;  ///< first step whose receive may still have to be posted
  std::size_t next_loaded_ = 0;  ///< first step whose own piece may still have to be fetched
  std::size_t loads_ = 0, own_ = 0, kept_ = 0;  ///< fetches begun; own pieces used; stores begun
  bool done_ = false;
};

class InTurn final : public Operation {
public:
  InTurn(std::unique_ptr<Operation> first, std::unique_ptr<Operation> second)
      : first_(std::move(first)),
        second_(std::move(second)) {}

  bool advance() override { return first_->done() ? second_->advance() : first_->advance(); }

  bool done() const override { return second_->done(); }

private:
  std::unique_ptr<Operation> first_, second_;
};

std::vector<Piece> pieces_of(const Collective& c, const Range& range, std::size_t piece_bytes) {
  const auto width = static_cast<std::int64_t>(model::bytes_of(c.dtype));
  return cut(
      {c.data + range.begin * width, static_cast<std::size_t>(range.count * width)}, piece_bytes);
}

/// The steps of a member in which slice `first` starts at it, those below arrive one by one and are
/// passed on, but for the last. Slices go round `window` pieces at a time: with few slots, pieces
/// are passed on before all own are sent.
std::vector<Step> ring_steps(int members, const Collective& c, int first, const Memory& memory) {
  std::vector<std::vector<Piece>> slices;  // in the order in which they come by
  std::size_t longest = 0;
  for (int step = 0; step < members; ++step) {
    slices.push_back(pieces_of(c, slice(c.elements, members, first - step), memory.piece_bytes));
    longest = std::max(longest, slices.back().size());
  }
  std::vector<Step> steps;
  for (std::size_t begin = 0; begin < longest; begin += std::min(memory.window, longest))
    for (std::size_t s = 0; s < slices.size(); ++s)
      for (std::size_t k = begin; k < slices[s].size() && k - begin < memory.window; ++k)
        steps.push_back({slices[s][k], s > 0, s + 1 < slices.size()});
  return steps;
}

/// broadcast and reduce are chains from and to the root: while piece k + 1 arrives, piece k is
/// passed on. The order of a sum is that of the ring, so its bits repeat; only the root may change
/// its buffer.
///
/// all_gather and reduce_scatter are rings. Every member sends its own slice, then hands on what
/// arrives. The sum of slice i grows from member i + 1 round to member i; each adds its own part,
/// in host memory in its buffer. The sends of a ring are not limited: if everyone waited to send
/// before receiving it would stand still.
std::unique_ptr<Operation> make_part(
    Channel& channel, Kind kind, const Membership& self, int tag, const Collective& c) {
  const int members = self.size(),
            position = (self.index - self.root + members) % members;  // from the root
  const auto neighbour = [&](int distance) {
    return (*self.ranks)[(self.index + distance + members) % members];
  };
  const int forwards = kind == Kind::reduce ? -1 : 1;
  Plan plan{.memory = channel.memory.moves,
      .sums = kind == Kind::reduce || kind == Kind::reduce_scatter,
      .steps = {},
      .from = neighbour(-forwards),
      .to = neighbour(forwards),
      .tag = tag,
      .traffic = schedule::traffic_of(c.payload),
      .dtype = c.dtype};
  if (plan.sums) {
    plan.memory = channel.memory.sums;
    if (plan.memory.landing.empty())
      throw LogicError("a reduction runs on a lane that was given no staging memory");
    plan.may_overwrite = kind == Kind::reduce_scatter || position == 0;
  } else if (members == 2 && plan.memory.copier == nullptr) {
    // Pieces let a rank pass on what has come while more comes: two members would only pay for
    // handshakes.
    plan.memory.piece_bytes = largest_message;
  }
  if (kind == Kind::all_gather || kind == Kind::reduce_scatter) {
    plan.steps = ring_steps(members, c, plan.sums ? position - 1 : position, plan.memory);
  } else {
    const int place = plan.sums ? members - 1 - position : position;  // in the chain
    plan.open_sends = plan.sums ? 4 : plan.memory.ahead;
    for (const Piece piece : pieces_of(c, {0, c.elements}, plan.memory.piece_bytes))
      plan.steps.push_back({piece, place > 0, place + 1 < members});
  }
  return std::make_unique<Passage>(channel, std::move(plan));
}

/// This rank's side of a message that has not begun; the payload is the tag.
std::unique_ptr<Operation> make_message(Channel& channel, const Message& m) {
  Plan plan{.memory = channel.memory.moves,
      .steps = {},
      .from = m.peer,
      .to = m.peer,
      .tag = static_cast<int>(m.payload),
      .traffic = schedule::traffic_of(m.payload)};
  Memory& memory = plan.memory;
  if (memory.copier == nullptr) {
    // Up to 32 messages, all open, keep a slow link busy while one shakes hands: 12.3 of 12.5 MB/s
    // over TCP, else 11.4.
    memory.piece_bytes = std::clamp((m.bytes + 31) / 32, std::size_t{1} << 20, largest_message);
    memory.ahead = unlimited;
  } else {
    // It has all slots: half of them are with MPI, the others are being copied.
    memory.ahead = memory.landing.size() / memory.piece_bytes;
    plan.open_sends = memory.ahead - 1;
    memory.landing =
        memory.loading = {memory.landing.data(), memory.landing.size() + memory.loading.size()};
  }
  for (const Piece piece : cut({m.data, m.bytes}, memory.piece_bytes))
    plan.steps.push_back({piece, !m.send, m.send});
  return std::make_unique<Passage>(channel, std::move(plan));
}

/// Takes messages that were not received; returns whether that was all. Long ones wait for their
/// sender, who may not answer any more.
bool drain(MPI_Comm comm) {
  constexpr int longest = 1 << 16, looks = 64;  // each look lets MPI get on
  std::vector<std::byte> thrown_away(longest);
  for (int look = 0; look < looks; ++look) {
    int found = 0, bytes = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    if (MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &found, &message, &status) != MPI_SUCCESS)
      return false;
    if (found == 0)
      continue;
    if (MPI_Get_count(&status, MPI_BYTE, &bytes) != MPI_SUCCESS || bytes > longest)
      return false;
    if (MPI_Mrecv(thrown_away.data(), bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE) != MPI_SUCCESS)
      return false;
  }
  return true;
}

class MpiTransport final : public Transport {
public:
  MpiTransport(MPI_Comm world,
      const schedule::Program& program,
      const LaneMemories& memory,
      const std::string& name)
      : Transport(name, rank_in(world, program), program),
        staged_(std::ranges::any_of(
            memory, [](const LaneMemory& m) { return m.moves.copier != nullptr; })) {
    // Communicators of our own, so that no foreign messages match ours; failures come back as
    // codes.
    for (std::size_t kind = 0; kind < comms_.size(); ++kind) {
      MPI_Comm& comm = comms_[kind].comm;
      check(MPI_Comm_dup(world, &comm), "MPI_Comm_dup");
      check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
      count_sends(comm, sent_, static_cast<schedule::Traffic>(kind));
    }
    channels_.reserve(memory.size());
    for (const LaneMemory& lane : memory)
      channels_.push_back({comms_, lane, cancelled_});
  }

  /// Two: the handshake of the next message passes while the one before it does. Staged ones share
  /// slots.
  int messages_at_once() const override { return staged_ ? 1 : 2; }

  void cancel() override { cancelled_.store(true); }

  /// After cancel() there may be messages that were not received: in a communicator that MPI
  /// makes later of what was freed, they would match others. One that cannot be drained is left to
  /// MPI.
  ~MpiTransport() override {
    if (!cancelled_.load())
      return;
    for (OwnComm& comm : comms_)
      if (!drain(comm.comm))
        comm.comm = MPI_COMM_NULL;
  }

private:
  [[nodiscard]] Started start_transfer(Lane lane, const Message& message) override {
    return advanced(make_message(channel(lane), message));
  }

  [[nodiscard]] Started start_transfer(
      Lane lane, Kind kind, const Membership& self, const Collective& c) override {
    constexpr int first_tag = 64;  // after those of messages, which are their payloads
    const int tag = first_tag + c.communicator * schedule::lanes + static_cast<int>(lane);
    const auto part = [&](Kind what) { return make_part(channel(lane), what, self, tag, c); };
    if (kind != Kind::all_reduce)
      return advanced(part(kind));
    return advanced(std::make_unique<InTurn>(part(Kind::reduce_scatter), part(Kind::all_gather)));
  }

  /// Does all that can be done without waiting.
  static Started advanced(Started operation) {
    operation->advance();
    return operation->done() ? nullptr : std::move(operation);
  }

  Channel& channel(Lane lane) { return channels_[index_of(lane)]; }

  bool staged_;
  std::atomic<bool> cancelled_{false};
  Comms comms_;
  std::vector<Channel> channels_;  ///< by schedule::Lane
};
}  // namespace

Memory through_slots(Piece pinned, std::size_t piece_bytes, Copier& copier) {
  constexpr std::size_t ahead = 4;
  const std::size_t half = pinned.size() / piece_bytes / 2;
  if (half < 2 * ahead)
    throw LogicError("{} bytes of pinned memory hold {} slots of {} bytes; 16 are needed",
        pinned.size(),
        pinned.size() / piece_bytes,
        piece_bytes);
  return {.piece_bytes = piece_bytes,
      .ahead = ahead,
      .window = ahead,
      .landing = pinned.first(half * piece_bytes),
      .loading = pinned.subspan(half * piece_bytes, half * piece_bytes),
      .copier = &copier};
}

std::unique_ptr<Transport> make_transport(MPI_Comm world,
    const schedule::Program& program,
    const LaneMemories& memory,
    const std::string& name) {
  return std::make_unique<MpiTransport>(world, program, memory, name);
}

std::unique_ptr<Transport> make_transport(
    MPI_Comm world, const schedule::Program& program, Piece staging) {
  constexpr std::size_t share = 2 * schedule::piece_bytes;
  const auto& actions = program.ranks[program.rank_of(rank_in(world, program))].actions;
  LaneMemories memories;
  for (const auto& row : schedule::table_of<Lane>) {
    const Lane lane = row.value;
    Memory& sums = memories[index_of(lane)].sums;
    sums.ahead = 2;
    const bool reduces = std::ranges::any_of(
        actions, [&](const schedule::Action& a) { return a.lane == lane && is_reducing(a.kind); });
    if (!reduces)
      continue;
    if (staging.size() < share)
      throw LogicError("{} bytes of staging memory are left for lane {}, which needs {}",
          staging.size(),
          row.name,
          share);
    sums.landing = staging.first(share);
    staging = staging.subspan(share);
  }
  return make_transport(world, program, memories, "mpi");
}
}  // namespace minitaw::comm::mpi
