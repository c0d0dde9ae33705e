// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "job.hpp"
#include "topology/memory.hpp"

/// Decides whether a case fits into memory: what it needs, which ranks share a memory, and the
/// sentence that refuses it. topology/memory.hpp measures what there is. Sizes are bytes.
namespace minitaw::app {
/// The need of a rank.
struct Need {
  std::uint64_t step = 0;    ///< buffers of the step, exact
  std::uint64_t beside = 0;  ///< estimate of what process and libraries take beside them

  std::uint64_t total() const { return step + beside; }
};

/// Returns the need of each rank of the program on a host; other replicas need the same. It is
/// buffers, what the process takes for the case, and the BLAS of so many threads.
std::vector<Need> needs_on_host(const PlannedCase& plan, int threads);
/// The same on a device: the arena and what libraries take; not driver and NCCL.
std::vector<Need> needs_on_device(const PlannedCase& plan);

/// The need of rank 0 for a reference: on a device its arena, on a host also the gathered and
/// compared tensors.
struct ReferenceMemory {
  std::uint64_t alone = 0;   ///< while the reference is executed, before the case has any memory
  std::uint64_t beside = 0;  ///< while the case is executed, beside its own
};

/// Memory for the check of a first step by harness::References.
ReferenceMemory memory_of_check(const Case& c);
/// Memory for CaseRunner::verify() with so many steps and both references.
ReferenceMemory memory_of_verify(const Case& c, int steps);

/// Memory by the ranks that take from it: each has its own where the user says how much, else those
/// of a device, or of a node, share what is free there.
class MemoryPools {
public:
  /// By rank: `uuids` of devices (empty: the rank computes on its node) and what it finds `free`.
  /// Of those who share, the least counts. `allowed`: each rank has so many bytes, whatever is
  /// free.
  MemoryPools(const topology::Groups& nodes,
      const std::vector<std::string>& uuids,
      const std::vector<topology::FreeMemory>& free,
      std::optional<std::uint64_t> allowed);
  /// "needs 12.5 GiB of 8.03 GiB (node 0)", of the first pool that has less than its ranks need,
  /// and the file that limits it; empty if all have enough. `needed`: of the first ranks.
  [[nodiscard]] std::string reason_against(
      const std::vector<std::uint64_t>& needed, const ReferenceMemory& reference = {}) const;

private:
  struct Pool {
    std::string name;  ///< "node 0", "device of rank 3", "rank 2"
    topology::FreeMemory free{UINT64_MAX};
  };

  std::vector<Pool> pools_;
  std::vector<std::size_t> pool_of_rank_;
};

/// The memory that the ranks of a job may take.
class MemoryBudget {
public:
  /// It is what the user allows each rank, or what is free now; rank 0 knows it. Collective.
  explicit MemoryBudget(MpiJob& mpi);
  /// Returns on rank 0 why the case does not fit, with libraries and a reference on this rank;
  /// empty if it does.
  [[nodiscard]] std::string reason_against(
      const Case& c, const ReferenceMemory& reference = {}) const;

private:
  MpiJob& mpi_;
  std::uint64_t communicator_;  ///< of one communicator of NCCL, as measured at the start
  std::uint64_t process_;  ///< of a process on a host, where the user says how much it may have
  MemoryPools pools_;
};
}  // namespace minitaw::app
