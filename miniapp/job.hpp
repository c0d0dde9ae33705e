#pragma once

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/mpi/mpi.hpp"
#include "deck/deck.hpp"
#include "engine/case_runner.hpp"
#include "record/provenance.hpp"
#include "topology/devices.hpp"
#include "topology/system.hpp"
#include "verb.hpp"

namespace CLI {
class App;
}
namespace minitaw::app {

/// What the command line says about the job as a whole.
struct JobFlags {
  double watchdog = 300;  ///< seconds without progress after which a step is given up
  bool share_devices = false;
  bool timeline = false;  ///< results keep that of a step
  bool hosts = false;     ///< host names are shown and kept
  std::string memory;     ///< that each rank may take, "20G"; empty: what is free
};
void add_job_flags(CLI::App& verb, JobFlags& flags);

/// What the verbs that compute have in common: MPI and Kokkos from construction to destruction, where the
/// ranks are, and a job that executes cases. One object per process.
class MpiJob {
public:
  MpiJob(int& argc, char**& argv, const JobFlags& flags);

  /// The deck as rank 0 reads it, the same on every rank; every rank throws if it cannot be used.
  [[nodiscard]] deck::Deck read(const DeckOptions& deck) const;

  [[nodiscard]] bool speaks() const { return environment_.rank() == 0; }
  [[nodiscard]] engine::CaseRunner& job() { return job_; }
  [[nodiscard]] const topology::Job& place() const { return place_; }
  [[nodiscard]] const record::HostNames& hosts() const { return hosts_; }
  [[nodiscard]] const std::vector<record::RankPlace>& ranks() const { return ranks_; }
  [[nodiscard]] std::string map_text() const { return record::map_text(ranks_, hosts_); }
  /// Of a record: what this process knows, with hosts, nodes, cores, devices, processors and systems of all
  /// ranks, and what the program was built with.
  [[nodiscard]] record::Provenance provenance(const deck::Deck& deck,
                                              const std::vector<std::string>& arguments) const;
  [[nodiscard]] int threads() const { return threads_; }
  /// Identity of the device of each rank of the job; empty on a host.
  [[nodiscard]] const std::vector<std::string>& device_uuids() const { return device_uuids_; }
  /// Bytes that each rank may take, if the user said so.
  [[nodiscard]] std::optional<std::uint64_t> memory() const;
  /// Seconds without progress after which a step is given up.
  [[nodiscard]] double watchdog() const { return flags_.watchdog; }

private:
  comm::mpi::Environment environment_;
  topology::Job place_;
  int threads_;
  topology::Device device_;  ///< index -1: none
  JobFlags flags_;
  Kokkos::ScopeGuard kokkos_;
  record::HostNames hosts_;
  std::vector<std::string> device_uuids_;  ///< by rank, as the rest
  std::vector<record::RankPlace> ranks_;
  std::vector<std::string> cpus_, systems_;
  engine::CaseRunner job_;
};

/// Runs `work` inside MPI and Kokkos and turns what all ranks agree on into an exit code, told by rank 0
/// alone. What only one rank knows ends the job, because the others may wait for it.
[[nodiscard]] int in_job(const Invocation& invocation, const JobFlags& flags,
                         const std::function<int(MpiJob&)>& work);

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
