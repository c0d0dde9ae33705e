#pragma once

#include <span>
#include <vector>

#include "comm/nccl/communicators.hpp"
#include "comm/transport.hpp"

namespace minitaw::comm::nccl {

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
  struct Passage {
    Message message;
    Communicator* communicator;
    int peer;  ///< there
  };
  std::vector<Passage> passages_;
  std::vector<Communicator*> communicators_;
};

}  // namespace minitaw::comm::nccl
