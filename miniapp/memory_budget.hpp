#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "deck/settings.hpp"
#include "mpi_job.hpp"

namespace minitaw::app {

/// What each rank may take of which memory: ranks of a node share its memory, ranks that share a device that
/// device's.
class MemoryBudget {
public:
  /// Collective. `per_rank` bytes each rather than what is free now.
  MemoryBudget(const MpiJob& mpi, std::optional<std::uint64_t> per_rank);

  /// "needs 12.5 of 8.03 GiB (node 0)"; empty if the planned memory of the case fits, libraries included.
  [[nodiscard]] std::string reason_against(const deck::Case& c) const;

private:
  struct Pool {
    std::string name;
    std::uint64_t bytes = 0;
  };
  std::vector<Pool> pools_;
  std::vector<int> pool_of_rank_;
};

}  // namespace minitaw::app
