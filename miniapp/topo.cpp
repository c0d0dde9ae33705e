// SPDX-License-Identifier: BSD-3-Clause
#include <memory>
#include "cli/cli11.hpp"
#include "job.hpp"

namespace minitaw::app {
namespace {
int topo(const MpiJob& mpi) {
  if (mpi.is_root())
    write_stdout(fmt::format("{}# groups        = {}\n# adapters      = {} for each node\n{}",
        mpi.map_text(),
        mpi.place.nodes.text(),
        mpi.adapters,
        record::links_text(record::shaped_links())));
  return 0;
}
}  // namespace

void add_topo(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<JobFlags>();
  CLI::App* verb = app.add_subcommand(
      "topo", "print where the ranks of this job run; start it with mpiexec or srun");
  verb->add_flag("--hosts", options->hosts, "print the names of the hosts");
  verb->callback([&invocation, options] { invocation.code = in_job(invocation, *options, topo); });
}
}  // namespace minitaw::app
