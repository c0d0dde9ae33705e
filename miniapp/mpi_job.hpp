#pragma once

#include <Kokkos_Core.hpp>
#include <string>
#include <vector>

#include "comm/mpi/environment.hpp"
#include "deck/settings.hpp"
#include "engine/job.hpp"
#include "topology/detect.hpp"

namespace minitaw::app {

/// What the verbs that compute have in common: MPI and Kokkos from construction to destruction, where the
/// ranks are, and a job that plays cases. One object per process.
class MpiJob {
public:
  /// `watchdog`: seconds without progress after which a step is given up.
  MpiJob(int& argc, char**& argv, double watchdog);

  /// The deck as rank 0 reads it, the same on every rank; every rank throws if it cannot be used.
  [[nodiscard]] deck::Deck read(const std::string& path, const std::vector<std::string>& overrides) const;

  [[nodiscard]] bool speaks() const { return environment_.rank() == 0; }
  [[nodiscard]] engine::Job& job() { return job_; }
  [[nodiscard]] const topology::Job& place() const { return place_; }
  /// Host of each rank.
  [[nodiscard]] std::vector<std::string> hosts() const;
  /// "# rank 0 (group 0) on node1, 2 threads", a line per rank of the job; needs the groups of a case.
  [[nodiscard]] std::string map_text() const;
  [[nodiscard]] int threads() const { return threads_; }

private:
  comm::mpi::Environment environment_;
  topology::Job place_;
  int threads_;
  Kokkos::ScopeGuard kokkos_;
  engine::Job job_;
};

/// Version of the MPI library, one line.
[[nodiscard]] std::string mpi_version();
/// Version and back end of Kokkos.
[[nodiscard]] std::string kokkos_version();

}  // namespace minitaw::app
