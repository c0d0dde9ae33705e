// SPDX-License-Identifier: BSD-3-Clause
#include "comm/mpi/passage.hpp"
#include <algorithm>
#include "comm/mpi/mpi.hpp"

namespace minitaw::comm::mpi {
namespace {
/// MPI messages of one direction under way between two ranks, of at most INT_MAX bytes each. They
/// are complete in the order of their start, so that a look costs one test. Their memory must live
/// until then. After an error, receives are withdrawn and sends are left to MPI.
class Requests {
public:
  enum class Way { send, receive };

  Requests(Way way, int peer, int tag, MPI_Comm comm)
      : way_(way),
        peer_(peer),
        tag_(tag),
        comm_(comm) {}

  Requests& operator=(Requests&&) = delete;

  ~Requests() {
    for (std::size_t k = finished_; k < requests_.size(); ++k) {
      MPI_Request& handle = requests_[k].handle;
      if (handle == MPI_REQUEST_NULL)
        continue;
      if (way_ == Way::receive)
        MPI_Cancel(&handle);
      MPI_Request_free(&handle);
    }
  }

  void start(Bytes data) {
    MPI_Request* const handle = &requests_.emplace_back(MPI_REQUEST_NULL, data.size()).handle;
    const int bytes = static_cast<int>(data.size());
    if (way_ == Way::send)
      check_mpi(MPI_Isend(data.data(), bytes, MPI_BYTE, peer_, tag_, comm_, handle), "MPI_Isend");
    else
      check_mpi(MPI_Irecv(data.data(), bytes, MPI_BYTE, peer_, tag_, comm_, handle), "MPI_Irecv");
  }

  /// Returns whether the oldest open message is complete now. Throws Error if it failed or has
  /// another length.
  bool finish_one() {
    if (open() == 0)
      return false;
    auto& [handle, expected] = requests_[finished_];
    int done = 0, bytes = 0;
    MPI_Status status;
    check_mpi(MPI_Test(&handle, &done, &status),
        way_ == Way::receive ? "MPI_Test of a receive" : "MPI_Test of a send");
    if (done == 0)
      return false;
    ++finished_;
    if (way_ == Way::send)
      return true;
    check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
    if (static_cast<std::size_t>(bytes) != expected)
      throw Error(fmt::format("a message from rank {} has {} bytes where {} were expected",
          status.MPI_SOURCE,
          bytes,
          expected));
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
    MPI_Request handle;
    std::size_t bytes;
  };

  Way way_;
  int peer_, tag_;
  MPI_Comm comm_;
  std::vector<Request> requests_;
  std::size_t finished_ = 0;
};

/// The send and the copy to the buffer that still read a slot, by their number; 0: none.
struct Readers {
  std::size_t send = 0, store = 0;
};

/// The memory that holds a piece: a slot, or a part of the buffer (no readers).
struct Place {
  Bytes memory;
  Readers* readers = nullptr;
};

/// Slots, used in turn: piece k has slot k modulo their number. Without slots, pieces stay in the
/// buffer.
class Slots {
public:
  Slots(Bytes memory, std::size_t slot_bytes)
      : memory_(memory),
        slot_bytes_(slot_bytes),
        readers_(memory.size() / slot_bytes) {}

  /// The place of piece k, which is `piece` of the buffer.
  Place at(std::size_t k, Bytes piece) {
    if (readers_.empty())
      return {piece};
    const std::size_t slot = k % readers_.size();
    return {memory_.subspan(slot * slot_bytes_, piece.size()), &readers_[slot]};
  }

private:
  Bytes memory_;
  std::size_t slot_bytes_;
  std::vector<Readers> readers_;  ///< of each slot
};

class Passage final : public Operation {
public:
  explicit Passage(Route route)
      : route_(std::move(route)),
        landing_(route_.landing, route_.piece_bytes),
        loading_(route_.loading, route_.piece_bytes),
        sends_(Requests::Way::send, route_.to, route_.tag, route_.comm),
        receives_(Requests::Way::receive, route_.from, route_.tag, route_.comm) {}

  /// If it is not over (another has failed), no copy reads or writes the buffer afterwards.
  ~Passage() override {
    if (done_ || route_.copier == nullptr)
      return;
    for (const Copier::Way way : {Copier::Way::load, Copier::Way::store})
      for (std::size_t queue = 0; queue < Copier::queues; ++queue)
        try {
          route_.copier->wait(way, queue);
        } catch (const std::exception&) {
          // a failed copy touches its buffer no more; the first failure is reported
        }
  }

