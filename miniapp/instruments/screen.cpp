// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include "base/range.hpp"
#include "cli/cli11.hpp"
#include "instruments/predict/machine.hpp"
#include "instruments/screen/probe.hpp"
#include "instruments/verbs.hpp"
#include "job.hpp"

namespace minitaw::app {
namespace {
struct ScreenOptions {
  std::string expect;
  int rounds = 3;
  double seconds = 0.1;
  double least = 0;  ///< per cent; 0: those of the quantities
  bool json = false;
};

/// Seconds of all measurements between nodes, where there are very many (docs/screen.md).
constexpr double most_between_nodes = 60;
/// A measurement between nodes takes so many times --seconds.
constexpr double between_nodes = 3;

/// Whose products and messages are measured: a small model for processors, one with 7 B parameters
/// for devices.
model::Shape measured_shape() {
  if (kernels::on_host)
    return {1, 512, 8, 8, 1408, 256, 256, 1, model::Dtype::fp32};
  return {1, 4096, 32, 32, 11008, 32000, 4096, 1, model::Dtype::bf16};
}

screen::Probe probe_of(const ScreenOptions& options, const model::Shape& shape, MpiJob& mpi) {
  const int nodes = mpi.place.nodes.count(), adapters = mpi.adapters;
  const int pairs = std::max(1, nodes - 1) * (adapters > 1 ? adapters + 1 : 1);
  return {MPI_COMM_WORLD,
      mpi.place,
      mpi.ranks,
      {.seconds = options.seconds,
          .link_seconds = std::min(
              between_nodes * options.seconds, most_between_nodes / (options.rounds * pairs)),
          .threads = mpi.threads,
          .adapters = adapters,
          .one_machine = !record::shaped_links().empty(),
          .shared_devices = mpi.shared_devices,
          .next =
              [&](const std::string& stage) {
                mpi.runner.tell_between_cases();
                mpi.watchdog.phase(stage);
              },
          .done = [&] { mpi.runner.tell_between_cases(); }},
      screen::make_workbench(MPI_COMM_WORLD, mpi.place, shape, mpi.shared_devices)};
}

/// Fills in what a machine file says of healthy parts. Throws InputError if it cannot be used.
void set_expected(std::vector<screen::Measurement>& measured,
    const std::string& path,
    const model::Shape& shape) {
  const predict::Machine machine = predict::read_machine(path);
  const auto set = [&](std::string_view name, double value) {
    for (screen::Measurement& m : measured)
      if (m.quantity.name.starts_with(name) && value > 0)
        m.expected = value;
  };
  if (const auto rates = machine.speeds.find(shape.dtype); rates != machine.speeds.end()) {
    const double flop = 4.0 * shape.tokens() * (shape.hidden * shape.ffn);
    set("matrix product", rates->second.products.at(flop));
  }
  set("triad", machine.memory_rate);
  set("rate between nodes", machine.rate);
  set("latency between nodes", machine.latency);
}

int screen_job(const Invocation& invocation, const ScreenOptions& options, MpiJob& mpi) {
  const model::Shape shape = measured_shape();
  mpi.watchdog.phase("getting ready");
  screen::Probe probe = probe_of(options, shape, mpi);
  screen::Screening screening{.wiring = probe.wiring()};  // rank 0 has its values
  for (const screen::Quantity& quantity : probe.quantities())
    screening.measured.push_back({quantity});
  harness::agree_on_root(MPI_COMM_WORLD, [&] {
    for (int node = 0; node < mpi.place.nodes.count(); ++node)
      screening.nodes.push_back(mpi.hosts.text(node));
    if (std::ranges::any_of(mpi.ranks, [](const auto& r) { return throttled_share(r) > 0; }))
      screening.load_by = "a processor quota";
    if (!options.expect.empty())
      set_expected(screening.measured, options.expect, shape);
    if (!options.json)
      write_stdout(fmt::format("# {}\n{}{}",
          record::version_text(),
          mpi.map_text(),
          record::links_text(record::shaped_links())));
  });

  for (int round = 0; round < options.rounds; ++round) {
    std::vector<std::vector<double>> values = probe.round();
    for (std::size_t q = 0; q < values.size(); ++q)
      screening.measured[q].rounds.push_back(std::move(values[q]));
  }
  mpi.watchdog.phase("the verdict");
  const int code = mpi.on_root([&] {
    screening.judgement = screen::judge(screening.wiring, screening.measured, options.least / 100);
    if (options.json)
      write_json(invocation, to_json(screening));
    else
      write_stdout(table_text(screening) + findings_text(screening, mpi.ranks));
    return verdict_of(screening).code;
  });
  mpi.watchdog.pause();
  return code;
}

class Screen final : public JobVerb {
public:
  explicit Screen(CLI::App& app)
      : JobVerb(app,
            "screen",
            "find the rank, node, adapter or link that is slower than its peers; start it with "
            "mpiexec or srun") {
    flags_.watchdog = 60;
    command_
        .add_option("--rounds",
            options_.rounds,
            "times that everything is measured; a culprit stands out in most")
        ->check(CLI::Range(2, 100))
        ->capture_default_str();
    command_.add_option("--seconds", options_.seconds, "for each measurement")
        ->check(CLI::Range(0.001, 60.0))
        ->capture_default_str();
    command_
        .add_option("--least",
            options_.least,
            "per cent below its peers that make a culprit (default: 10; 20 inside nodes; not for "
            "latencies)")
        ->check(CLI::Range(1.0, 99.0));
    command_
        .add_option("--expect",
            options_.expect,
            "machine file (see predict) that says what healthy parts reach")
        ->type_name("MACHINE.toml");
    add_json(command_, options_.json);
    command_.add_flag("--hosts", flags_.hosts, "print the names of the hosts");
    add_job_flags(command_, flags_);
  }

private:
  int work(const Invocation& invocation, MpiJob& mpi) override {
    return screen_job(invocation, options_, mpi);
  }

  ScreenOptions options_;
};
}  // namespace

std::unique_ptr<Verb> make_screen(CLI::App& app) {
  return std::make_unique<Screen>(app);
}
}  // namespace minitaw::app
