// SPDX-License-Identifier: BSD-3-Clause
#include <memory>
#include <nlohmann/json.hpp>
#include "cli/cli11.hpp"
#include "instruments/links/links.hpp"
#include "instruments/verbs.hpp"
#include "job.hpp"

namespace minitaw::app {
namespace {
using links::Figure, links::Figures, topology::Groups;

struct TopoOptions {
  std::string groups;  ///< as given; empty: the nodes
  double seconds = 0.5;
  bool json = false;
  JobFlags job;
};

Json to_json(const Figures& figures) {
  Json json;
  for (const Figure& figure : figures)
    json[figure.name] = figure.value;
  return json;
}

std::string to_text(const std::string& link, const Figures& figures) {
  std::string text;
  for (const auto& [name, who, value] : figures)
    text +=
        fmt::format("  {:<8} {:<44}", link, who) +
        (name == "latency_s" ? fmt::format(" {:>21.4g} us\n", value * 1e6)
                             : fmt::format(" {:>10.4g} {:>10.4g}\n", value * 1e-6, value * 8e-6));
  return text;
}

int topo(const TopoOptions& options, const MpiJob& mpi) {
  const Groups& nodes = mpi.place.nodes;
  const Groups groups =
      options.groups.empty() ? nodes : topology::parse_groups(options.groups, nodes.ranks());
  const std::vector<std::string> shaped = record::shaped_links();
  const links::Stopwatch stopwatch(MPI_COMM_WORLD,
      !shaped.empty() || (nodes.count() == 1 && nodes.ranks() > mpi.place.node_cores));
  const auto links = links::make_links(MPI_COMM_WORLD, stopwatch, options.seconds);
  const Figures inside = measure_inside(*links, groups), between = measure_between(*links, groups);
  if (!mpi.is_root())
    return 0;
  if (options.json)
    write_stdout(json_text({{"ranks", groups.ranks()},
        {"groups", groups.sizes()},
        {"adapters", mpi.adapters},
        {"shaped_links", shaped},
        {"message_bytes", links::message_bytes},
        {"inside", to_json(inside)},
        {"between", to_json(between)}}));
  else
    write_stdout(mpi.map_text() +
                 fmt::format("# groups        = {}\n# adapters      = {} for each node\n",
                     groups.text(),
                     mpi.adapters) +
                 record::links_text(shaped) +
                 fmt::format("# {0:<8} {1:<44} {2:>10} {2:>10}\n# {3:<8} {3:<44} {4:>10} {5:>10}\n",
                     "link",
                     "messages of 1 MiB",
                     "rate",
                     "",
                     "MB/s",
                     "Mbit/s") +
                 to_text("inside", inside) + to_text("between", between));
  return 0;
}
}  // namespace

void add_topo(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<TopoOptions>();
  CLI::App* verb = app.add_subcommand("topo",
      "measure the links inside and between the groups of this job; start it with mpiexec or srun");
  verb->add_option(
          "--groups", options->groups, "number of equal groups, or sizes: 1+3 (default: the nodes)")
      ->type_name("GROUPS");
  verb->add_option("--seconds", options->seconds, "for each measurement")
      ->check(CLI::Range(0.01, 60.0))
      ->capture_default_str();
  verb->add_flag("--json", options->json, "JSON on standard output, nothing else");
  verb->add_flag("--hosts", options->job.hosts, "print the names of the hosts");
  verb->callback([&invocation, options] {
    invocation.code =
        in_job(invocation, options->job, [&](MpiJob& mpi) { return topo(*options, mpi); });
  });
}
}  // namespace minitaw::app
