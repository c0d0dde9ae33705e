#pragma once

#include <span>
#include <vector>

#include "base/range.hpp"
#include "comm/nccl/api.hpp"
#include "comm/nccl/communicators.hpp"
#include "comm/transport.hpp"

namespace minitaw::comm::nccl {

/// This rank's place in a collective, and the queue that executes it.
struct Membership {
  Communicator& communicator;
  int members = 0;
  int index = 0;
  Queue queue = nullptr;
};

[[nodiscard]] inline Membership membership_of(const Member& member, Queue queue) {
  return {*member.communicator, static_cast<int>(member.team.ranks.size()), member.index, queue};
}

/// The buffer of a collective, as NCCL sees it.
struct Buffer {
  std::byte* data = nullptr;
  std::int64_t elements = 0;
  Scalar scalar = Scalar::fp32;

  [[nodiscard]] Type type() const { return scalar == Scalar::fp32 ? Type::fp32 : Type::bf16; }
  [[nodiscard]] std::byte* at(std::int64_t element) const;
  [[nodiscard]] std::size_t count() const { return static_cast<std::size_t>(elements); }
};

/// Whether all members' slices are equal, so that one call of NCCL's does it.
[[nodiscard]] inline bool even(const Membership& self, const Buffer& buffer) {
  return buffer.elements % self.members == 0;
}

// The operations, for two members and more and within a group; the contract is that of comm::Transport.
// `root` is a place in the ring.
void broadcast(const Membership& self, const Buffer& buffer, int root);
void reduce(const Membership& self, const Buffer& buffer, int root);
void all_gather(const Membership& self, const Buffer& buffer, int root);
void reduce_scatter(const Membership& self, const Buffer& buffer, int root);
void all_reduce(const Membership& self, const Buffer& buffer, int root);

/// The messages of a batch, each with its communicator: one group, on one device queue. NCCL has no tags:
/// messages from one rank to another match in order alone, so both sides put theirs in the order of their
/// payloads first.
class Batch {
public:
  /// Looks everything up, so that nothing is issued of a batch that the program cannot mean; messages of no
  /// bytes are left out.
  Batch(std::span<const Message> messages, int rank, const Colours& colours,
        const Communicators& communicators);

  /// All that it uses, each once.
  [[nodiscard]] const std::vector<Communicator*>& communicators() const { return communicators_; }
  /// Within a group.
  void issue(Queue queue) const;

private:
  struct StagedTransfer {
    Message message;
    Communicator* communicator;
    int peer;  ///< there
  };
  std::vector<StagedTransfer> passages_;
  std::vector<Communicator*> communicators_;
};

/// Bytes of device memory that warm_up() needs.
[[nodiscard]] std::size_t scratch_bytes(const schedule::Program& program);

/// A few bytes to and from every peer that the program has, communicator by communicator, and every
/// collective that it calls on each, in one order on all ranks: NCCL connects two ranks when they first talk,
/// waiting for each other, and that is not to happen in a step. `scratch` is in use until the queues are
/// idle.
void warm_up(const schedule::Program& program, int rank, const Colours& colours,
             const Communicators& communicators, Launcher& launcher, std::span<const Queue> queues,
             std::span<std::byte> scratch);

}  // namespace minitaw::comm::nccl
