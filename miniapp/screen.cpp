// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <ranges>
#include <set>
#include <unistd.h>
#include "base/error.hpp"
#include "cli/cli11.hpp"
#include "job.hpp"
#include "progress.hpp"
#include "record/recorder.hpp"
#include "screen/probe.hpp"

namespace minitaw::app {
namespace {
using screen::Culprit, screen::Measured;
namespace h5 = record::h5;

struct Options {
  DeckOptions deck;
  std::string output, time_limit;
  int rounds = 3;
  double seconds = 0.1, least = 0;
  bool json = false, replay = false;
  JobFlags job;
};

constexpr double links_together = 60;  ///< s, of all measurements between nodes, where there are very many

/// Shapes without a deck: small ones for processors, those of a model with 7 B parameters for devices.
model::Shape usual_shape() {
  if (kernels::on_host) return {1, 512, 8, 8, {1408}, 256, 256, 1, model::Dtype::fp32};
  return {1, 4096, 32, 32, {11008}, 32000, 4096, 1, model::Dtype::bf16};
}

std::string settings_of(const model::Shape& s, const screen::Machine& machine) {
  return fmt::format("nodes = {}, adapters = {}, hidden = {}, heads = {}, kv_heads = {}, ffn = {}, seq = {}, "
                     "micro_batch = {}, dtype = {}",
      machine.nodes.text(), machine.adapters, s.hidden, s.heads, s.kv_heads, s.ffn.front(), s.seq, s.micro_batch,
      name_of(s.dtype));
}

std::string path_of(const std::string& name) {
  std::string path = name;
  std::erase(path, ',');
  std::ranges::replace(path, ' ', '_');
  std::ranges::replace(path, '-', '_');
  return path;
}

/// Rank 0's part: the file, what has been measured, and what people read.
class Report {
public:
  Report(const Options& options, const MpiJob& mpi, const screen::Machine& machine, std::vector<Measured> measured,
      std::string settings, const std::vector<std::string>& arguments)
      : options_(options), mpi_(mpi), machine_(machine), measured_(std::move(measured)),
        settings_(std::move(settings)) {
    for (int n = 0; n < machine.nodes.count(); ++n) names_.push_back(mpi.hosts.text(n));
    if (options.output.empty()) return;
    recorder_.emplace(options.output, mpi.provenance({}, arguments));
    read();
  }

  [[nodiscard]] int rounds() const { return static_cast<int>(measured_.front().rounds.size()); }

  void begin() const {
    if (options_.json) return;
    fmt::print("# {}\n{}# {}\n{}", record::version_text(), mpi_.map_text(), settings_,
        record::links_text(record::shaped_links()));
    if (rounds() > 0) fmt::print("# {} has {} already\n", options_.output, counted(rounds(), "round"));
    std::fflush(stdout);
  }

  /// Returns how many rounds there are now.
  [[nodiscard]] int add(std::vector<std::vector<double>> values) {
    for (std::size_t q = 0; q < values.size(); ++q) measured_[q].rounds.push_back(std::move(values[q]));
    write(judged(), "");
    return rounds();
  }

  /// The exit code.
  [[nodiscard]] int end(bool complete) {
    const std::vector<Culprit> culprits = judged();
    const std::string verdict =
        !complete ? fmt::format("INCOMPLETE: {} of {}; the same command with -o goes on", rounds(),
                        counted(options_.rounds, "round"))
        : culprits.empty()
            ? fmt::format("CLEAN: nothing stands out in {}", counted(rounds(), "round"))
            : fmt::format("FOUND: {} in {}", counted(std::ssize(culprits), "culprit"), counted(rounds(), "round"));
    write(culprits, verdict);
    write_stdout(
        options_.json ? json_text(json(culprits, verdict)) : table() + text(culprits) + "VERDICT: " + verdict + "\n");
    if (!options_.output.empty() && !options_.json) fmt::print("# results: {}\n", options_.output);
    return complete && culprits.empty() ? 0 : 1;
  }
private:
  [[nodiscard]] std::vector<Culprit> judged() const {
    return judge(machine_, measured_, {.least = options_.least / 100, .rounds = std::max(2, rounds() / 2 + 1)});
  }

