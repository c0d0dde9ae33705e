// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/ranges.h>
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
#include "instruments/rating.hpp"
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
  bool json = false, best = false, rating = false;
  bool fitting = false;  ///< leaves out cases that do not fit
  double seconds = 60;   ///< of --best and --rating
};

/// A case and what is predicted of it: a row of the table.
struct Predicted {
  Case asked;
  Prediction prediction;
  trace::RankTime total = trace::total_of(prediction.account.ranks);
  double whole = prediction.account.length * prediction.account.ranks.size();  ///< of `total`
};

using Columns = std::vector<TableColumn<Predicted>>;

Columns figures_of(const Machine& machine) {
  using P = Predicted;
  const auto share = [](const char* title, const char* name, bool wide, auto value) {
    return TableColumn<P>{.title = title,
        .units = "%",
        .value = value,
        .format = as_percent,
        .wide = wide,
        .name = name};
  };
  TableColumn<P> mfu = mfu_column<P>();
  mfu.wide = true;
  return {step_column<P>(),
      rate_column<P>(),
      {.title = "rate/rank",
          .units = "token/s",
          .value = [](const P& p) { return p.prediction.tokens_per_s / p.asked.ranks; },
          .wide = true},
      mfu,
      share("compute", "compute", true, [](const P& p) { return p.total.compute / p.whole; }),
      share("exposed", "", false, [](const P& p) { return p.total.exposed_total() / p.whole; }),
      share("idle", "idle", false, [](const P& p) { return p.total.idle / p.whole; }),
      {.title = "adapter",
          .units = "busy, %",
          .value =
              [rate = machine.rate](const P& p) {
                return p.prediction.traffic.busiest / (rate * p.prediction.seconds);
              },
          .format = as_percent,
          .name = "adapter_busy"},
      memory_column<P>(),
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
  for (const int kind : indices(p.total.exposed))
    json["exposed"][schedule::name_of(static_cast<schedule::Traffic>(kind))] =
        p.total.exposed[kind] / p.whole;
  json["overlap"] = p.total.communication > 0 ? p.total.overlap() : 0;
  json["transfer_s"] = p.prediction.transfer;
  json["bytes_between"] = p.prediction.traffic.between;
  json["fits"] = machine.memory > 0 ? Json(machine.has_room(p.prediction.memory)) : Json();
  return json;
}

/// Returns the timeline of all ranks, or of the first replica if it stood for all.
trace::Timeline timeline_of(const PlannedCase& plan, const Machine& machine, const Prediction& p) {
  const Case& c = plan.asked;
  const int ranks = std::ssize(p.spans);
  const topology::Groups& groups = ranks == c.ranks ? c.groups : plan.program->groups;
  const std::string of_replicas =
      ranks == c.ranks ? "" : fmt::format(", the first of {} replicas", c.replicas);
  return trace::make_timeline(*plan.program,
      p.spans,
      groups,
      fmt::format("{}: {} in groups {}{}\nS = {}, M = {}; {}: step {:.4g} s",
          c.schedule,
          counted(ranks, "rank"),
          groups.text(),
          of_replicas,
          c.shape.seq,
          c.micro_batches,
          machine.name,
          p.seconds));
}

/// The cases of the deck. `notes` gets how many were left out.
std::vector<Predicted> predict_all(const deck::Deck& deck,
    const Machine& machine,
    const PredictOptions& options,
    std::vector<std::string>& notes) {
  std::vector<Predicted> all;
  std::vector<trace::Timeline> timelines;
  int too_large = 0;
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
    all.push_back({c, std::move(p)});
  }
  if (too_large > 0)
    notes.push_back(fmt::format("left out for lack of memory: {}", counted(too_large, "case")));
  if (options.timeline.empty())
    return all;
  std::ofstream file(options.timeline, std::ios::binary);
  file << trace::to_json(timelines);
  file.close();
  if (!file)
    throw InputError("--timeline: {} cannot be written", options.timeline);
  return all;
}

