#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "comm/error.hpp"
#include "schedule/account.hpp"
#include "schedule/program.hpp"

namespace minitaw::comm {

/// One side of a point-to-point message.
struct Message {
  bool send = false;  ///< else receive
  int peer = -1;      ///< global rank
  schedule::Payload payload = schedule::Payload::none;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

/// What a reduction adds.
enum class Scalar : std::uint8_t { fp32, bf16 };

/// A collective on one communicator of the program.
struct Collective {
  int communicator = -1;
  int root = -1;  ///< global rank, for broadcast and reduce
  schedule::Payload payload = schedule::Payload::none;
  Scalar scalar = Scalar::fp32;
  std::byte* data = nullptr;
  std::int64_t elements = 0;  ///< of the whole buffer
};

/// Moves the buffers of one rank. One object per rank; each lane is driven by one thread, and the two
/// communication lanes may be active at once. Calls return when this rank's part is complete (buffers sent
/// may be reused, buffers received hold the data), or, if on_stream(), when it is enqueued on the lane's
/// device queue, which completes it. A failure throws comm::Error, a cancelled wait comm::Cancelled, and a
/// call that the program cannot mean (no such communicator, not a member of it, the compute lane) LogicError.
///
/// Matching: messages between two ranks match in order per lane and payload; collectives match in order per
/// communicator and lane.
///
/// Slices are those of comm/slices.hpp: equal if the members divide the elements, else the last ones are
/// shorter. On a communicator of one member every collective does nothing.
class Transport {
public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  [[nodiscard]] virtual int rank() const = 0;
  /// True if calls return as soon as their work is on the lane's device queue, false if they return when it
  /// is complete.
  [[nodiscard]] virtual bool on_stream() const { return false; }

  using Received = std::function<void()>;
  /// All messages of a batch, started together. `received` is called, at most once, when all that the batch
  /// receives is there, if the transport learns that while it still sends.
  virtual void exchange(schedule::Lane lane, std::span<const Message> batch, const Received& received) = 0;
  void exchange(schedule::Lane lane, std::span<const Message> batch) { exchange(lane, batch, {}); }
  /// The root's buffer to every member.
  virtual void broadcast(schedule::Lane lane, const Collective& collective) = 0;
  /// Sum over the members into the root's buffer; the others' buffers are only read.
  virtual void reduce(schedule::Lane lane, const Collective& collective) = 0;
  /// Slice i of the buffer goes from member i to everyone, in place.
  virtual void all_gather(schedule::Lane lane, const Collective& collective) = 0;
  /// Member i ends with the sum of everyone's slice i, in place; the other slices are left undefined.
  virtual void reduce_scatter(schedule::Lane lane, const Collective& collective) = 0;
  /// Sum over the members everywhere, in place; any number of elements.
  virtual void all_reduce(schedule::Lane lane, const Collective& collective) = 0;

  /// Bytes this rank has sent, to whom and of which kind, since the last reset; counted where they are handed
  /// to the network library.
  [[nodiscard]] virtual schedule::ByteMatrix sent() const = 0;
  virtual void reset_counters() = 0;
  /// Throws comm::Error if a call that has returned is known to have failed since. Called from another thread
  /// (the watchdog), at any time.
  virtual void poll() {}
  /// Whether the rank can do nothing but wait for what is moved, so that its cores are free for waits that
  /// answer at once. Called by the thread that computes.
  virtual void hurry(bool) {}
  /// Makes every wait, now and later, end with comm::Cancelled within a millisecond. Called from another
  /// thread (the watchdog); afterwards the transport only serves to be destroyed.
  virtual void cancel() = 0;
};

}  // namespace minitaw::comm
