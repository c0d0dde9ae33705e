#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include "schedule/account.hpp"
#include "schedule/program.hpp"

namespace minitaw::comm {

/// A call of the network library failed, or a message was not what both sides had agreed on.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A wait was ended by Transport::cancel().
struct Cancelled : std::runtime_error {
  Cancelled() : std::runtime_error("communication was cancelled") {}
};

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

/// A transfer under way. Whoever started it advances it until it is done, and destroys it before the
/// transport; before it is done only after an error or cancel(): buffers may still be in use then.
class Operation {
public:
  Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  virtual ~Operation() = default;

  /// Does a part of what can be done without waiting for another rank; returns whether there was anything to
  /// do. Throws what a wait would throw: Error, and Cancelled after cancel().
  virtual bool advance() = 0;
  [[nodiscard]] virtual bool done() const = 0;
};

/// Moves the buffers of one rank. One object per rank. A lane has one operation at a time, but for messages
/// (see messages_at_once()); those of different
/// lanes are independent; one thread may drive many lanes, but only one thread at a time drives a lane. An
/// operation is done when this rank's part is complete (buffers sent may be reused, buffers received hold the
/// data). If on_stream(), start() puts it on the lane's device queue, which completes it. A failure throws
/// comm::Error, a cancelled wait comm::Cancelled, and a call that the program cannot mean (no such
/// communicator, not a member of it, the compute lane) LogicError.
///
/// Matching: messages from one rank to another match in order per payload, whatever their lanes, so that what
/// leaves on one lane may arrive on another. Messages of one payload to the same rank therefore must not be
/// under way on two lanes at once. Collectives match in order per communicator and lane. If on_stream(),
/// operands of one rank for another match in order whatever their payload, and so do gradients.
///
/// Slices are those of base/range.hpp: equal if the members divide the elements, else the last ones are
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

  /// How many batches of messages of one direction may be under way on a lane. All else is alone.
  [[nodiscard]] virtual int messages_at_once() const { return 1; }

  /// nullptr: there is nothing to wait for, as always if on_stream().
  using Started = std::unique_ptr<Operation>;
  /// All messages of a batch, started together. Keeps nothing of `batch` but the buffers.
  [[nodiscard]] virtual Started start(schedule::Lane lane, std::span<const Message> batch) = 0;
  /// A collective of a kind that is named below.
  [[nodiscard]] virtual Started start(schedule::Lane lane, schedule::Kind kind,
                                      const Collective& collective) = 0;

  // Start and wait.
  void exchange(schedule::Lane lane, std::span<const Message> batch) { finish(start(lane, batch)); }
  /// The root's buffer to every member.
  void broadcast(schedule::Lane lane, const Collective& collective) {
    finish(start(lane, schedule::Kind::broadcast, collective));
  }
  /// Sum over the members into the root's buffer; the others' buffers are only read.
  void reduce(schedule::Lane lane, const Collective& collective) {
    finish(start(lane, schedule::Kind::reduce, collective));
  }
  /// Slice i of the buffer goes from member i to everyone, in place.
  void all_gather(schedule::Lane lane, const Collective& collective) {
    finish(start(lane, schedule::Kind::all_gather, collective));
  }
  /// Member i ends with the sum of everyone's slice i, in place; the other slices are left undefined.
  void reduce_scatter(schedule::Lane lane, const Collective& collective) {
    finish(start(lane, schedule::Kind::reduce_scatter, collective));
  }
  /// Sum over the members everywhere, in place; any number of elements.
  void all_reduce(schedule::Lane lane, const Collective& collective) {
    finish(start(lane, schedule::Kind::all_reduce, collective));
  }

  /// Bytes this rank has sent, to whom and of which kind, since the last reset.
  [[nodiscard]] virtual schedule::ByteMatrix sent() const = 0;
  /// How sent() knows: "counted" where bytes are handed to the network library, or "by formula" where the
  /// library does not tell which way a collective goes, so that the plan's own rule gives its bytes.
  [[nodiscard]] virtual const char* bytes_source() const { return "counted"; }
  virtual void reset_counters() = 0;
  /// Throws comm::Error if a call that has returned is known to have failed since. Called from another thread
  /// (the watchdog), at any time.
  virtual void poll() {}
  /// Makes every wait, now and later, end with comm::Cancelled within a millisecond. Called from another
  /// thread (the watchdog); afterwards the transport only serves to be destroyed.
  virtual void cancel() = 0;

protected:
  /// Advances an operation to its end.
  virtual void wait(Operation& operation) {
    while (!operation.done()) operation.advance();
  }

private:
  void finish(const Started& started) {
    if (started != nullptr) wait(*started);
  }
};

/// Transport of a job of one rank: every collective has one member and leaves the data as it is. A message
/// has nowhere to go and throws LogicError.
class SoloTransport final : public Transport {
public:
  [[nodiscard]] int rank() const override { return 0; }

  [[nodiscard]] Started start(schedule::Lane lane, std::span<const Message> batch) override;
  [[nodiscard]] Started start(schedule::Lane, schedule::Kind, const Collective&) override { return nullptr; }

  [[nodiscard]] schedule::ByteMatrix sent() const override { return schedule::ByteMatrix(1); }
  void reset_counters() override {}
  void cancel() override {}
};

/// The communicator of that index; throws LogicError if there is none.
[[nodiscard]] const schedule::Communicator&
communicator_at(const std::vector<schedule::Communicator>& communicators, int index);

/// Place of a rank in a communicator's ring; throws LogicError if it is not a member.
[[nodiscard]] int member_index(const schedule::Communicator& communicator, int rank);

[[nodiscard]] std::size_t bytes_of(Scalar scalar);

/// target[i] += other[i] for `elements` values. bf16 adds in float and rounds to nearest even. Buffers must
/// be aligned to the scalar and must not overlap.
void add(Scalar scalar, std::byte* target, const std::byte* other, std::int64_t elements);

}  // namespace minitaw::comm
