// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include "base/error.hpp"
#include "cli/cli11.hpp"
#include "instruments/predict/machine.hpp"
#include "instruments/screen/probe.hpp"
#include "instruments/verbs.hpp"
#include "job.hpp"
#include "screen_report.hpp"

namespace minitaw::app {
namespace {
struct ScreenOptions {
  DeckOptions deck;
  std::string output, expect;
  int rounds = 3;
  double seconds = 0.1;
  double least = 0;  ///< per cent; 0: those of the quantities
  bool json = false;
  JobFlags job;
};

/// Seconds of all measurements between nodes, where there are very many (docs/screen.md).
constexpr double most_between_nodes = 60;
/// A measurement between nodes takes so many times --seconds.
constexpr double between_nodes = 3;

/// Shapes without a deck: small ones for processors, those of a model with 7 B parameters for
/// devices.
model::Shape usual_shape() {
  if (kernels::on_host)
    return {1, 512, 8, 8, {1408}, 256, 256, 1, model::Dtype::fp32};
  return {1, 4096, 32, 32, {11008}, 32000, 4096, 1, model::Dtype::bf16};
}

std::string settings_of(const model::Shape& s, const screen::Machine& machine) {
  return fmt::format(
      "nodes = {}, adapters = {}, hidden = {}, heads = {}, kv_heads = {}, ffn = {}, seq = {}, "
      "micro_batch = {}, dtype = {}",
      machine.nodes.text(),
      machine.adapters,
      s.hidden,
      s.heads,
      s.kv_heads,
      s.ffn,
      s.seq,
      s.micro_batch,
      name_of(s.dtype));
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
          .adapters = adapters,
          .one_machine = !record::shaped_links().empty(),
          .shared_devices = mpi.shared_devices,
          .next =
              [&](const std::string& stage) {
                mpi.runner.advance();
                mpi.runner.expect(stage);
              },
          .done = [&] { mpi.runner.advance(); }},
      screen::make_workbench(MPI_COMM_WORLD, mpi.place, shape, mpi.shared_devices)};
}

/// Fills in what a machine file says of healthy parts. Throws InputError if it cannot be used.
void set_expected(
    std::vector<screen::Measured>& measured, const std::string& path, const model::Shape& shape) {
  const predict::Machine machine = predict::read_machine(path);
  const auto set = [&](std::string_view name, double value) {
    for (screen::Measured& m : measured)
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

/// What is to be measured.
Screening unmeasured(const ScreenOptions& options,
    const screen::Probe& probe,
    const model::Shape& shape,
    const MpiJob& mpi) {
  const screen::Machine& machine = probe.machine();
  Screening screening{.machine = machine, .settings = settings_of(shape, machine)};
  for (const screen::Quantity& quantity : probe.quantities())
    screening.measured.push_back({quantity});
  if (!options.expect.empty())
    set_expected(screening.measured, options.expect, shape);
  for (int node = 0; node < machine.nodes.count(); ++node)
    screening.nodes.push_back(mpi.hosts.text(node));
  return screening;
}

void print_head(const ScreenOptions& options, const MpiJob& mpi, const Screening& screening) {
  std::string text = fmt::format("# {}\n{}# {}\n{}",
      record::version_text(),
      mpi.map_text(),
      screening.settings,
      record::links_text(record::shaped_links()));
  if (const int rounds = screening.rounds(); rounds > 0)
    text += fmt::format("# {} has {} already\n", options.output, counted(rounds, "round"));
  fmt::print("{}", text);
  std::fflush(stdout);
}

/// A culprit stands out in most rounds.
void judge(const ScreenOptions& options, Screening& s) {
  const int rounds = s.rounds();
  s.judgement = screen::judge(s.machine,
      s.measured,
      {.least_loss = options.least / 100, .rounds = std::max(2, rounds / 2 + 1)});
  s.verdict = screen::verdict_of(s.judgement, rounds, !options.expect.empty());
}

int screen_job(const ScreenOptions& options, const Invocation& invocation, MpiJob& mpi) {
  const model::Shape shape =
      options.deck.path.empty() ? usual_shape() : mpi.read(options.deck).cases.front().shape;
  mpi.runner.expect("getting ready");
  screen::Probe probe = probe_of(options, shape, mpi);
  std::optional<Screening> screening;  // of rank 0, as the file
  std::optional<record::Recorder> file;
  int round = mpi.on_root([&] {
    screening.emplace(unmeasured(options, probe, shape, mpi));
    if (!options.output.empty()) {
      file.emplace(options.output, mpi.provenance({}, invocation.arguments()));
      read_rounds(*file, options.output, *screening);
    }
    if (!options.json)
      print_head(options, mpi, *screening);
    return screening->rounds();
  });

  while (round < options.rounds) {
    std::vector<std::vector<double>> values = probe.round();
    round = mpi.on_root([&] {
      for (std::size_t q = 0; q < values.size(); ++q)
        screening->measured[q].rounds.push_back(std::move(values[q]));
      if (file)
        write(*file, *screening);
      return screening->rounds();
    });
  }
  mpi.runner.expect("the verdict");
  const int code = mpi.on_root([&] {
    judge(options, *screening);
    if (file)
      write(*file, *screening);
    if (options.json)
      write_stdout(json_text(to_json(*screening)));
    else
      write_stdout(table_text(*screening) + findings_text(*screening, mpi));
    return screening->verdict.code;
  });
  mpi.runner.pause();
  return code;
}
}  // namespace

void add_screen(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<ScreenOptions>();
  options->job.watchdog = 60;
  CLI::App* verb = app.add_subcommand("screen",
      "find the rank, node, adapter or link that is slower than its peers; start it with mpiexec "
      "or srun");
  verb->add_option(
      "DECK", options->deck.path, "take the shapes of its first case (default: built in)");
  verb->add_option("--set", options->deck.overrides, "change a key of the deck: --set seq=4K")
      ->type_name("KEY=VALUE");
  verb->add_option(
          "-o,--output", options->output, "result file; rounds that it has are not measured again")
      ->type_name("FILE.h5");
  verb->add_option("--rounds",
          options->rounds,
          "times that everything is measured; a culprit stands out in most")
      ->check(CLI::Range(2, 100))
      ->capture_default_str();
  verb->add_option("--seconds", options->seconds, "for each measurement")
      ->check(CLI::Range(0.001, 60.0))
      ->capture_default_str();
  verb->add_option("--least",
          options->least,
          "per cent below its peers that make a culprit (default: 10; 20 inside nodes; not for "
          "latencies)")
      ->check(CLI::Range(1.0, 99.0));
  verb->add_option("--expect",
          options->expect,
          "machine file (see predict) that says what healthy parts reach")
      ->type_name("MACHINE.toml");
  verb->add_flag("--json", options->json, "JSON on standard output, nothing else");
  verb->add_flag("--hosts", options->job.hosts, "print the names of the hosts");
  add_job_flags(*verb, options->job);
  verb->callback([&invocation, options] {
    invocation.code = in_job(invocation, options->job, [&](MpiJob& mpi) {
      return screen_job(*options, invocation, mpi);
    });
  });
}
}  // namespace minitaw::app
