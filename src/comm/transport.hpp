// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <atomic>
#include <memory>
#include <stdexcept>
#include <utility>
#include "base/error.hpp"
#include "schedule/account.hpp"

namespace minitaw::comm {
/// A call of the network library failed, or a message was not what both sides had agreed on.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Message {
  bool send = false;  ///< else receive
  int peer = -1;      ///< rank of the job
  schedule::Payload payload = schedule::Payload::none;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

struct Collective {
  int communicator = -1;
  int root = -1;  ///< rank of the job, for broadcast and reduce
  schedule::Payload payload = schedule::Payload::none;
  model::Dtype dtype = model::Dtype::fp32;  ///< of its elements
  std::byte* data = nullptr;
  std::int64_t elements = 0;  ///< of the whole buffer
};

/// A transfer under way. Its owner advances it until it is done and then destroys it, before the
/// transport. Only after an error may it be destroyed while its buffers are in use.
class Operation {
public:
  Operation& operator=(Operation&&) = delete;
  virtual ~Operation() = default;

  /// Does what needs no other rank; returns whether there was any. Throws Error.
  virtual bool advance() = 0;
  virtual bool done() const = 0;
};

struct Membership {
  const topology::Ranks* ranks;  ///< of the communicator
  int index;                     ///< of this rank in it
  int root;                      ///< index of the root; 0 where the kind has none

  int size() const { return static_cast<int>(ranks->size()); }
};

/// Bytes that one rank has sent, by peer and kind. May be used by several threads.
class SentBytes {
public:
  explicit SentBytes(std::size_t ranks) : cells_(ranks * schedule::traffic_kinds) {}

  void add(int peer, schedule::Traffic traffic, std::uint64_t bytes) {
    cells_[peer * schedule::traffic_kinds + static_cast<int>(traffic)].fetch_add(
        bytes, std::memory_order_relaxed);
  }

  std::vector<std::uint64_t> values() const { return {cells_.begin(), cells_.end()}; }

private:
  std::vector<std::atomic<std::uint64_t>> cells_;  ///< [peer][traffic]
};

/// Moves the buffers of one rank. One object per rank.
///
/// Lanes are independent of each other. A lane has one operation at a time, or several messages
/// (messages_at_once()). One thread may drive many lanes, but only one thread at a time drives a
/// lane. An operation is done when this rank's part is complete: buffers sent may be reused,
/// buffers received hold the data.
///
/// Errors: comm::Error if a call fails, and LogicError for a call that no program can mean: no such
/// communicator, not a member of it, the compute lane.
///
/// Matching: messages from one rank to another match in order per payload, whatever their lanes:
/// those of one payload must not be under way on two lanes at once. Collectives match in order per
/// communicator and lane. If on_stream(), all inputs from one rank to another match in order,
/// whatever their payload, and so do all gradients.
///
/// Shares are those of base/range.hpp. On a communicator of one member every collective does
/// nothing.
class Transport {
public:
  /// Keeps the program's communicators. `name` stands in results.
  Transport(std::string name, int rank, const schedule::Program& program);

  Transport& operator=(Transport&&) = delete;
  virtual ~Transport() = default;

  const std::string& name() const { return name_; }

  int rank() const { return rank_; }

  /// Returns whether start() puts an operation on the lane's device queue, which completes it.
  virtual bool on_stream() const { return false; }

  /// Returns how many messages of one direction may be under way on a lane. Collectives are always
  /// alone.
  virtual int messages_at_once() const { return 1; }

  /// An operation to be advanced; nullptr if there is nothing to wait for, as always if
  /// on_stream().
  using Started = std::unique_ptr<Operation>;
  [[nodiscard]] Started start(schedule::Lane lane, const Message& message);
  /// A collective, in place:
  /// - broadcast: the root's buffer to every member;
  /// - reduce: sum over the members into the root's buffer; the others' buffers are only read;
  /// - all_gather: share i of the buffer goes from member i to everyone;
  /// - reduce_scatter: member i ends with the sum of everyone's share i; the other shares are left
  /// undefined;
  /// - all_reduce: sum over the members everywhere; any number of elements.
  [[nodiscard]] Started start(
      schedule::Lane lane, schedule::Kind kind, const Collective& collective);

  /// Bytes handed to the network library so far, [to][schedule::Traffic].
  std::vector<std::uint64_t> sent() const { return sent_.values(); }

  /// Returns the source of sent(): "counted" by the calls of MPI themselves (comm/mpi/sends.hpp),
  /// or "by formula": NCCL hides the path of a collective, so that ring_send() gives its bytes.
  virtual const char* bytes_source() const { return "counted"; }

  /// Throws comm::Error if a call that has returned has failed since. The watchdog's thread calls
  /// it.
  virtual void poll() {}

protected:
  [[nodiscard]] virtual Started start_transfer(schedule::Lane lane, const Message& message) = 0;
  /// A collective of some elements among two members or more.
  [[nodiscard]] virtual Started start_transfer(schedule::Lane lane,
      schedule::Kind kind,
      const Membership& self,
      const Collective& collective) = 0;

  SentBytes sent_;

private:
  /// Throws LogicError if there is no such collective, communicator, member or root.
  Membership membership(schedule::Kind kind, const Collective& collective) const;

  std::string name_;
  int rank_;
  std::vector<schedule::Communicator> communicators_;  ///< in ranks of the job
};

/// Transport of a single rank: a collective has one member and changes nothing; a message throws
/// LogicError.
class SoloTransport final : public Transport {
public:
  explicit SoloTransport(const schedule::Program& program) : Transport("none", 0, program) {}

private:
  [[noreturn]] static Started refuse() {
    throw LogicError("a job of one rank was asked to talk to others");
  }

  [[nodiscard]] Started start_transfer(schedule::Lane, const Message&) override { return refuse(); }

  [[nodiscard]] Started start_transfer(
      schedule::Lane, schedule::Kind, const Membership&, const Collective&) override {
    return refuse();
  }
};

/// target[i] += other[i]; bf16 adds in float and rounds to nearest even. Buffers must be aligned
/// and not overlap.
void add(model::Dtype dtype, std::byte* target, const std::byte* other, std::int64_t elements);
}  // namespace minitaw::comm