  [[nodiscard]] std::vector<hsize_t> shape(const Measured& m) const {
    return {m.rounds.size(), static_cast<hsize_t>(machine_.nodes.ranks()),
        static_cast<hsize_t>(machine_.partners(m.quantity.partner))};
  }

  void write(const std::vector<Culprit>& culprits, const std::string& verdict) {
    if (!recorder_) return;
    const int ranks = machine_.nodes.ranks();
    const auto node_of = [&](int rank) { return std::int64_t{machine_.nodes.group_of(rank)}; };
    std::vector<h5::Dataset> all = {record::entry("settings", settings_), record::entry("verdict", verdict),
        record::entry("culprits", "culprit", list_of(culprits, [&](const Culprit& c) { return sentence(c); })),
        {"node_of_rank", "1", "rank", list_of(std::views::iota(0, ranks), node_of), {static_cast<hsize_t>(ranks)}}};
    for (const Measured& m : measured_) {
      std::vector<double> flat;
      for (const std::vector<double>& round : m.rounds) flat.insert(flat.end(), round.begin(), round.end());
      constexpr const char* partner[] = {"one", "rank of its node", "node"};
      all.push_back({path_of(m.quantity.name), m.quantity.units,
          fmt::format("round, rank, {}", partner[static_cast<int>(m.quantity.partner)]), flat, shape(m)});
    }
    recorder_->put("screen", std::move(all));
  }

  void read() {
    if (H5Lexists(recorder_->file(), "screen", H5P_DEFAULT) <= 0) return;
    const std::string before = h5::read<std::string>(recorder_->file(), "screen/settings", 0).values.at(0);
    if (before != settings_)
      throw InputError(
          fmt::format("{} was measured with other settings ({}); choose another file", options_.output, before));
    for (Measured& m : measured_) {
      const auto found = h5::read<double>(recorder_->file(), "screen/" + path_of(m.quantity.name), 3);
      const std::size_t size = found.shape[1] * found.shape[2];
      for (std::size_t r = 0; r < found.shape[0]; ++r)
        m.rounds.emplace_back(found.values.begin() + static_cast<std::ptrdiff_t>(r * size),
            found.values.begin() + static_cast<std::ptrdiff_t>((r + 1) * size));
    }
  }

  [[nodiscard]] std::string name(const Culprit& c) const { return name_of(c.who, machine_, names_, c.both_ways); }
  [[nodiscard]] std::string sentence(const Culprit& c) const {
    return fmt::format("{}; {}", name(c), fmt::join(list_of(c.evidence, screen::text_of), "; "));
  }

  /// Lowest, median and highest of all rounds.
  [[nodiscard]] std::string table() const {
    std::string text = fmt::format("# {:<40} {:>12} {:>12} {:>12}\n", "", "lowest", "median", "highest");
    for (const auto& [quantity, values] : summary()) {
      text += fmt::format("  {:<40}", quantity->name);
      for (const double value : values) text += fmt::format(" {:>12}", screen::readable(value, quantity->units));
      text += "\n";
    }
    return text;
  }

  [[nodiscard]] std::vector<std::pair<const screen::Quantity*, std::array<double, 3>>> summary() const {
    std::vector<std::pair<const screen::Quantity*, std::array<double, 3>>> rows;
    for (const Measured& m : measured_) {
      std::vector<double> all;
      for (const std::vector<double>& round : m.rounds)
        std::ranges::copy_if(round, std::back_inserter(all), [](double v) { return !std::isnan(v); });
      std::ranges::sort(all);
      rows.push_back({&m.quantity, {quantile(all, 0), quantile(all, 0.5), quantile(all, 1)}});
    }
    return rows;
  }

