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
  /// Collective. What the user allows each rank, or what is free now.
  explicit MemoryBudget(const MpiJob& mpi);

  /// "needs 12.5 of 8.03 GiB (node 0)"; empty if the planned memory of the case fits, libraries included,
  /// with that of a reference on rank 0, if there is one.
  [[nodiscard]] std::string reason_against(const deck::Case& c,
                                           const engine::ReferenceMemory& reference = {}) const;

private:
  struct Pool {
    std::string name;
    std::uint64_t bytes = 0;
  };
  std::vector<Pool> pools_;
  std::vector<int> pool_of_rank_;
  bool shared_devices_;
  std::uint64_t communicator_;  ///< bytes of one of NCCL
};

}  // namespace minitaw::app
