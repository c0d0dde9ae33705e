#pragma once

#include <vector>

#include "comm/mpi/transport.hpp"

/// What the transport over MPI is made of.
namespace minitaw::comm::mpi {

/// MPI counts in int: longer messages travel in pieces of this size.
inline constexpr std::size_t largest_message = std::size_t{1} << 30;

/// `data` in pieces of at most `largest` bytes; none if it is empty. Both sides of a message cut alike, so
/// pieces need no header.
[[nodiscard]] std::vector<Piece> cut(Piece data, std::size_t largest);

/// One lane's end of the network. Used by one thread at a time. All lanes share the communicator; tags keep
/// apart what must not match.
struct Channel {
  MPI_Comm comm;
  LaneMemory memory;
  SentBytes& sent;
  const std::atomic<bool>& cancelled;

  void check_cancelled() const {
    if (cancelled.load(std::memory_order_relaxed)) throw Cancelled();
  }
};

/// MPI messages under way, of at most INT_MAX bytes each. They are taken as complete in the order in which
/// they were started, so that a look costs one test. What they read or write must live until then. On the way
/// out of an error, receives are withdrawn and sends are left to MPI.
class Requests {
public:
  explicit Requests(Channel& channel) : channel_(channel) {}
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;
  ~Requests();

  void send(int peer, int tag, schedule::Traffic traffic, std::span<const std::byte> data);
  void receive(int peer, int tag, Piece place);

  /// Whether there was an oldest open message and it is complete now; finish() goes on as long as there is.
  /// Throws Error if it failed or arrived with another length.
  bool finish_one();
  bool finish();

  [[nodiscard]] std::size_t started() const { return requests_.size(); }
  [[nodiscard]] std::size_t finished() const { return finished_; }
  [[nodiscard]] std::size_t open() const { return started() - finished(); }

private:
  struct Request {
    MPI_Request handle = MPI_REQUEST_NULL;
    bool receives = false;
    std::size_t bytes = 0;
  };

  Channel& channel_;
  std::vector<Request> requests_;
  std::size_t finished_ = 0;
};

/// All messages of a batch at once; the payload is the tag. Messages of no bytes do not travel.
///
/// On a staged lane every message gets slots of its own, so that none waits for another one: a peer may not
/// come to the first before it has had the last. Messages of equal payload to or from one rank follow each
/// other, since MPI matches them in order. Throws LogicError if the batch needs more slots than there are.
[[nodiscard]] std::unique_ptr<Operation> make_exchange(Channel& channel, std::span<const Message> batch);

/// This rank's part in a collective of two members and more, not begun.
[[nodiscard]] std::unique_ptr<Operation> make_collective(Channel& channel, schedule::Kind kind,
                                                         const Membership& member, int tag,
                                                         const Collective& collective);

}  // namespace minitaw::comm::mpi