  bool advance() override {
    bool moved = post_receives();
    moved |= start_loads();
    while (ready()) {
      execute(route_.steps[next_++]);
      moved = true;
      if (route_.sums || route_.copier != nullptr)
        break;  // that took time, and lanes share the thread
    }
    moved |= sends_.finish();
    if (done_ || next_ < route_.steps.size() || sends_.open() > 0)
      return moved;
    for (std::size_t k = 0; k < std::min(stores_, Copier::queues); ++k)
      wait_for(Copier::Way::store, stores_ - k);
    done_ = true;
    return true;
  }

  bool done() const override { return done_; }

private:
  bool post_receives() {
    const std::size_t before = receives_.started();
    for (; next_posted_ < route_.steps.size() && receives_.open() < route_.ahead; ++next_posted_) {
      const Step& step = route_.steps[next_posted_];
      if (!step.arrives)
        continue;
      const Place place = landing_.at(receives_.started(), step.piece);
      if (!vacate(place.readers))
        break;
      receives_.start(place.memory);
    }
    return receives_.started() > before;
  }

  bool start_loads() {
    if (route_.copier == nullptr)
      return false;
    const std::size_t before = loads_;
    for (; next_loaded_ < route_.steps.size() && loads_ < own_ + Copier::queues; ++next_loaded_) {
      const Step& step = route_.steps[next_loaded_];
      if (!route_.reads(step))
        continue;
      const Place place = loading_.at(loads_, step.piece);
      if (!vacate(place.readers))
        break;
      copy(Copier::Way::load, loads_++, place.memory, step.piece);
    }
    return loads_ > before;
  }

  /// Returns whether a slot may be written now: no send and no copy reads it any more.
  [[nodiscard]] bool vacate(Readers* readers) {
    if (readers == nullptr)
      return true;
    if (readers->send > sends_.finished())
      return false;
    if (readers->store > 0)
      wait_for(Copier::Way::store, readers->store);
    *readers = {};
    return true;
  }

  bool ready() {
    if (next_ == route_.steps.size())
      return false;
    const Step& step = route_.steps[next_];
    if (step.leaves && sends_.open() > route_.open_sends)
      return false;
    if (route_.reads(step) && route_.copier != nullptr && loads_ == own_)
      return false;
    return !step.arrives || receives_.finish_one();  // last: it is complete only once
  }

  void execute(const Step& step) {
    const Place place = !step.arrives ? take_own(step)
                        : route_.sums ? sum(arrived(step), take_own(step))
                                      : arrived(step);
    if (step.leaves) {
      sends_.start(place.memory);
      if (place.readers != nullptr)
        place.readers->send = sends_.started();
    }
    if (route_.keeps(step) && place.readers != nullptr) {
      place.readers->store = ++stores_;
      copy(Copier::Way::store, stores_, step.piece, place.memory);
    }
  }

  Place take_own(const Step& step) {
    if (route_.copier != nullptr)
      wait_for(Copier::Way::load, own_);
    return loading_.at(own_++, step.piece);
  }

  Place arrived(const Step& step) { return landing_.at(receives_.finished() - 1, step.piece); }

  Place sum(const Place& arrived, const Place& own) const {
    const bool in_buffer = own.readers == nullptr && route_.may_overwrite;
    const Place &target = in_buffer ? own : arrived, &other = in_buffer ? arrived : own;
    add(route_.dtype,
        target.memory.data(),
        other.memory.data(),
        static_cast<std::int64_t>(target.memory.size() / model::bytes_of(route_.dtype)));
    return target;
  }

  // Copies of one way, by their number, have the queues in turn.

  void copy(Copier::Way way, std::size_t number, Bytes to, Bytes from) {
    route_.copier->copy(way, number % Copier::queues, to, from);
  }

  void wait_for(Copier::Way way, std::size_t number) {
    route_.copier->wait(way, number % Copier::queues);
  }

  Route route_;
  Slots landing_, loading_;
  Requests sends_, receives_;
  std::size_t next_ = 0;         ///< step to execute
  std::size_t next_posted_ = 0;  ///< first step whose receive may still have to be posted
  std::size_t next_loaded_ = 0;  ///< first step whose own piece may still have to be fetched
  std::size_t loads_ = 0, own_ = 0, stores_ = 0;  ///< fetches begun; own pieces used; stores begun
  bool done_ = false;
};
}  // namespace

std::unique_ptr<Operation> make_passage(Route route) {
  return std::make_unique<Passage>(std::move(route));
}
}  // namespace minitaw::comm::mpi
