// SPDX-License-Identifier: BSD-3-Clause
#include <memory>
#include <nlohmann/json.hpp>
#include "cli/cli11.hpp"
#include "job.hpp"

namespace minitaw::app {
namespace {
struct TopoOptions {
  bool json = false;
  JobFlags job;
};

Json place_json(const MpiJob& mpi, const topology::RankPlace& place) {
  return {{"node", mpi.hosts.text(place.node)},
      {"cores", topology::cores_text(place.cores)},
      {"computes", place.unit},
      {"uuid", place.uuid},
      {"cpu", place.site.cpu},
      {"adapters", place.site.adapters}};
}

int topo(const Invocation& invocation, const TopoOptions& options, const MpiJob& mpi) {
  if (!mpi.is_root())
    return 0;
  const topology::Groups& nodes = mpi.place.nodes;
  const std::vector<std::string> shaped = record::shaped_links();
  if (options.json) {
    const auto place = [&](const topology::RankPlace& rank) { return place_json(mpi, rank); };
    write_json(invocation,
        {{"ranks", list_of(mpi.ranks, place)},
            {"groups", nodes.sizes()},
            {"adapters", mpi.adapters},
            {"shaped_links", shaped}});
  } else {
    write_stdout(fmt::format("{}# groups        = {}\n# adapters      = {} for each node\n{}",
        mpi.map_text(),
        nodes.text(),
        mpi.adapters,
        record::links_text(shaped)));
  }
  return 0;
}
}  // namespace

void add_topo(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<TopoOptions>();
  CLI::App* verb = app.add_subcommand(
      "topo", "print where the ranks of this job run; start it with mpiexec or srun");
  add_json(*verb, options->json);
  verb->add_flag("--hosts", options->job.hosts, "print the names of the hosts");
  verb->callback([&invocation, options] {
    invocation.code = in_job(
        invocation, options->job, [&](MpiJob& mpi) { return topo(invocation, *options, mpi); });
  });
}
}  // namespace minitaw::app
