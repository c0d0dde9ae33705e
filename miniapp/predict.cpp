#include "predict/predict.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "cli/cli11.hpp"
#include "output.hpp"
#include "verb.hpp"

namespace minitaw::app {
namespace {

using nlohmann::ordered_json;
using predict::Machine;
using predict::Prediction;

struct Options {
  DeckOptions deck;
  std::string machine;
  std::vector<std::string> changes;  ///< of the machine: "between.rate=25 Gbit/s"
  bool json = false;
};

/// Means over the ranks, as shares of the step.
struct Shares {
  double compute = 0, exposed = 0, idle = 0, overlap = 0;
  std::array<double, schedule::traffic_kinds> by_kind{};

  explicit Shares(const engine::StepAccount& account) {
    const double whole = account.length * static_cast<double>(account.ranks.size());
    double communication = 0, hidden = 0;
    for (const engine::RankAccount& rank : account.ranks) {
      compute += rank.compute / whole;
      exposed += rank.exposed_total() / whole;
      idle += rank.idle / whole;
      communication += rank.communication;
      hidden += rank.hidden;
      for (std::size_t k = 0; k < by_kind.size(); ++k) by_kind[k] += rank.exposed[k] / whole;
    }
    overlap = communication > 0 ? hidden / communication : 0;
  }
};

double busiest(const Prediction& p, const Machine& machine) {
  double most = 0;
  for (const predict::AdapterUse& use : p.adapters) most = std::max({most, use.out, use.in});
  return machine.rate > 0 ? most / machine.rate / p.seconds : 0;
}

ordered_json to_json(const deck::Case& c, const Machine& machine, const Prediction& p) {
  const Shares shares(p.account);
  ordered_json exposed, adapters = ordered_json::array();
  for (int k = 0; k < schedule::traffic_kinds; ++k)
    exposed[schedule::name_of(static_cast<schedule::Traffic>(k))] = shares.by_kind[static_cast<std::size_t>(k)];
  for (const predict::AdapterUse& use : p.adapters) {
    const double whole = machine.rate * p.seconds;
    adapters.push_back({{"out_bytes", use.out}, {"in_bytes", use.in}, {"out_busy", use.out / whole}, {"in_busy", use.in / whole}});
  }
  return {{"settings", deck::identity(c)},
          {"step_s", p.seconds},
          {"tokens_per_s", p.tokens_per_s},
          {"mfu", p.mfu > 0 ? ordered_json(p.mfu) : ordered_json()},
          {"compute", shares.compute},
          {"exposed", exposed},
          {"idle", shares.idle},
          {"overlap", shares.overlap},
          {"memory_bytes", p.worst_memory()},
          {"adapters", adapters}};
}

std::string row(const deck::Case& c, const Machine& machine, const Prediction& p) {
  const Shares shares(p.account);
  const bool fits = !machine.memory || p.worst_memory() <= *machine.memory;
  return fmt::format("  {:<24} {:>5} {:<10} {:>6} {:>3} {:>5} {:>10.4g} {:>10.4g} {:>6} {:>8.1f} {:>8.1f} {:>6.1f} {:>8.1f} {:>9.2f}{}\n",
                     c.schedule, deck::ranks_text(c.ranks, c.replicas), c.groups.count() > 4 ? fmt::format("{} groups", c.groups.count()) : c.groups.text(), c.shape.seq, c.shape.micro_batch, c.micro_batches,
                     p.seconds, p.tokens_per_s, p.mfu > 0 ? fmt::format("{:.1f}", 100 * p.mfu) : "-",
                     100 * shares.compute, 100 * shares.exposed, 100 * shares.idle, 100 * busiest(p, machine),
                     static_cast<double>(p.worst_memory()) / (1 << 30), fits ? "" : "  does not fit");
}

std::string head(const Machine& machine) {
  return fmt::format("# machine = {} ({} nodes of {} ranks)\n# {:<24} {:>5} {:<10} {:>6} {:>3} {:>5} {:>10} {:>10} {:>6} {:>8} {:>8} {:>6} {:>8} {:>9}\n"
                     "# {:<24} {:>5} {:<10} {:>6} {:>3} {:>5} {:>10} {:>10} {:>6} {:>8} {:>8} {:>6} {:>8} {:>9}\n",
                     machine.name, machine.nodes, machine.ranks_per_node, "schedule", "ranks", "groups", "seq", "B", "M", "step", "rate", "MFU",
                     "compute", "exposed", "idle", "adapter", "memory", "", "", "", "token", "", "", "s", "token/s", "%", "%", "%", "%", "busy, %", "GiB");
}

/// On standard error, where somebody looks at it.
std::function<void(double)> progress_of(std::size_t number, std::size_t cases) {
  if (isatty(STDERR_FILENO) == 0) return {};
  return [=](double part) {
    fmt::print(stderr, "\rcase {} of {}: {:3.0f} %{}", number + 1, cases, 100 * part, part < 1 ? "" : "\r\x1b[K");
  };
}

int run(const Options& options) {
  const Machine machine = predict::read_machine(options.machine, options.changes);
  const std::vector<int> nodes(static_cast<std::size_t>(machine.nodes), machine.ranks_per_node);
  const deck::Deck deck = deck::read_deck(options.deck.path, options.deck.overrides,
                                          {.ranks = machine.ranks(), .node_sizes = nodes, .planning = true});
  ordered_json all = ordered_json::array();
  if (!options.json) {
    for (const std::string& note : deck.notes) fmt::print("# {}\n", note);
    fmt::print("{}", head(machine));
  }
  for (std::size_t i = 0; i < deck.cases.size(); ++i) {
    const deck::Case& c = deck.cases[i];
    const std::function<void(double)> progress = progress_of(i, deck.cases.size());
    const Prediction p = predict::predict(c, machine, progress);
    if (progress) progress(1);
    if (options.json) all.push_back(to_json(c, machine, p));
    else put_out(row(c, machine, p));
  }
  if (options.json) put_out(ordered_json{{"machine", machine.name}, {"notes", deck.notes}, {"cases", all}}.dump(2) + "\n");
  return 0;
}

}  // namespace

void add_predict(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand(
      "predict", "what a step costs on a machine that is described in a file; needs no MPI job and no device");
  add_deck(*verb, options->deck);
  verb->add_option("--machine", options->machine, "TOML file that describes the machine (docs/predict.md)")
      ->required()
      ->type_name("FILE");
  verb->add_option("--machine-set", options->changes, "change a key of the machine: between.rate='25 Gbit/s'")
      ->type_name("KEY=VALUE");
  verb->add_flag("--json", options->json, "JSON on standard output, nothing else");
  verb->callback([&invocation, options] { invocation.action = [options] { return run(*options); }; });
}

}  // namespace minitaw::app
