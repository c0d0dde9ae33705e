#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/transport.hpp"
#include "schedule/account.hpp"

namespace minitaw::comm::nccl {

/// Bytes that one rank has sent. NCCL does not say which way a collective goes, so its bytes are those that
/// the rule of schedule/account.hpp gives for the call. May be used by several threads.
class Counters {
public:
  Counters(int rank, int ranks);
  void add_message(int peer, schedule::Traffic traffic, std::uint64_t bytes) { add(peer, traffic, bytes); }
  /// `ring` are the members in ring order, among them this rank.
  void add_collective(schedule::Kind kind, std::span<const int> ring, const Collective& collective);

  [[nodiscard]] schedule::ByteMatrix matrix() const;
  void reset();

private:
  void add(int peer, schedule::Traffic traffic, std::uint64_t bytes);

  int rank_, ranks_;
  std::vector<std::atomic<std::uint64_t>> cells_;  ///< [peer][traffic]
};

}  // namespace minitaw::comm::nccl
