// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <unistd.h>
#include "base/error.hpp"
#include "base/range.hpp"
#include "cli/cli11.hpp"
#include "deck/deck.hpp"
#include "instruments/predict/search.hpp"
#include "instruments/verbs.hpp"
#include "record/verdict.hpp"
#include "trace/timeline.hpp"

namespace minitaw::app {
namespace {
using predict::Machine, predict::Prediction;

struct PredictOptions {
  DeckOptions deck;
  std::string machine;
  std::vector<std::string> changes;  ///< of the machine: "between.rate=25 Gbit/s"
  std::string timeline;              ///< file; empty: none
  bool json = false, best = false;
  bool fitting = false;  ///< leaves out cases that do not fit
  double seconds = 60;   ///< of --best
};

/// A case and what is predicted of it: a row of the table.
struct Predicted {
  Case asked;
  Prediction prediction;
  trace::RankTime total;  ///< of all ranks
  double whole;           ///< its length

  Predicted(const Case& c, Prediction p)
      : asked(c),
        prediction(std::move(p)),
        total(trace::total_of(prediction.account.ranks)),
        whole(prediction.account.length * prediction.account.ranks.size()) {}
};

using Columns = std::vector<TableColumn<Predicted>>;

/// Of --best, beside the schedule.
const std::vector<std::string> searched = {
    "replicas", "groups", "context", "micro_batch", "recompute"};

TableColumn<Predicted> share_column(
    const char* title, const char* units, bool wide, const char* name, auto value) {
  return {.title = title,
      .units = units,
      .value = value,
      .format = as_percent,
      .wide = wide,
      .name = name};
}

Columns figures_of(const Machine& machine) {
  using P = Predicted;
  return {{.title = "step",
              .units = "s",
              .value = [](const P& p) { return p.prediction.seconds; },
              .name = "step_s"},
      {.title = "rate",
          .units = "token/s",
          .value = [](const P& p) { return p.prediction.tokens_per_s; },
          .name = "tokens_per_s"},
      {.title = "rate/rank",
          .units = "token/s",
          .value = [](const P& p) { return p.prediction.tokens_per_s / p.asked.ranks; },
          .wide = true},
      share_column("MFU", "%", true, "mfu", [](const P& p) { return p.prediction.mfu; }),
      share_column(
          "compute", "%", true, "compute", [](const P& p) { return p.total.compute / p.whole; }),
      share_column(
          "exposed", "%", false, "", [](const P& p) { return p.total.exposed_total() / p.whole; }),
      share_column("idle", "%", false, "idle", [](const P& p) { return p.total.idle / p.whole; }),
      share_column("adapter",
          "busy, %",
          false,
          "adapter_busy",
          [rate = machine.rate](
              const P& p) { return p.prediction.traffic.busiest / (rate * p.prediction.seconds); }),
      {.title = "memory",
          .units = "GiB",
          .value = [](const P& p) -> std::int64_t { return p.prediction.memory; },
          .format = {.factor = 0x1p-30, .style = Format::fixed, .decimals = 2},
          .name = "memory_bytes"},
      {.title = "",
          .value =
              [machine](const P& p) {
                return machine.has_room(p.prediction.memory) ? "" : "does not fit";
              },
          .width = -1}};
}

Json to_json(const Machine& machine, const Predicted& p) {
  Json json = {{"settings", settings_json(p.asked)}};
  put(json, figures_of(machine), p);
  for (std::size_t k = 0; k < p.total.exposed.size(); ++k)
    json["exposed"][schedule::name_of(static_cast<schedule::Traffic>(k))] =
        p.total.exposed[k] / p.whole;
  json["overlap"] = p.total.communication > 0 ? p.total.overlap() : 0;
  json["transfer_s"] = p.prediction.transfer;
  json["bytes_between"] = p.prediction.traffic.between;
  json["fits"] = machine.memory > 0 ? Json(machine.has_room(p.prediction.memory)) : Json();
  return json;
}

/// Returns the timeline of all ranks, or of the first replica if it stood for all.
trace::Timeline timeline_of(const PlannedCase& plan, const Machine& machine, const Prediction& p) {
  const Case& c = plan.asked;
  const topology::Groups& groups = std::ssize(p.spans) == c.ranks ? c.groups : plan.program->groups;
  return trace::make_timeline(*plan.program,
      p.spans,
      groups,
      fmt::format("{}: {} in groups {}{}\nS = {}, M = {}; {}: step {:.4g} s",
          c.schedule,
          counted(std::ssize(p.spans), "rank"),
          groups.text(),
          std::ssize(p.spans) == c.ranks ? ""
                                         : fmt::format(", the first of {} replicas", c.replicas),
          c.shape.seq,
          c.micro_batches,
          machine.name,
          p.seconds));
}

void write_timelines(const std::string& path, const std::vector<trace::Timeline>& timelines) {
  std::ofstream file(path, std::ios::binary);
  file << trace::to_json(timelines);
  file.close();
  if (!file)
    throw InputError("--timeline: {} cannot be written", path);
}

/// The cases of the deck. `notes` gets how many were left out.
std::vector<Predicted> predict_all(const deck::Deck& deck,
    const Machine& machine,
    const PredictOptions& options,
    std::vector<std::string>& notes) {
  std::vector<Predicted> all;
  std::vector<trace::Timeline> timelines;
  std::ptrdiff_t too_large = 0;
  Planner planner;
  for (const Case& c : deck.cases) {
    const Plan plan = planner.plan(c);
    if (options.fitting && !machine.has_room(predict::floor_of(plan, machine).memory)) {
      ++too_large;
      continue;
    }
    Prediction p = predict::predict(plan, machine);
    if (!options.timeline.empty())
      timelines.push_back(timeline_of(*plan, machine, p));
    p.spans = {};
    all.emplace_back(c, std::move(p));
  }
  if (too_large > 0)
    notes.push_back(fmt::format("left out for lack of memory: {}", counted(too_large, "case")));
  if (!options.timeline.empty())
    write_timelines(options.timeline, timelines);
  return all;
}

/// The best ways to spread the deck's case. `notes` gets why the others are not among them.
std::vector<Predicted> predict_best(const deck::Deck& deck,
    const Machine& machine,
    double seconds,
    std::vector<std::string>& notes) {
  constexpr std::size_t shown = 10;
  if (deck.cases.size() + deck.left_out.size() != 1)
    throw InputError("--best: it takes one case, which says model, ranks and sequences of a step");
  std::vector<Predicted> best;
  std::map<std::string, int> lost;
  int tried = 0;
  for (const predict::Candidate& c : predict::search(deck.cases.front(), machine, shown, seconds)) {
    ++tried;
    if (c.prediction && best.size() < shown)
      best.emplace_back(c.asked, *c.prediction);
    else
      ++lost[c.prediction ? "are slower" : c.why];
  }
  std::string note = fmt::format("{} tried", tried);
  for (const auto& [why, count] : lost)
    note += fmt::format("; {} {}", count, why);
  notes.push_back(note);
  return best;
}

void print(const Machine& machine,
    const std::vector<Predicted>& all,
    const std::vector<std::string>& notes,
    bool best) {
  std::string text;
  for (const std::string& note : notes)
    text += fmt::format("# {}\n", note);
  text += fmt::format("# machine = {} ({} of {})\n",
      machine.name,
      counted(machine.nodes, "node"),
      counted(machine.ranks_per_node, "rank"));
  Columns columns = {setting_column<Predicted>("schedule")};
  columns.front().width = -1;
  for (const std::string& name :
      best ? searched : varying_settings(list_of(all, &Predicted::asked)))
    if (name != "schedule")
      columns.push_back(setting_column<Predicted>(name));
  std::ranges::move(figures_of(machine), std::back_inserter(columns));
  const TextTable<Predicted> table(columns, all, isatty(STDOUT_FILENO) != 0);
  text += table.header();
  for (const Predicted& p : all)
    text += table.row(p);
  write_stdout(text);
}

int run(const Invocation& invocation, const PredictOptions& options) {
  if (!options.timeline.empty() && !options.timeline.ends_with(".json"))
    throw InputError(
        "--timeline: \"{}\" must end in .json; scripts/timeline draws it", options.timeline);
  const Machine machine = predict::read_machine(options.machine, options.changes);
  const deck::Deck deck = deck::read_deck(options.deck.path,
      options.deck.overrides,
      {.ranks = machine.ranks(),
          .node_sizes = std::vector<int>(machine.nodes, machine.ranks_per_node),
          .planning = true,
          .adapters = machine.adapters});
  std::vector<std::string> notes = deck.notes;
  const std::vector<Predicted> all = options.best
                                         ? predict_best(deck, machine, options.seconds, notes)
                                         : predict_all(deck, machine, options, notes);
  if (!options.json) {
    print(machine, all, notes, options.best);
    return 0;
  }
  const auto json = [&](const Predicted& p) { return to_json(machine, p); };
  write_json(invocation,
      {{"machine", machine.name},
          {"between_bytes_per_s", machine.rate},
          {"notes", notes},
          {"cases", list_of(all, json)}});
  return 0;
}
}  // namespace

void add_predict(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<PredictOptions>();
  CLI::App* verb = app.add_subcommand("predict", predict_purpose);
  add_deck(*verb, options->deck);
  verb->add_option(
          "--machine", options->machine, "TOML file that describes the machine (docs/predict.md)")
      ->required()
      ->type_name("FILE");
  verb->add_option("--machine-set",
          options->changes,
          "change a key of the machine: between.rate='25 Gbit/s'")
      ->type_name("KEY=VALUE");
  verb->add_flag("--json", options->json, "JSON on standard output, nothing else");
  verb->add_flag("--fitting",
      options->fitting,
      "leave out cases that do not fit device.memory, without predicting them");
  CLI::Option* best = verb->add_flag("--best",
      options->best,
      "try schedules and their options, replicas, groups, context, micro-batches and recomputation "
      "for the sequences of the one case");
  verb->add_option("--time-limit", options->seconds, "seconds that --best may take")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->needs(best);
  verb->add_option("--timeline",
          options->timeline,
          "write when every action of the predicted steps runs, for scripts/timeline")
      ->type_name("FILE.json")
      ->excludes(best);
  verb->callback([&invocation, options] { invocation.code = run(invocation, *options); });
}
}  // namespace minitaw::app
