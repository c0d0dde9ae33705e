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
#include "instruments/predict/machine.hpp"
#include "instruments/rates/rates.hpp"
#include "instruments/replay/replay.hpp"
#include "instruments/screen/probe.hpp"
#include "instruments/verbs.hpp"
#include "job.hpp"
#include "progress.hpp"
#include "record/recorder.hpp"

namespace minitaw::app {
namespace {
using screen::Culprit, screen::Judgement, screen::Measured, screen::Words;
namespace h5 = record::h5;

struct Options {
  DeckOptions deck;
  std::string output, time_limit, expect;
  int rounds = 3;
  double seconds = 0.1, least = 0;
  bool json = false, replay = false;
  JobFlags job;
};

constexpr double links_together =
    60;  ///< s, of all measurements between nodes, where there are very many

/// Shapes without a deck: small ones for processors, those of a model with 7 B parameters for
/// devices.
model::Shape usual_shape() {
  if (kernels::on_host)
    return {1, 512, 8, 8, {1408}, 256, 256, 1, model::Dtype::fp32};
  return {1, 4096, 32, 32, {11008}, 32000, 4096, 1, model::Dtype::bf16};
}

/// What is known of the hardware of each rank; sources by rank 0.
struct HardwareRates {
  std::vector<double> products, links;  ///< by rank; NaN: not known
  std::string products_source, links_source;
  double least_products = 1, least_links = 1;
};

/// "rate=100mbit" of scripts/cluster, as B/s; NaN without it.
double shaped_rate() {
  for (const std::string& setting : record::shaped_links())
    if (setting.starts_with("rate="))
      return std::atof(setting.c_str() + 5) * 1e6 / 8;
  return std::nan("");
}

/// Asks the hardware. Clocks change and registers differ, so that a quarter of a processor's peak
/// is certain only; of links and devices a half. Shaped links have their rate. Collective.
HardwareRates hardware_rates(const MpiJob& mpi, model::Dtype dtype) {
  using topology::HardwareRate;
  const auto gather = [&](double mine) {
    std::vector<double> all(mpi.environment.ranks());
    comm::mpi::check(MPI_Allgather(&mine, 1, MPI_DOUBLE, all.data(), 1, MPI_DOUBLE, MPI_COMM_WORLD),
        "sharing what is known");
    return all;
  };
  const record::RankPlace& here = mpi.ranks[mpi.environment.rank()];
  std::optional<HardwareRate> link = topology::link_rate(here.site.adapters), product;
  if (const double rate = shaped_rate(); !record::shaped_links().empty())
    link = HardwareRate{rate, "shaped links"};
  if (!kernels::on_host)
    product = HardwareRate{record::datasheet_peak(here.unit, dtype), "datasheet"};
  else if (dtype == model::Dtype::fp32)
    if (product = topology::core_peak(); product) {
      product->value *= mpi.threads;
      product->source += fmt::format(", {}", counted(mpi.threads, "thread"));
    }
  const HardwareRate unknown{std::numeric_limits<double>::quiet_NaN(), {}};
  const HardwareRate p = product.value_or(unknown), l = link.value_or(unknown);
  return {gather(p.value),
      gather(l.value),
      p.source,
      l.source,
      kernels::on_host ? 0.25 : 0.5,
      record::shaped_links().empty() ? 0.5 : 0.8};
}

/// What a machine file says of healthy parts, of which a fifth may lack, and latencies may be twice
/// as long.
void expect_machine(
    std::vector<Measured>& measured, const std::string& path, const model::Shape& s, int ranks) {
  const predict::Machine machine = predict::read_machine(path);
  if (!machine.alike)
    throw InputError(
        path + ": a machine for --expect has no exceptions: it says what all must reach");
  const double speed = machine.own.front().speed;
  const auto put = [&](const std::string& name, double value, double least) {
    for (Measured& m : measured)
      if (m.quantity.name.starts_with(name) && value > 0)
        m.known = {std::vector<double>(ranks, value), least, "machine file"};
  };
  if (const auto rates = machine.device.speeds.find(s.dtype);
      rates != machine.device.speeds.end()) {
    const auto tokens = static_cast<double>(s.tokens());
    const double product = 4.0 * tokens * static_cast<double>(s.hidden * s.ffn.front());
    const double square = 2.0 * tokens * static_cast<double>(s.seq * s.heads * s.head_dim());
    put("matrix product", speed * rates->second.products.at(product), 0.8);
    put("attention", speed * rates->second.attention.at(square), 0.8);
  }
  put("triad", speed * machine.device.memory_rate, 0.8);
  put("rate between nodes", machine.rate, 0.8);
  put("latency between nodes", machine.latency, 0.5);
}

/// The hardware's rates, where no machine file says more.
void expect_hardware(std::vector<Measured>& measured, const HardwareRates& rates) {
  const auto put = [&](const std::string& name,
                       const std::vector<double>& values,
                       double least,
                       const std::string& source) {
    for (Measured& m : measured)
      if (m.quantity.name.starts_with(name))
        m.known = {values, least, source};
  };
  put("matrix product", rates.products, rates.least_products, rates.products_source);
  put("rate between nodes", rates.links, rates.least_links, rates.links_source);
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
  Report(const Options& options,
      const MpiJob& mpi,
      const screen::Machine& machine,
      std::vector<Measured> measured,
      std::string settings,
      const std::vector<std::string>& arguments)
      : options_(options),
        mpi_(mpi),
        machine_(machine),
        measured_(std::move(measured)),
        settings_(std::move(settings)) {
    for (int n = 0; n < machine.nodes.count(); ++n)
      names_.push_back(mpi.hosts.text(n));
    if (options.output.empty())
      return;
    recorder_.emplace(options.output, mpi.provenance({}, arguments));
    read();
  }

  [[nodiscard]] int rounds() const { return static_cast<int>(measured_.front().rounds.size()); }

  void begin() const {
    if (options_.json)
      return;
    fmt::print("# {}\n{}# {}\n{}",
        record::version_text(),
        mpi_.map_text(),
        settings_,
        record::links_text(record::shaped_links()));
    if (rounds() > 0)
      fmt::print("# {} has {} already\n", options_.output, counted(rounds(), "round"));
    std::fflush(stdout);
  }

  /// Returns how many rounds there are now.
  [[nodiscard]] int add(std::vector<std::vector<double>> values) {
    for (std::size_t q = 0; q < values.size(); ++q)
      measured_[q].rounds.push_back(std::move(values[q]));
    write(judged(), {});
    return rounds();
  }

  /// The exit code.
  [[nodiscard]] int end(bool complete) {
    const Judgement judgement = judged();
    const Words words =
        words_of(machine_, measured_, judgement, rounds(), complete ? 0 : options_.rounds);
    write(judgement, words);
    if (options_.json)
      write_stdout(json_text(json(judgement, words)));
    else
      write_stdout(table(judgement) + text(judgement.culprits, words));
    if (!options_.output.empty() && !options_.json)
      fmt::print("# results: {}\n", options_.output);
    return words.code;
  }

private:
  [[nodiscard]] Judgement judged() const {
    return judge(machine_,
        measured_,
        {.least = options_.least / 100, .rounds = std::max(2, rounds() / 2 + 1)});
  }

  [[nodiscard]] std::vector<hsize_t> shape(const Measured& m) const {
    return {m.rounds.size(),
        static_cast<hsize_t>(machine_.nodes.ranks()),
        static_cast<hsize_t>(machine_.partners(m.quantity.partner))};
  }

  void write(const Judgement& judgement, const Words& words) {
    if (!recorder_)
      return;
    const int ranks = machine_.nodes.ranks();
    const auto node_of = [&](int rank) { return std::int64_t{machine_.nodes.group_of(rank)}; };
    std::vector<double> smallest;
    for (const auto& [part, link] : judgement.smallest)
      smallest.insert(smallest.end(), {part, link});
    std::vector<Dataset> all = {record::entry("settings", settings_),
        record::entry("verdict", words.verdict),
        record::entry("judged", words.judged),
        record::entry("sure", words.sure),
        record::entry("not_seen", words.not_seen),
        record::entry("next", words.next),
        record::entry("culprits",
            "culprit",
            list_of(judgement.culprits, [&](const Culprit& c) { return sentence(c); })),
        record::entry("quantities",
            "quantity",
            list_of(measured_, [](const Measured& m) { return m.quantity.name; })),
        {"named_from",
            "share of the rate, or s",
            "quantity, part or link",
            smallest,
            {measured_.size(), 2}},
        {"node_of_rank",
            "1",
            "rank",
            list_of(std::views::iota(0, ranks), node_of),
            {static_cast<hsize_t>(ranks)}}};
    for (const Measured& m : measured_) {
      std::vector<double> flat;
      for (const std::vector<double>& round : m.rounds)
        flat.insert(flat.end(), round.begin(), round.end());
      constexpr const char* partner[] = {"one", "rank of its node", "node"};
      all.push_back({path_of(m.quantity.name),
          m.quantity.units,
          fmt::format("round, rank, {}", partner[static_cast<int>(m.quantity.partner)]),
          flat,
          shape(m)});
    }
    recorder_->put("screen", std::move(all));
  }

  void read() {
    if (H5Lexists(recorder_->file(), "screen", H5P_DEFAULT) <= 0)
      return;
    const std::string before =
        h5::read<std::string>(recorder_->file(), "screen/settings", 0).values.at(0);
    if (before != settings_)
      throw InputError(fmt::format("{} was measured with other settings ({}); choose another file",
          options_.output,
          before));
    for (Measured& m : measured_) {
      const auto found =
          h5::read<double>(recorder_->file(), "screen/" + path_of(m.quantity.name), 3);
      const std::size_t size = found.shape[1] * found.shape[2];
      for (std::size_t r = 0; r < found.shape[0]; ++r)
        m.rounds.emplace_back(found.values.begin() + static_cast<std::ptrdiff_t>(r * size),
            found.values.begin() + static_cast<std::ptrdiff_t>((r + 1) * size));
    }
  }

  [[nodiscard]] std::string name(const Culprit& c) const { return name_of(c, machine_, names_); }

  [[nodiscard]] std::string sentence(const Culprit& c) const {
    return fmt::format("{}; {}",
        name(c),
        fmt::join(list_of(c.evidence, [](const screen::Evidence& e) { return text_of(e); }), "; "));
  }

  /// Lowest, median and highest of all rounds, the smallest loss that would have been named, and
  /// what is known.
  [[nodiscard]] std::string table(const Judgement& judgement) const {
    std::string text = fmt::format("# {:<40} {:>12} {:>12} {:>12} {:>14}  {}\n",
        "",
        "lowest",
        "median",
        "highest",
        "named from",
        "known");
    const auto rows = summary();
    for (std::size_t q = 0; q < rows.size(); ++q) {
      const auto& [quantity, values] = rows[q];
      text += fmt::format("  {:<40}", quantity->name);
      for (const double value : values)
        text += fmt::format(" {:>12}", screen::readable(value, *quantity));
      const auto& [part, link] = judgement.smallest[q];
      const std::string from =
          quantity->is_load ? "" : screen::text_of(std::isnan(part) ? link : part, *quantity);
      text += fmt::format(" {:>14}  {}", from, known_text(q, values[1]));
      text.erase(text.find_last_not_of(' ') + 1);
      text += "\n";
    }
    return text;
  }

  /// "62 % of 100 Mbit/s (shaped links; at least 80 %)"
  [[nodiscard]] std::string known_text(std::size_t q, double reached) const {
    const double known = known_value(q);
    const screen::Quantity& quantity = measured_[q].quantity;
    if (std::isnan(known))
      return "";
    const screen::Known& is = measured_[q].known;
    const std::string value = screen::readable(known, quantity);
    if (quantity.is_latency)
      return fmt::format("{} ({}; at most {:.1f} times)", value, is.source, 1 / is.least);
    return fmt::format("{:.0f} % of {} ({}; at least {:.0f} %)",
        100 * reached / known,
        value,
        is.source,
        100 * is.least);
  }

  /// NaN: not known.
  [[nodiscard]] double known_value(std::size_t q) const {
    std::vector<double> values = measured_[q].known.values;
    std::erase_if(values, [](double v) { return std::isnan(v); });
    return median(values);
  }

  [[nodiscard]] std::vector<std::pair<const screen::Quantity*, std::array<double, 3>>>
  summary() const {
    std::vector<std::pair<const screen::Quantity*, std::array<double, 3>>> rows;
    for (const Measured& m : measured_) {
      std::vector<double> all;
      for (const std::vector<double>& round : m.rounds)
        std::ranges::copy_if(
            round, std::back_inserter(all), [](double v) { return !std::isnan(v); });
      std::ranges::sort(all);
      rows.push_back({&m.quantity, {quantile(all, 0), quantile(all, 0.5), quantile(all, 1)}});
    }
    return rows;
  }

  [[nodiscard]] std::string text(const std::vector<Culprit>& culprits, const Words& words) const {
    std::string text;
    std::set<std::string> hosts;
    for (const Culprit& c : culprits) {
      text += fmt::format("CULPRIT: {}\n", name(c));
      for (const screen::Evidence& e : c.evidence)
        text += fmt::format("  {}\n", screen::text_of(e));
      if (c.who.kind == screen::Suspect::rank && !mpi_.ranks[c.who.a].uuid.empty())
        text += fmt::format("  {}, {}\n", mpi_.ranks[c.who.a].unit, mpi_.ranks[c.who.a].uuid);
      for (const int node : nodes_of(c, machine_))
        hosts.insert(names_[node]);
    }
    if (!hosts.empty() && mpi_.hosts.shown())
      text += fmt::format("# scontrol update nodename={} state=drain reason=\"minitaw screen\"\n",
          fmt::join(hosts, ","));
    text +=
        fmt::format("# judged:   {}\n# sure:     {}\n# not seen: {}\n# next:     {}\nVERDICT: {}\n",
            words.judged,
            words.sure,
            words.not_seen,
            words.next,
            words.verdict);
    return text;
  }

  [[nodiscard]] Json json(const Judgement& judgement, const Words& words) const {
    Json found = Json::array(), quantities = Json::array();
    for (const Culprit& c : judgement.culprits) {
      constexpr const char* kinds[] = {"rank", "node", "adapter", "link", "ranks", "adapters"};
      Json evidence = Json::array(), hosts = Json::array();
      for (const screen::Evidence& e : c.evidence)
        evidence.push_back({{"quantity", e.quantity.name + e.way},
            {"units", e.quantity.units},
            {"value", e.value},
            {e.source.empty() ? "usual" : "known", e.usual},
            {"rounds", e.rounds}});
      for (const int node : nodes_of(c, machine_))
        hosts.push_back(names_[node]);
      const auto [kind, a, b] = c.who;
      Json ranks =
          kind == screen::Suspect::node ? Json(machine_.nodes.members(a)) : Json::array({a});
      if (kind == screen::Suspect::link)
        ranks.push_back(b);
      if (!c.among.empty())
        ranks = c.among;
      found.push_back({{"kind", kinds[kind]},
          {"ranks", ranks},
          {"nodes", hosts},
          {"text", name(c)},
          {"evidence", evidence}});
    }
    const auto number = [](double value) { return std::isnan(value) ? Json() : Json(value); };
    const auto rows = summary();
    for (std::size_t q = 0; q < rows.size(); ++q) {
      const auto& [quantity, values] = rows[q];
      if (quantity->is_load)
        continue;
      quantities.push_back({{"name", quantity->name},
          {"units", quantity->units},
          {"lowest", number(values[0])},
          {"median", number(values[1])},
          {"highest", number(values[2])},
          {"known", number(known_value(q))},
          {"known_from", measured_[q].known.source},
          {"named_from",
              {{"part", number(judgement.smallest[q].part)},
                  {"link", number(judgement.smallest[q].link)}}}});
    }
    return {{"verdict", words.verdict},
        {"judged", words.judged},
        {"sure", words.sure},
        {"not_seen", words.not_seen},
        {"next", words.next},
        {"rounds", rounds()},
        {"load", number(judgement.load)},
        {"loaded_ranks", judgement.loaded},
        {"culprits", found},
        {"quantities", quantities},
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
int run_replay(const Options& options, MpiJob& mpi) {
  const deck::Deck deck = mpi.read(options.deck);
  const auto place = [&](const record::RankPlace& r) {
    return fmt::format("{}, {}", mpi.hosts.text(r.node), r.unit);
  };
  const replay::Report report =
      replay::compare_runs(mpi.runner, deck.cases.front(), list_of(mpi.ranks, place));
  const std::vector<std::string>& sentences = report.findings;
  const int code = report.runs > 2 ? 1 : 0;
  if (!mpi.is_root())
    return code;
  const std::string verdict =
      code == 0 ? "SAME: every bit of every action"
                : fmt::format("DIFFERENT: {}", counted(std::ssize(sentences), "first fault"));
  if (options.json)
    write_stdout(json_text({{"verdict", verdict},
        {"findings", sentences},
        {"runs", report.runs},
        {"actions", report.actions},
        {"buffers", report.tensors},
        {"bytes", report.bytes}}));
  else
    write_stdout(fmt::format("{}{}# {}: {}, {} actions, {} buffers and {} compared\nVERDICT: {}\n",
        mpi.map_text(),
        sentences.empty() ? "" : fmt::format("CULPRIT: {}\n", fmt::join(sentences, "\nCULPRIT: ")),
        deck.cases.front().schedule,
        counted(report.runs, "run"),
        report.actions,
        report.tensors,
        size_text(static_cast<std::uint64_t>(report.bytes)),
        verdict));
  return code;
}

int screening(const Options& options, const Invocation& invocation, MpiJob& mpi) {
  if (options.replay)
    return run_replay(options, mpi);
  model::Shape shape = usual_shape();
  if (!options.deck.path.empty())
    shape = mpi.read(options.deck).cases.front().shape;
  const int nodes = mpi.place.nodes.count(), adapters = mpi.adapters;
  const double measurements =
      1.0 * options.rounds * std::max(1, nodes - 1) * (adapters > 1 ? adapters + 1 : 1);
  const bool shows = mpi.is_root() && isatty(STDERR_FILENO) != 0;
  int round = 0;
  const auto expect = [&](const std::string& stage) {
    mpi.runner.guard().expect(stage, std::chrono::duration<double>(mpi.flags.watchdog));
  };
  const auto next = [&](const std::string& stage) {
    mpi.runner.advance();
    expect(stage);
    if (shows)
      fmt::print(stderr, "\r\033[Kround {} of {}: {}", round + 1, options.rounds, stage);
  };
  expect("getting ready");
  const bool shared_devices = topology::shared_device(mpi.uuids).has_value();
  const auto probe = screen::make_probe(MPI_COMM_WORLD,
      mpi.place,
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
  for (screen::Quantity& quantity : probe->quantities())
    measured.push_back({std::move(quantity)});
  const screen::Machine& machine = probe->machine();
  std::optional<Report> report;  // rank 0's
  const HardwareRates rates = hardware_rates(mpi, shape.dtype);
  round = mpi.on_root([&] {
    if (options.expect != "none")
      expect_hardware(measured, rates);
    if (!options.expect.empty() && options.expect != "none")
      expect_machine(measured, options.expect, shape, machine.nodes.ranks());
    report.emplace(
        options, mpi, machine, measured, settings_of(shape, machine), invocation.arguments());
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
  if (shows)
    fmt::print(stderr, "\r\033[K");
  const int code = mpi.on_root([&] { return report->end(round >= options.rounds); });
  mpi.runner.guard().pause();
  return code;
}
}  // namespace

void add_screen(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  options->job.watchdog = 60;
  CLI::App* verb = app.add_subcommand("screen",
      "find the rank, node, adapter or link that is slower than its peers; start it with mpiexec "
      "or srun");
  auto* deck = verb->add_option(
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
  verb->add_flag("--replay",
          options->replay,
          "instead: execute steps of the deck's first case on other ranks again, and compare every "
          "bit")
      ->needs(deck);
  verb->add_flag("--json", options->json, "JSON on standard output, nothing else");
  verb->add_flag("--hosts",
      options->job.hosts,
      "print the names of the hosts, and those of culprits for scontrol");
  add_job_flags(*verb, options->job);
  verb->callback([&invocation, options] {
    invocation.code = in_job(
        invocation, options->job, [&](auto& mpi) { return screening(*options, invocation, mpi); });
  });
}
}  // namespace minitaw::app
