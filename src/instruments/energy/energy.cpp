// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/energy/energy.hpp"
#include <fmt/ranges.h>
#include <numeric>
#include <set>
#include "comm/mpi/mpi.hpp"

namespace minitaw::energy {
namespace {
using comm::mpi::rank_in, comm::mpi::size_of;

/// Returns what the meters of all ranks read; if some are unavailable, why the first of them is.
std::string joined(const std::vector<std::string>& sources) {
  for (const std::string& source : sources)
    if (source.starts_with("unavailable"))
      return source;
  return fmt::format("{}", fmt::join(std::set(sources.begin(), sources.end()), ", "));
}
}  // namespace

void Energy::before_step(int step) {
  if (step == 0)
    before_ = meter_.joules();
}

void Energy::after_step(int /*step*/) {
  used_ = meter_.joules() - before_;
}

void Energy::after_case(const harness::RunningCase& running, CaseResult& result) {
  collect(running.comm, result);
}

void Energy::collect(MPI_Comm comm, CaseResult& result) const {
  const int ranks = size_of(comm);
  const topology::Groups nodes = nodes_.within(0, ranks);
  const int sharers = meter_.of_node() ? nodes.size(nodes.group_of(rank_in(comm))) : 1;
  // A counter that stands still, or was set back, has counted nothing.
  const double mine = used_ > 0 ? used_ / sharers : CaseResult::unknown;
  const std::vector<double> all = comm::mpi::gather(mine, comm, "gathering energies of ranks");
  const std::string source =
      joined(comm::mpi::gather_lists(meter_.source(), comm, "gathering sources of energies"));
  const double sum = std::accumulate(all.begin(), all.end(), 0.0);
  const double tokens = tokens_of_step(result.asked) * std::ssize(result.seconds);
  result.found.emplace_back("energy_source", source);
  result.found.emplace_back("energy", sum);
  result.found.emplace_back("energy_per_token", sum / tokens);
}
}  // namespace minitaw::energy
