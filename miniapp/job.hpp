// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <Kokkos_Core.hpp>
#include "comm/mpi/mpi.hpp"
#include "engine/watchdog.hpp"
#include "harness/case_runner.hpp"
#include "record/provenance.hpp"
#include "topology/devices.hpp"
#include "topology/system.hpp"
#include "verb.hpp"

namespace minitaw::app {
struct JobFlags {
  /// Seconds without progress after which a step is given up.
  double watchdog = engine::default_stall_limit.count();
  bool share_devices = false;
  bool timeline = false;                ///< results keep the timeline of a step
  bool hosts = false;                   ///< host names are shown and kept
  std::optional<std::uint64_t> memory;  ///< bytes that each rank may take; none: what is free
};

void add_job_flags(CLI::App& verb, JobFlags& flags);

/// The machine as the ranks of a job see it, before Kokkos starts.
struct Site {
  topology::Placement place;
  int threads = 1;
  record::HostNames hosts{};
  topology::Device device{};                 ///< of this rank; index -1: none
  std::vector<std::string> uuids{};          ///< on rank 0: of each rank's device; empty on a host
  bool shared_devices = false;               ///< some ranks use the same device
  std::vector<topology::RankPlace> ranks{};  ///< on rank 0
  int adapters = 0;                          ///< of the node that has fewest
  std::vector<std::string> remarks{};        ///< on rank 0: sentences on threads and cores
};

/// A job that computes: Kokkos, the placement of its ranks, the runner of cases. One per process.
struct MpiJob : Site {
  /// Records why a job that stands still ends. Called on every rank.
  using Record = std::function<void(const std::string& reason)>;

  /// Collective: every rank throws if one of them has no device.
  MpiJob(
      const comm::mpi::Environment& environment, engine::Watchdog& watchdog, const JobFlags& flags);
  /// The deck as rank 0 reads it, the same on every rank. Every rank throws if it cannot be used,
  /// or if a rank has another file than rank 0 where the deck names one.
  deck::Deck read(const DeckOptions& deck) const;

  bool is_root() const { return environment.rank() == 0; }

  /// harness::agree() in this job.
  void agree(const std::function<void()>& work) const;

  /// Executes `work` on rank 0 and returns its result on every rank. Every rank throws if it fails.
  /// Collective.
  template <class Work>
  static auto on_root(const Work& work) {
    decltype(work()) result{};
    static_assert(std::is_trivially_copyable_v<decltype(result)>, "it travels as bytes");
    harness::agree_on_root(MPI_COMM_WORLD, [&] { result = work(); });
    comm::mpi::check_mpi(MPI_Bcast(&result, sizeof result, MPI_BYTE, 0, MPI_COMM_WORLD),
        "sharing what rank 0 has decided");
    return result;
  }

  /// Where ranks run, and remarks.
  std::string map_text() const;

  /// Text above a table: version, ranks, settings, shaped links, notes.
  std::string head_text(const deck::Deck& deck) const;

  /// For a record: hosts, cores, devices and processors of all ranks, libraries of the build.
  record::Provenance provenance(
      const deck::Deck& deck, const std::vector<std::string>& arguments) const;

  /// Sets what is called before the watchdog ends the job.
  void record_by(Record record = [](const std::string&) {});

  const JobFlags flags;
  const comm::mpi::Environment& environment;
  engine::Watchdog& watchdog;
  const Kokkos::ScopeGuard kokkos;
  const harness::Instruments instruments;
  harness::CaseRunner runner;
};

/// A verb that all ranks of a job execute.
class JobVerb : public Verb {
public:
  using Verb::Verb;
  /// Executes work() inside MPI and Kokkos. An exception that all ranks agree on is printed by rank
  /// 0, and all return its exit code. Any other is printed by its rank, which aborts the job at
  /// once with that code: others may wait for it.
  int execute(const Invocation& invocation) final;

protected:
  JobFlags flags_;

private:
  virtual void before_mpi() {}

  /// Returns the exit code.
  virtual int work(const Invocation& invocation, MpiJob& mpi) = 0;
};
}  // namespace minitaw::app
