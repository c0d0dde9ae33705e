// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/energy/energy.hpp"
#include <fmt/ranges.h>
#include <numeric>
#include <set>
#include "comm/mpi/mpi.hpp"
#include "record/provenance.hpp"

namespace minitaw::energy {
namespace {
using comm::mpi::rank_in, comm::mpi::size_of;
constexpr double none = std::numeric_limits<double>::quiet_NaN();

/// Returns what the meters of all ranks read; if some are unavailable, why the first of them is.
std::string joined(const std::vector<std::string>& sources) {
  for (const std::string& source : sources)
    if (source.starts_with("unavailable"))
      return source;
  return fmt::format("{}", fmt::join(std::set(sources.begin(), sources.end()), ", "));
}

record::Cells columns(const CaseResult& result) {
  const auto source = result.values_of<std::string>("energy_source");
  const auto joules = result.values_of<double>("rank_energy");
  const double sum = joules.empty() ? none : std::accumulate(joules.begin(), joules.end(), 0.0);
  const double tokens = tokens_of_step(result.settings) * result.seconds.size();
  return {{"energy_source", source.empty() ? "unavailable" : source.front()},
      {"energy", sum},
      {"energy_per_token", sum / tokens}};
}
}  // namespace

void StepMeter::before_step(int step) {
  if (step == 0)
    before_ = meter_.joules();
}

void StepMeter::after_step(int /*step*/) {
  used_ = meter_.joules() - before_;
}

void StepMeter::after_case(const harness::RunningCase& running, CaseResult& result) {
  collect(running.comm, result);
}

void StepMeter::collect(MPI_Comm comm, CaseResult& result) const {
  const int ranks = size_of(comm);
  const topology::Groups nodes = nodes_.within(0, ranks);
  const int sharers = meter_.of_node() ? nodes.size(nodes.group_of(rank_in(comm))) : 1;
  // A counter that stands still, or was set back, has counted nothing.
  const double mine = used_ > 0 ? used_ / sharers : none;
  const std::vector<double> all = comm::mpi::gather(mine, comm, "gathering energies of ranks");
  const std::string source = joined(comm::mpi::gather_texts(meter_.source(), comm));
  result.found.push_back(record::entry("energy_source", source));
  result.found.push_back({.path = "rank_energy",
      .units = "J",
      .axes = "repetition, rank",
      .values = all,
      .shape = {1, static_cast<std::size_t>(ranks)}});
}

std::unique_ptr<harness::CaseListener> Energy::listen(const harness::RunningCase& /*running*/) {
  return std::make_unique<StepMeter>(meter_, nodes_);
}

record::Extension extension() {
  return {.columns = columns, .join = {}};
}
}  // namespace minitaw::energy
