// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <fmt/ranges.h>
#include <map>
#include <nlohmann/json.hpp>
#include <unistd.h>
#include "base/error.hpp"
#include "cli/cli11.hpp"
#include "instruments/links/messages.hpp"
#include "instruments/predict/machine.hpp"
#include "instruments/screen/probe.hpp"
#include "instruments/verbs.hpp"
#include "job.hpp"
#include "progress.hpp"
#include "screen_report.hpp"

namespace minitaw::app {
namespace {
using rates::HardwareRate, screen::Measured;

struct ScreenOptions {
  DeckOptions deck;
  std::string output, time_limit, expect;
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
      s.ffn.front(),
      s.seq,
      s.micro_batch,
      name_of(s.dtype));
}

/// Tells the watchdog what comes next, and a person at the terminal.
class Stages {
public:
  explicit Stages(MpiJob& mpi) : mpi_(mpi), shows_(mpi.is_root() && isatty(STDERR_FILENO) != 0) {}

  /// `shown`: at the terminal; empty: the line there ends.
  void expect(const std::string& stage, const std::string& shown = {}) {
    mpi_.runner.guard().expect(stage, std::chrono::duration<double>(mpi_.flags.watchdog));
    if (shows_)
      fmt::print(stderr, "\r\033[K{}", shown);
  }

  /// This rank has done its part of a stage, or all have.
  void advance() { mpi_.runner.advance(); }

private:
  MpiJob& mpi_;
  bool shows_;
};

/// Rank 0's part: the file, what has been measured, and what people read.
class Report {
public:
  Report(const ScreenOptions& options,
      const Invocation& invocation,
      const MpiJob& mpi,
      Screening screening)
      : options_(options),
        mpi_(mpi),
        screening_(std::move(screening)) {
    if (!options.output.empty()) {
      file_.emplace(options.output, mpi.provenance({}, invocation.arguments()));
      file_->read(screening_);
    }
    if (options.json)
      return;
    fmt::print("# {}\n{}# {}\n{}",
        record::version_text(),
        mpi.map_text(),
        screening_.settings,
        record::links_text(record::shaped_links()));
    if (rounds() > 0)
      fmt::print("# {} has {} already\n", options.output, counted(rounds(), "round"));
    std::fflush(stdout);
  }

  int rounds() const { return screening_.rounds(); }

  /// Returns how many rounds there are.
  int add(std::vector<std::vector<double>> values) {
    for (std::size_t q = 0; q < values.size(); ++q)
      screening_.measured[q].rounds.push_back(std::move(values[q]));
    if (file_) {
      judge();
      file_->write(screening_);
    }
    return rounds();
  }

  /// Returns the exit code.
  int end(bool complete) {
    judge();
    screening_.words = words_of(screening_.machine,
        screening_.measured,
        screening_.judgement,
        rounds(),
        complete ? 0 : options_.rounds);
    if (file_)
      file_->write(screening_);
    if (options_.json) {
      write_stdout(json_text(to_json(screening_)));
      return screening_.words.code;
    }
    write_stdout(table_text(screening_) + findings_text(screening_, mpi_));
    if (file_)
      fmt::print("# results: {}\n", options_.output);
    return screening_.words.code;
  }

private:
  /// A culprit stands out in most rounds.
  void judge() {
    screening_.judgement = screen::judge(screening_.machine,
        screening_.measured,
        {.least_loss = options_.least / 100, .rounds = std::max(2, rounds() / 2 + 1)});
  }