/// The best way of each family to spread the deck's case.
std::vector<Predicted> predict_best(const deck::Deck& deck,
    const Machine& machine,
    double seconds,
    std::vector<std::string>& notes) {
  if (deck.cases.size() + deck.left_out.size() != 1)
    throw InputError("--best: it takes one case, which says model, ranks and sequences of a step");
  std::vector<Predicted> best;
  int tried = 0;
  std::vector<std::string> late;
  std::map<std::string, std::vector<std::string>> lost;  // names of families
  const auto deadline = predict::deadline_in(seconds);
  for (const predict::Found& found :
      predict::search(deck.cases.front(), machine, {.deadline = deadline})) {
    tried += found.tried;
    const std::string& name = found.family;
    if (found.prediction)
      best.push_back({found.asked, *found.prediction});
    else
      lost[found.why].push_back(name);
    if (found.prediction && !found.in_time)
      late.push_back(name);
  }
  notes.push_back(
      fmt::format("{} planned, the fastest of each family is shown", counted(tried, "case")));
  for (const auto& [why, names] : lost)
    notes.push_back(fmt::format("{}: {}", why, fmt::join(names, ", ")));
  if (!late.empty())
    notes.push_back(fmt::format("not all tried in time: {}", fmt::join(late, ", ")));
  constexpr double close = 1.01;
  std::vector<std::string> ties;
  for (const Predicted& p : best)
    if (p.prediction.seconds <= close * best.front().prediction.seconds)
      ties.push_back(schedule::parse_spec(p.asked.schedule).name);
  if (ties.size() > 1)
    notes.push_back(fmt::format("a tie, within 1 % of the fastest: {}", fmt::join(ties, ", ")));
  return best;
}

std::string heading_of(const Machine& machine, const std::vector<std::string>& notes) {
  std::string text;
  for (const std::string& note : notes)
    text += fmt::format("# {}\n", note);
  return text + fmt::format("# machine = {} ({} of {})\n",
                    machine.name,
                    counted(machine.nodes, "node"),
                    counted(machine.ranks_per_node, "rank"));
}

std::string text_of(const Machine& machine, const std::vector<Predicted>& all, bool best) {
  std::vector<std::string> settings = {"replicas", "groups", "context", "micro_batch", "recompute"};
  if (!best) {
    settings = varying_settings(list_of(all, &Predicted::asked));
    std::erase(settings, "schedule");
  }
  Columns columns = {setting_column<Predicted>("schedule")};
  columns.front().width = -1;
  std::ranges::transform(settings, std::back_inserter(columns), setting_column<Predicted>);
  std::ranges::move(figures_of(machine), std::back_inserter(columns));
  return TextTable<Predicted>(columns, all, isatty(STDOUT_FILENO) != 0).text(all);
}

deck::Deck read(const PredictOptions& options, const Machine& machine) {
  return deck::read_deck(options.deck.path,
      options.deck.overrides,
      {.ranks = machine.ranks(),
          .node_sizes = std::vector<int>(machine.nodes, machine.ranks_per_node),
          .planning = true,
          .adapters = machine.adapters});
}

constexpr std::string_view replicas_key = "replicas=";

bool sets_replicas(const std::string& override) {
  return override.starts_with(replicas_key);
}

/// The fewest replicas, of whole nodes, with which every schedule of the deck can be run; 1 if
/// there are none.
int fewest_replicas(PredictOptions options, const Machine& machine) {
  std::vector<std::string>& overrides = options.deck.overrides;
  std::erase_if(overrides, sets_replicas);
  overrides.emplace_back();
  for (int replicas = 1; replicas <= machine.nodes; ++replicas) {
    if (machine.nodes % replicas != 0)
      continue;
    overrides.back() = fmt::format("{}{}", replicas_key, replicas);
    try {
      if (read(options, machine).left_out.empty())
        return replicas;
    } catch (const InputError&) {  // none of them can
    }
  }
  return 1;
}

