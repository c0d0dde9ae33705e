// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <array>
#include <string>
#include "comm/transport.hpp"

namespace minitaw::comm::nccl {
/// The NCCL functions that the transport uses. AMD's RCCL has them under the same names. Queues
/// are streams as void pointers: the transport needs no header of a vendor, and is tested without a
/// device. Every function throws comm::Error with NCCL's message if it fails.

using Queue = void*;
using UniqueId = std::array<std::byte, 128>;

/// Unit of a count: bytes of messages, or elements that can be added.
enum class Type : std::uint8_t { bytes, fp32, bf16 };

/// A message or collective. It is in place where NCCL expects it to be: `from` equal to `to`, but
/// for all_gather to + rank * count and for reduce_scatter, the other way round, to == from + rank
/// * count.
struct Call {
  schedule::Kind kind;
  const std::byte* from;
  std::byte* to;
  std::size_t count;  ///< of all_gather and reduce_scatter: of a share
  Type type;
  int peer = -1;  ///< or root; rank of the communicator
};

/// One rank's end of an NCCL communicator. Calls return when they are taken note of; it must be
/// ready() again before its next call or group. Not for two threads at once. The destructor aborts
/// one that was not close()d.
class Communicator {
public:
  Communicator& operator=(Communicator&&) = delete;
  virtual ~Communicator() = default;

  /// Returns whether all calls are complete or on their device queue.
  virtual bool ready() = 0;
  /// Collective over the communicator: ranks of equal colour get a communicator of theirs, ordered
  /// by key. When this one is ready, wait for the new one; with a negative colour it will never be,
  /// and is dropped.
  virtual std::unique_ptr<Communicator> split(int colour, int key) = 0;

  virtual void issue(const Call& call, Queue queue) = 0;
  /// Begins the orderly end, on all ranks; ready() says when it is over.
  virtual void close() = 0;
  /// Stops what is under way, before destruction. Abort all of a rank in one group: they may wait
  /// for each other.
  virtual void abort() = 0;
};

class Api {
public:
  virtual ~Api() = default;

  virtual UniqueId unique_id() = 0;
  /// Collective over `ranks` ranks that know the same id.
  virtual std::unique_ptr<Communicator> init(int ranks, const UniqueId& id, int rank) = 0;
  /// Calls in between are one operation: they progress together. Of one thread; must balance.
  virtual void group_start() = 0;
  virtual void group_end() = 0;
};

/// NCCL itself, where MINITAW_HAVE_NCCL. Communicators do not block: calls that wait can be aborted
/// at any time.
Api& library();
/// "2.28.9", of the library that is loaded.
std::string library_version();
}  // namespace minitaw::comm::nccl