  const ScreenOptions& options_;
  const MpiJob& mpi_;
  Screening screening_;
  std::optional<ScreenFile> file_;
};

/// `round`: that is measured.
std::unique_ptr<screen::Probe> probe_of(const ScreenOptions& options,
    const model::Shape& shape,
    const MpiJob& mpi,
    Stages& stages,
    const int& round) {
  const int nodes = mpi.place.nodes.count(), adapters = mpi.adapters;
  const int pairs = std::max(1, nodes - 1) * (adapters > 1 ? adapters + 1 : 1);
  const bool shared_devices = topology::shared_device(mpi.uuids).has_value();
  return screen::make_probe(MPI_COMM_WORLD,
      mpi.place,
      mpi.ranks,
      {.seconds = options.seconds,
          .link_seconds = std::min(
              between_nodes * options.seconds, most_between_nodes / (options.rounds * pairs)),
          .adapters = adapters,
          .one_machine = !record::shaped_links().empty(),
          .shared_devices = shared_devices,
          .next =
              [&](const std::string& stage) {
                stages.advance();
                stages.expect(
                    stage, fmt::format("round {} of {}: {}", round + 1, options.rounds, stage));
              },
          .done = [&] { stages.advance(); }},
      screen::make_workbench(MPI_COMM_WORLD, mpi.place, shape, shared_devices));
}

// Shares that a healthy part reaches: docs/screen.md, "What is known without peers".

/// Clocks change and registers differ, so that only a quarter of a processor's peak is certain.
constexpr double least_of_processor = 0.25;
constexpr double least_of_device = 0.5, least_of_port = 0.5, least_of_shaped_link = 0.8;
/// A fifth may lack of a machine file's rates; latencies may be twice as long.
constexpr double least_of_machine = 0.8, least_of_latency = 0.5;

/// The value of each rank, with the source of rank 0.
screen::Known gathered(const std::optional<HardwareRate>& mine, double least) {
  const double value = mine ? mine->value : std::nan("");
  return {links::all_gather(value, MPI_COMM_WORLD), least, mine ? mine->source : ""};
}

/// "rate=100mbit" of scripts/cluster, as B/s.
std::optional<HardwareRate> shaped_rate() {
  for (const std::string& setting : record::shaped_links())
    if (setting.starts_with("rate="))
      return HardwareRate{std::atof(setting.c_str() + 5) * 1e6 / 8, "shaped links"};
  return {};
}

/// Of the matrix products of this rank.
std::optional<HardwareRate> product_peak(const topology::RankPlace& place, model::Dtype dtype) {
  if (!kernels::on_host)
    return HardwareRate{record::datasheet_peak(place.unit, dtype), "datasheet"};
  if (dtype != model::Dtype::fp32)
    return {};
  std::optional<HardwareRate> peak = rates::core_peak();
  if (peak) {
    peak->value *= place.threads;
    peak->source += fmt::format(", {}", counted(place.threads, "thread"));
  }
  return peak;
}

/// What is known of the quantities whose names begin so.
using KnownOf = std::map<std::string, screen::Known>;

/// Asks the hardware of each rank. Collective.
KnownOf known_by_hardware(const MpiJob& mpi, model::Dtype dtype) {
  const topology::RankPlace& here = mpi.ranks[mpi.environment.rank()];
  const bool shaped = !record::shaped_links().empty();
  return {{"matrix product",
              gathered(product_peak(here, dtype),
                  kernels::on_host ? least_of_processor : least_of_device)},
      {"rate between nodes",
          gathered(shaped ? shaped_rate() : rates::link_rate(here.site.adapters),
              shaped ? least_of_shaped_link : least_of_port)}};
}

/// Adds what a machine file says of healthy parts, which counts more. Throws InputError if it
/// cannot be used.
void add_known_by_machine(
    KnownOf& known, const std::string& path, const model::Shape& s, int ranks) {
  const predict::Machine machine = predict::read_machine(path);
  const auto add = [&](const char* name, double value, double least = least_of_machine) {
    if (value > 0)
      known[name] = {std::vector<double>(ranks, value), least, "machine file"};
  };
  if (const auto rates = machine.speeds.find(s.dtype); rates != machine.speeds.end()) {
    const double tokens = s.tokens();
    const double product = 4.0 * tokens * (s.hidden * s.ffn.front());
    const double square = 2.0 * tokens * (s.seq * s.heads * s.head_dim());
    add("matrix product", rates->second.products.at(product));
    add("attention", rates->second.attention.at(square));
  }
  add("triad", machine.memory_rate);
  add("rate between nodes", machine.rate);
  add("latency between nodes", machine.latency, least_of_latency);
}

/// What is to be measured, with what is known of it.
std::vector<Measured> unmeasured(const ScreenOptions& options,
    const screen::Probe& probe,
    const model::Shape& shape,
    KnownOf known) {
  if (options.expect == "none")
    known.clear();
  else if (!options.expect.empty())
    add_known_by_machine(known, options.expect, shape, probe.machine().nodes.ranks());
  std::vector<Measured> measured;
  for (screen::Quantity& quantity : probe.quantities()) {
    Measured& m = measured.emplace_back(Measured{std::move(quantity)});
    for (const auto& [name, value] : known)
      if (m.quantity.name.starts_with(name))
        m.known = value;
  }
  return measured;
}

int screen_job(const ScreenOptions& options, const Invocation& invocation, MpiJob& mpi) {
  const model::Shape shape =
      options.deck.path.empty() ? usual_shape() : mpi.read(options.deck).cases.front().shape;
  int round = 0;
  Stages stages(mpi);
  stages.expect("getting ready");
  const auto probe = probe_of(options, shape, mpi, stages, round);
  const KnownOf by_hardware = known_by_hardware(mpi, shape.dtype);
  std::optional<Report> report;  // rank 0's
  round = mpi.on_root([&] {
    const screen::Machine& machine = probe->machine();
    Screening screening{.machine = machine,
        .settings = settings_of(shape, machine),
        .measured = unmeasured(options, *probe, shape, by_hardware)};
    for (int node = 0; node < machine.nodes.count(); ++node)
      screening.nodes.push_back(mpi.hosts.text(node));
    report.emplace(options, invocation, mpi, std::move(screening));
    return report->rounds();
  });

  const TimeLimit time(options.time_limit);
  double longest = 0;
  while (round < options.rounds && mpi.on_root([&] { return time.left() > longest; })) {
    const double begin = MPI_Wtime();
    std::vector<std::vector<double>> values = probe->round();
    longest = std::max(longest, MPI_Wtime() - begin);
    round = mpi.on_root([&] { return report->add(std::move(values)); });
  }
  stages.expect("the verdict");
  const int code = mpi.on_root([&] { return report->end(round >= options.rounds); });
  mpi.runner.guard().pause();
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
  verb->add_option("--time-limit",
          options->time_limit,
          "begin no round that may not end within this time: 5m, 1:30:00")
      ->type_name("TIME");
  verb->add_option("--expect",
          options->expect,
          "machine file (see predict) that says what healthy parts reach; none: not even what the "
          "hardware says counts")
      ->type_name("MACHINE.toml|none");
  verb->add_flag("--json", options->json, "JSON on standard output, nothing else");
  verb->add_flag("--hosts",
      options->job.hosts,
      "print the names of the hosts, and those of culprits for scontrol");
  add_job_flags(*verb, options->job);
  verb->callback([&invocation, options] {
    invocation.code = in_job(invocation, options->job, [&](MpiJob& mpi) {
      return screen_job(*options, invocation, mpi);
    });
  });
}
}  // namespace minitaw::app