void run_rating(const Invocation& invocation, PredictOptions options, const Machine& machine) {
  const int fewest = fewest_replicas(options, machine);
  if (fewest > 1 && std::ranges::none_of(options.deck.overrides, sets_replicas))
    options.deck.overrides.push_back(fmt::format("{}{}", replicas_key, fewest));
  const deck::Deck deck = read(options, machine);
  std::vector<std::string> others = varying_settings(deck.cases);
  std::erase_if(others, [](const auto& name) { return name == "schedule" || name == "seq"; });
  if (!others.empty())
    throw InputError("--rating: cases differ in {}; only schedule and seq may have several values",
        others.front());
  predict::Ratings ratings = predict::rate(deck.cases, fewest, machine, options.seconds);
  ratings.notes.insert(ratings.notes.begin(), deck.notes.begin(), deck.notes.end());
  ratings.notes.insert(ratings.notes.begin(),
      fmt::format(
          "replicas: {} are the fewest of whole nodes that every schedule can run with", fewest));
  const std::vector<std::string>& notes = ratings.notes;
  if (!options.json)
    return tell_ratings(ratings, heading_of(machine, notes));
  Json json = {{"machine", machine.name}, {"notes", notes}};
  json.update(ratings_json(ratings));
  write_json(invocation, json);
}

void run(const Invocation& invocation, const PredictOptions& options) {
  if (!options.timeline.empty() && !options.timeline.ends_with(".json"))
    throw InputError(
        "--timeline: \"{}\" must end in .json; scripts/timeline draws it", options.timeline);
  const Machine machine = predict::read_machine(options.machine, options.changes);
  if (options.rating)
    return run_rating(invocation, options, machine);
  const deck::Deck deck = read(options, machine);
  std::vector<std::string> notes = deck.notes;
  const std::vector<Predicted> all = options.best
                                         ? predict_best(deck, machine, options.seconds, notes)
                                         : predict_all(deck, machine, options, notes);
  if (!options.json)
    return write_stdout(heading_of(machine, notes) + text_of(machine, all, options.best));
  const auto json = [&](const Predicted& p) { return to_json(machine, p); };
  write_json(invocation,
      {{"machine", machine.name},
          {"between_bytes_per_s", machine.rate},
          {"notes", notes},
          {"cases", list_of(all, json)}});
}

class Predict final : public Verb {
public:
  explicit Predict(CLI::App& app) : Verb(app, "predict", predict_purpose) {
    add_deck(command_, options_.deck);
    command_
        .add_option(
            "--machine", options_.machine, "TOML file that describes the machine (docs/predict.md)")
        ->required()
        ->type_name("FILE");
    command_
        .add_option("--machine-set",
            options_.changes,
            "change a key of the machine: between.rate='25 Gbit/s'")
        ->type_name("KEY=VALUE");
    add_json(command_, options_.json);
    command_.add_flag("--fitting",
        options_.fitting,
        "leave out cases that do not fit device.memory, without predicting them");
    CLI::Option* best = command_.add_flag("--best",
        options_.best,
        "try schedules and their options, replicas, groups, context, micro-batches and "
        "recomputation for the sequences of the one case");
    CLI::Option* rating = command_.add_flag("--rating",
        options_.rating,
        "the rating of the deck as it is and with the best settings, and what half of the network, "
        "of the links inside nodes or of the memory's rate costs");
    rating->excludes(best);
    command_
        .add_option("--time-limit", options_.seconds, "seconds that --best or --rating may take")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    command_
        .add_option("--timeline",
            options_.timeline,
            "write when every action of the predicted steps runs, for scripts/timeline")
        ->type_name("FILE.json")
        ->excludes(best)
        ->excludes(rating);
  }

  int execute(const Invocation& invocation) override {
    run(invocation, options_);
    return 0;
  }

private:
  PredictOptions options_;
};
}  // namespace

std::unique_ptr<Verb> make_predict(CLI::App& app) {
  return std::make_unique<Predict>(app);
}
}  // namespace minitaw::app
