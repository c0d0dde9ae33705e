#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.hpp"
#include "cli/cli11.hpp"
#include "in_job.hpp"
#include "output.hpp"
#include "record/environment.hpp"
#include "topo_measure.hpp"
#include "verb.hpp"

namespace minitaw::app {

namespace {

using nlohmann::ordered_json;
using topology::Groups;

struct Options {
  std::string groups;  ///< as given; empty: the nodes
  double seconds = 0.5;
  bool json = false;
  JobFlags job;
};

/// "2" or "1+3" of all ranks of the job.
Groups groups_of(const std::string& text, const Groups& nodes) {
  if (text.empty()) return nodes;
  const bool count =
      text.size() < 9 && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  Groups groups = count ? Groups::equal(nodes.ranks(), std::stoi(text)) : topology::parse_groups(text);
  if (groups.ranks() != nodes.ranks())
    throw InputError(
        fmt::format("--groups: {} are {} ranks, but the job has {}", text, groups.ranks(), nodes.ranks()));
  return groups;
}

ordered_json to_json(const std::optional<LinkRates>& rates) {
  if (!rates) return nullptr;
  return {{"latency_s", rates->latency},
          {"alone_bytes_per_s", rates->alone},
          {"shared_bytes_per_s", rates->shared},
          {"both_bytes_per_s", rates->both}};
}

std::string json_text(const Groups& groups, int adapters, const TopoRates& rates) {
  const ordered_json all = {{"ranks", groups.ranks()},
                            {"groups", groups.sizes()},
                            {"adapters", adapters},
                            {"shaped_links", record::shaped_links()},
                            {"message_bytes", topo_message},
                            {"inside", to_json(rates.inside)},
                            {"between", to_json(rates.between)}};
  return all.dump(2) + "\n";
}

std::string line(const std::string& link, const std::string& who, double rate) {
  return fmt::format("  {:<8} {:<44} {:>10.4g} {:>10.4g}\n", link, who, rate * 1e-6, rate * 8e-6);
}

std::string latency_line(const std::string& link, const LinkRates& rates) {
  return fmt::format("  {:<8} {:<44} {:>21.4g} us\n", link, "latency, 8 bytes", rates.latency * 1e6);
}

std::string table_text(const TopoRates& rates) {
  std::string text = fmt::format("# {:<8} {:<44} {:>10} {:>10}\n# {:<8} {:<44} {:>10} {:>10}\n", "link",
                                 "messages of 1 MiB", "rate", "rate", "", "", "MB/s", "Mbit/s");
  if (const auto& r = rates.inside)
    text += latency_line("inside", *r) + line("inside", "one rank to another", r->alone) +
            line("inside", "all of a group at once, each rank", r->shared) +
            line("inside", "all of all groups at once, each rank", r->both);
  if (const auto& r = rates.between)
    text += latency_line("between", *r) + line("between", "one rank to another", r->alone) +
            line("between", "all of a group at once, together", r->shared) +
            line("between", "all groups out and in at once, the busiest", r->both);
  return text;
}

int topo(const Options& options, const MpiJob& mpi) {
  const Groups groups = groups_of(options.groups, mpi.place().nodes);
  const TopoRates rates = measure_links(groups, options.seconds);
  if (!mpi.speaks()) return 0;
  if (options.json) put_out(json_text(groups, mpi.place().adapters, rates));
  else
    put_out(mpi.map_text() +
            fmt::format("# groups        = {}\n# adapters      = {} for each node\n", groups.text(),
                        mpi.place().adapters) +
            record::links_text(record::shaped_links()) + table_text(rates));
  return 0;
}

}  // namespace

void add_topo(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand(
      "topo", "measure the links inside and between the groups of this job; start it with mpiexec or srun");
  verb->add_option("--groups", options->groups, "number of equal groups, or sizes: 1+3 (default: the nodes)")
      ->type_name("GROUPS");
  verb->add_option("--seconds", options->seconds, "for each measurement")
      ->check(CLI::Range(0.01, 60.0))
      ->capture_default_str();
  verb->add_flag("--json", options->json, "JSON on standard output, nothing else");
  verb->add_flag("--hosts", options->job.hosts, "print the names of the hosts");
  verb->callback([&invocation, options] {
    invocation.action = [&invocation, options] {
      return in_job(invocation, options->job, [&](MpiJob& mpi) { return topo(*options, mpi); });
    };
  });
}

}  // namespace minitaw::app