  [[nodiscard]] std::string text(const std::vector<Culprit>& culprits) const {
    std::string text;
    std::set<std::string> hosts;
    for (const Culprit& c : culprits) {
      text += fmt::format("CULPRIT: {}\n", name(c));
      for (const screen::Evidence& e : c.evidence) text += fmt::format("  {}\n", screen::text_of(e));
      if (c.who.kind == screen::Suspect::rank && !mpi_.ranks[c.who.a].uuid.empty())
        text += fmt::format("  {}, {}\n", mpi_.ranks[c.who.a].unit, mpi_.ranks[c.who.a].uuid);
      for (const int node : nodes_of(c, machine_)) hosts.insert(names_[node]);
    }
    if (!hosts.empty() && mpi_.hosts.shown())
      text +=
          fmt::format("# scontrol update nodename={} state=drain reason=\"minitaw screen\"\n", fmt::join(hosts, ","));
    return text;
  }

  [[nodiscard]] Json json(const std::vector<Culprit>& culprits, const std::string& verdict) const {
    Json found = Json::array(), quantities = Json::array();
    for (const Culprit& c : culprits) {
      constexpr const char* kinds[] = {"rank", "node", "adapter", "link"};
      Json evidence = Json::array(), hosts = Json::array();
      for (const screen::Evidence& e : c.evidence)
        evidence.push_back({{"quantity", e.quantity}, {"units", e.units}, {"value", e.value}, {"usual", e.usual},
            {"rounds", e.rounds}});
      for (const int node : nodes_of(c, machine_)) hosts.push_back(names_[node]);
      const auto [kind, a, b] = c.who;
      Json ranks = kind == screen::Suspect::node ? Json(machine_.nodes.members(a)) : Json::array({a});
      if (kind == screen::Suspect::link) ranks.push_back(b);
      found.push_back(
          {{"kind", kinds[kind]}, {"ranks", ranks}, {"nodes", hosts}, {"text", name(c)}, {"evidence", evidence}});
    }
    for (const auto& [quantity, values] : summary())
      quantities.push_back({{"name", quantity->name}, {"units", quantity->units}, {"lowest", values[0]},
          {"median", values[1]}, {"highest", values[2]}});
    return {{"verdict", verdict}, {"rounds", rounds()}, {"culprits", found}, {"quantities", quantities},
        {"settings", settings_}};
  }

