// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>
#include "topology/groups.hpp"

/// Who shares which memory.
namespace minitaw::app {
struct Shortage {
  std::string pool;  ///< "node 0", "device of rank 3", "rank 2"
  std::uint64_t needed = 0, bytes = 0;
};

/// Memory by the ranks that take from it: each has its own where the user says how much, else those
/// of a device, or of a node, share what is free there.
class MemoryPools {
public:
  /// By rank: `uuids` of devices (empty: the rank computes on its node) and bytes that it finds
  /// `free`. Of those who share, the least counts. `allowed`: each rank has so many, whatever is
  /// free.
  MemoryPools(const topology::Groups& nodes,
      const std::vector<std::string>& uuids,
      const std::vector<std::uint64_t>& free,
      std::optional<std::uint64_t> allowed);
  /// The first pool that has less than its ranks need; nothing if all have enough. `needed`: bytes
  /// of the first ranks. `beside`: bytes more for rank 0; `alone`: what its pool needs at least.
  [[nodiscard]] std::optional<Shortage> shortage(const std::vector<std::uint64_t>& needed,
      std::uint64_t beside = 0,
      std::uint64_t alone = 0) const;

private:
  struct Pool {
    std::string name;
    std::uint64_t bytes = UINT64_MAX;
  };

  std::vector<Pool> pools_;
  std::vector<std::size_t> pool_of_rank_;
};
}  // namespace minitaw::app