  const Options& options_;
  const MpiJob& mpi_;
  const screen::Machine& machine_;
  std::vector<Measured> measured_;
  std::string settings_;
  std::vector<std::string> names_;
  std::optional<record::Recorder> recorder_;
};

/// Looks for silent corruption in a step of the deck's first case.
int replay(const Options& options, MpiJob& mpi) {
  const deck::Deck deck = mpi.read(options.deck);
  const auto place = [&](const record::RankPlace& r) { return fmt::format("{}, {}", mpi.hosts.text(r.node), r.unit); };
  const harness::ReplayReport report = mpi.runner.replay(deck.cases.front(), list_of(mpi.ranks, place));
  const std::vector<std::string>& sentences = report.findings;
  const int code = report.runs > 2 ? 1 : 0;
  if (!mpi.is_root()) return code;
  const std::string verdict = code == 0 ? "SAME: every bit of every action"
                                        : fmt::format("DIFFERENT: {}", counted(std::ssize(sentences), "first fault"));
  if (options.json)
    write_stdout(json_text({{"verdict", verdict}, {"findings", sentences}, {"runs", report.runs},
        {"actions", report.actions}, {"buffers", report.tensors}, {"bytes", report.bytes}}));
  else
    write_stdout(fmt::format("{}{}# {}: {}, {} actions, {} buffers and {} compared\nVERDICT: {}\n", mpi.map_text(),
        sentences.empty() ? "" : fmt::format("CULPRIT: {}\n", fmt::join(sentences, "\nCULPRIT: ")),
        deck.cases.front().schedule, counted(report.runs, "run"), report.actions, report.tensors,
        size_text(static_cast<std::uint64_t>(report.bytes)), verdict));
  return code;
}

int screening(const Options& options, const Invocation& invocation, MpiJob& mpi) {
  if (options.replay) return replay(options, mpi);
  model::Shape shape = usual_shape();
  if (!options.deck.path.empty()) shape = mpi.read(options.deck).cases.front().shape;
  const int nodes = mpi.place.nodes.count(), adapters = mpi.adapters;
  const double measurements = 1.0 * options.rounds * std::max(1, nodes - 1) * (adapters > 1 ? adapters + 1 : 1);
  const bool shows = mpi.is_root() && isatty(STDERR_FILENO) != 0;
  int round = 0;
  const auto expect = [&](const std::string& stage) {
    mpi.runner.guard().expect(stage, std::chrono::duration<double>(mpi.flags.watchdog));
  };
  const auto next = [&](const std::string& stage) {
    mpi.runner.advance();
    expect(stage);
    if (shows) fmt::print(stderr, "\r\033[Kround {} of {}: {}", round + 1, options.rounds, stage);
  };
  expect("getting ready");
  const bool shared_devices = topology::shared_device(mpi.uuids).has_value();
  const auto probe = screen::make_probe(MPI_COMM_WORLD, mpi.place,
      {.seconds = options.seconds,
          .link_seconds = std::min(3 * options.seconds, links_together / measurements),
          .threads = mpi.threads,
          .adapters = mpi.adapters,
          .one_machine = !record::shaped_links().empty(),
          .shared_devices = shared_devices,
          .next = next,
          .done = [&] { mpi.runner.advance(); }},
      screen::make_instruments(MPI_COMM_WORLD, mpi.place, shape, shared_devices));
  std::vector<Measured> measured;
  for (screen::Quantity& quantity : probe->quantities()) measured.push_back({std::move(quantity)});
  const screen::Machine& machine = probe->machine();
  std::optional<Report> report;  // rank 0's
  round = mpi.on_root([&] {
    report.emplace(options, mpi, machine, measured, settings_of(shape, machine), invocation.arguments());
    report->begin();
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
  expect("the verdict");
  if (shows) fmt::print(stderr, "\r\033[K");
  const int code = mpi.on_root([&] { return report->end(round >= options.rounds); });
  mpi.runner.guard().pause();
  return code;
}
}  // namespace

void add_screen(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  options->job.watchdog = 60;
  CLI::App* verb = app.add_subcommand(
      "screen", "find the rank, node, adapter or link that is slower than its peers; start it with mpiexec or srun");
  auto* deck = verb->add_option("DECK", options->deck.path, "take the shapes of its first case (default: built in)");
  verb->add_option("--set", options->deck.overrides, "change a key of the deck: --set seq=4K")->type_name("KEY=VALUE");
  verb->add_option("-o,--output", options->output, "result file; rounds that it has are not measured again")
      ->type_name("FILE.h5");
  verb->add_option("--rounds", options->rounds, "times that everything is measured; a culprit stands out in most")
      ->check(CLI::Range(2, 100))
      ->capture_default_str();
  verb->add_option("--seconds", options->seconds, "for each measurement")
      ->check(CLI::Range(0.001, 60.0))
      ->capture_default_str();
  verb->add_option("--least", options->least,
          "per cent below its peers that make a culprit (default: 10; 20 inside nodes; not for latencies)")
      ->check(CLI::Range(1.0, 99.0));
  verb->add_option("--time-limit", options->time_limit, "begin no round that may not end within this time: 5m, 1:30:00")
      ->type_name("TIME");
  verb->add_flag("--replay", options->replay,
          "instead: execute steps of the deck's first case on other ranks again, and compare every bit")
      ->needs(deck);
  verb->add_flag("--json", options->json, "JSON on standard output, nothing else");
  verb->add_flag("--hosts", options->job.hosts, "print the names of the hosts, and those of culprits for scontrol");
  add_job_flags(*verb, options->job);
  verb->callback([&invocation, options] {
    invocation.code = in_job(invocation, options->job, [&](auto& mpi) { return screening(*options, invocation, mpi); });
  });
}
}  // namespace minitaw::app
