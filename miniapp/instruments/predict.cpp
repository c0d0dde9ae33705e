// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <ranges>
#include <unistd.h>
#include "base/error.hpp"
#include "cli/cli11.hpp"
#include "deck/deck.hpp"
#include "instruments/predict/search.hpp"
#include "instruments/verbs.hpp"
#include "record/table.hpp"
#include "signals.hpp"

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
  TableOptions table;
};

/// Sums over the ranks, and the time of all of them.
struct Total : trace::RankTime {
  double whole;

  explicit Total(const trace::StepAccount& account)
      : RankTime(trace::total_of(account.ranks)),
        whole(account.length * account.ranks.size()) {}
};

/// Shares of the step in which each adapter sends and receives.
std::vector<predict::AdapterUse> loads(const Prediction& p, const Machine& machine) {
  std::vector<predict::AdapterUse> found;
  for (const auto& [out, in] : p.adapters) {
    const double rate = machine.rates[found.size()];
    const double whole = rate > 0 ? rate * p.seconds : 1;  // without a network no byte moves
    found.push_back({out / whole, in / whole});
  }
  return found;
}

double busiest(const Prediction& p, const Machine& machine) {
  double most = 0;
  for (const auto& [out, in] : loads(p, machine))
    most = std::max({most, out, in});
  return most;
}

/// Seconds that transfers occupy lanes of a rank, the mean over ranks; waits for the other side
/// count, as in NCCL.
double transfer_seconds(const Prediction& p) {
  double sum = 0;
  for (std::size_t r = 0; r < p.spans.size(); ++r)
    for (std::size_t i = 0; i < p.spans[r].size(); ++i)
      if (is_communication(p.program.ranks[r].actions[i].kind))
        sum += p.spans[r][i].end - p.spans[r][i].begin;
  return sum / p.spans.size();
}

/// A case and what is predicted of it: a row of the table.
struct PredictedCase {
  const Case& settings;
  const Prediction& prediction;
  const Machine& machine;
};

using Column = TableColumn<PredictedCase>;
using Columns = std::vector<Column>;

/// "2+2", or "16 groups" of many.
std::string groups_text(const topology::Groups& groups) {
  return groups.count() > 4 ? fmt::format("{} groups", groups.count()) : groups.text();
}

using P = PredictedCase;

/// `name_width`: of the longest schedule.
Columns settings_columns(int name_width) {
  return {{.title = "schedule",
              .value = [](const P& p) { return p.settings.schedule; },
              .width = -name_width},
      {.title = "ranks",
          .value = [](const P& p) { return ranks_text(p.settings.ranks, p.settings.replicas); },
          .width = 5,
          .spare = 5},
      {.title = "groups",
          .value = [](const P& p) { return groups_text(p.settings.groups); },
          .width = -10,
          .spare = 8},
      {.title = "seq",
          .units = "token",
          .value = [](const P& p) { return p.settings.shape.seq; },
          .width = 6,
          .spare = 4},
      {.title = "B",
          .value = [](const P& p) { return p.settings.shape.micro_batch; },
          .width = 3,
          .spare = 7},
      {.title = "n",
          .value = [](const P& p) { return p.settings.shape.context.count; },
          .width = 2,
          .spare = 9},
      {.title = "M",
          .value = [](const P& p) { return p.settings.micro_batches; },
          .width = 5,
          .spare = 6}};
}

/// A share of the time of all ranks together. `name`: in JSON.
Column share_column(
    const char* title, double (*part)(const Total&), int width, int spare, const char* name) {
  return {.title = title,
      .units = "%",
      .value =
          [part](const P& p) {
            const Total total(p.prediction.account);
            return part(total) / total.whole;
          },
      .format = as_percent,
      .width = width,
      .spare = spare,
      .name = name};
}

Columns columns_of(const Machine& machine, int name_width) {
  constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
  Columns columns = settings_columns(name_width);
  columns.insert(columns.end(),
      {{.title = "step",
           .units = "s",
           .value = [](const P& p) { return p.prediction.seconds; },
           .width = 8,
           .name = "step_s"},
          {.title = "rate",
              .units = "token/s",
              .value = [](const P& p) { return p.prediction.tokens_per_s; },
              .width = 8,
              .name = "tokens_per_s"},
          {.title = "rate/rank",
              .units = "token/s",
              .value = [](const P& p) { return p.prediction.tokens_per_s / p.settings.ranks; },
              .width = 9,
              .spare = 9},
          {.title = "MFU",
              .units = "%",
              .value = [](const P& p) { return p.prediction.mfu > 0 ? p.prediction.mfu : unknown; },
              .format = as_percent,
              .width = 5,
              .spare = 3,
              .name = "mfu"},
          share_column(
              "compute", [](const Total& total) { return total.compute; }, 7, 10, "compute"),
          share_column(
              "exposed", [](const Total& total) { return total.exposed_total(); }, 7, 0, ""),
          share_column(
              "idle", [](const Total& total) { return total.idle; }, 5, 1, "idle"),
          {.title = "adapter",
              .units = "busy, %",
              .value = [](const P& p) { return busiest(p.prediction, p.machine); },
              .format = as_percent,
              .width = 7,
              .spare = 2},
          {.title = "memory",
              .units = "GiB",
              .value =
                  [](const P& p) { return static_cast<std::int64_t>(p.prediction.worst_memory()); },
              .format = {.factor = 0x1p-30, .style = Format::fixed, .decimals = 2},
              .width = 8,
              .name = "memory_bytes"}});
  const auto has_memory = [](const predict::Own& own) { return own.memory.has_value(); };
  if (std::ranges::any_of(machine.own, has_memory))
    columns.push_back({.title = "",
        .value = [](const P& p) { return p.prediction.fits.value_or(true) ? "" : "does not fit"; },
        .width = -12});
  return columns;
}

Json to_json(const PredictedCase& p) {
  const Total total(p.prediction.account);
  Json json = {{"settings", settings_json(p.settings)}};
  put(json, columns_of(p.machine, 0), p);
  for (std::size_t k = 0; k < total.exposed.size(); ++k)
    json["exposed"][schedule::name_of(static_cast<schedule::Traffic>(k))] =
        total.exposed[k] / total.whole;
  json["overlap"] = total.communication > 0 ? total.overlap() : 0;
  json["transfer_s"] = transfer_seconds(p.prediction);
  json["fits"] = p.prediction.fits ? Json(*p.prediction.fits) : Json();
  Json& adapters = json["adapters"] = Json::array();
  for (const predict::AdapterUse& busy : loads(p.prediction, p.machine)) {
    const predict::AdapterUse& bytes = p.prediction.adapters[adapters.size()];
    adapters.push_back({{"out_bytes", bytes.out},
        {"in_bytes", bytes.in},
        {"out_busy", busy.out},
        {"in_busy", busy.in}});
  }
  return json;
}

std::string head(const Machine& machine, const TextTable<PredictedCase>& table) {
  return fmt::format("# machine = {} ({} of {})\n",
             machine.name,
             counted(machine.nodes, "node"),
             counted(machine.ranks_per_node, "rank")) +
         table.header();
}

/// Returns the timeline of all ranks, or of the first replica if it stood for all.
trace::Timeline timeline_of(const Case& c, const Machine& machine, const Prediction& p) {
  constexpr std::size_t most_actions = 1'000'000;  // more cannot be read in a drawing
  std::size_t actions = 0;
  for (const auto& rank : p.spans)
    actions += rank.size();
  if (actions > most_actions)
    throw InputError(
        fmt::format("--timeline: the step of {} has {} actions, and {} can be drawn; take fewer "
                    "ranks, layers or micro_batches",
            c.schedule,
            actions,
            most_actions));
  const bool whole = std::ssize(p.spans) == c.ranks;
  return trace::make_timeline(p.program,
      p.spans,
      fmt::format(
          "{}: {} in groups {}{}\n{}, H = {}, S = {}, B = {}, M = {}, {}; {}: step {:.4g} s",
          c.schedule,
          counted(std::ssize(p.spans), "rank"),
          p.program.groups.text(),
          c.replicas == 1 ? ""
          : whole         ? fmt::format(", {} replicas", c.replicas)
                          : fmt::format(", the first of {} replicas", c.replicas),
          counted(c.shape.layers, "block"),
          c.shape.hidden,
          c.shape.seq,
          micro_batch_text(c),
          c.micro_batches,
          name_of(c.shape.dtype),
          machine.name,
          p.seconds));
}

void write_timelines(const std::string& path, const std::vector<trace::Timeline>& timelines) {
  std::ofstream file(path, std::ios::binary);
  file << trace::to_json(timelines);
  file.close();
  if (!file)
    throw InputError(fmt::format("--timeline: {} cannot be written", path));
}

/// Writes where a search is to a line of the terminal, at most five times a second.
class SearchLine {
public:
  bool operator()(const predict::SearchProgress& now) {
    constexpr std::chrono::milliseconds interval(200);
    if (width_ > 0 && (shown_ == Clock::time_point() || Clock::now() - shown_ > interval)) {
      shown_ = Clock::now();
      const predict::Candidate* const best = now.best;
      const std::string text = fmt::format("{} {}/{}{}",
          now.part,
          now.done,
          now.of,
          best == nullptr ? ""
                          : fmt::format("; best so far {}, {} replicas, {:.4g} s",
                                best->settings.schedule,
                                best->settings.replicas,
                                best->prediction->seconds));
      fmt::print(stderr, "\r{:.{}}\x1b[K", text, width_ - 1);
    }
    return caught_signal() == 0;
  }

  void end() const {
    if (shown_ != Clock::time_point())
      fmt::print(stderr, "\r\x1b[K");
  }

private:
  using Clock = std::chrono::steady_clock;
  int width_ = isatty(STDERR_FILENO) != 0 ? terminal_width() : 0;
  Clock::time_point shown_{};
};

void print_best(const Case& base, const Machine& machine, int width, double seconds) {
  constexpr std::size_t shown = 10;
  catch_signals_silently();
  catch_signals();
  SearchLine line;
  const std::vector<predict::Candidate> all = predict::search(
      base, machine, {shown, seconds, [&](const auto& progress) { return line(progress); }});
  line.end();
  const auto name_of = [](const predict::Candidate& c) { return c.settings.schedule; };
  const TextTable<PredictedCase> table(
      columns_of(machine, longest(list_of(all | std::views::take(shown), name_of))), {}, width);
  std::map<std::string, int> lost;
  std::string text;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const predict::Candidate& c = all[i];
    const Case& s = c.settings;
    if (!c.prediction)
      ++lost[c.why];
    else if (i < shown)
      text += table.row({s, *c.prediction, machine}) +
              fmt::format("    {} replicas={} groups={} context={} micro_batch={} recompute={}\n",
                  s.schedule,
                  s.replicas,
                  s.groups.count(),
                  s.shape.context.count,
                  s.shape.micro_batch,
                  model::name_of(s.shape.recompute));
    else
      ++lost[c.prediction->account.length > 2 * c.floor.seconds()
                 ? "waits (more than half of the step)"
                 : "waits"];
  }
  std::string sentences = fmt::format("# {} tried; those not shown lose by:", all.size());
  for (const auto& [why, count] : lost)
    sentences += fmt::format(" {} {};", count, why);
  sentences += fmt::format(
      "\n# memory: they do not fit; adapter, computing: it alone takes longer than the tenth; "
      "waits: predicted, and slower;\n# groups: listed with another number of them, which changes "
      "nothing{}\n",
      lost.contains("time") ? fmt::format("; time: not tried within {:g} s (--time-limit)", seconds)
                            : "");
  write_stdout(head(machine, table) + text + for_terminal(sentences));
}

deck::Deck read_deck_for(const Machine& machine, const PredictOptions& options) {
  std::vector<std::string> overrides = options.deck.overrides;
  if (options.best) {  // the search brings its own
    std::erase_if(overrides,
        [](const auto& o) { return o.starts_with("schedule=") || o.starts_with("replicas="); });
    overrides.insert(overrides.end(), {"schedule=ddp", "replicas=1"});
  }
  return deck::read_deck(options.deck.path,
      overrides,
      {.ranks = machine.ranks(),
          .node_sizes = std::vector<int>(machine.nodes, machine.ranks_per_node),
          .planning = true,
          .adapters = machine.adapters});
}

/// As JSON, or a row as soon as it is known.
void print_each(
    const deck::Deck& deck, const Machine& machine, int width, const PredictOptions& options) {
  const TextTable<PredictedCase> table(
      columns_of(machine, longest(list_of(deck.cases, &Case::schedule))), {}, width);
  Json all = Json::array(), notes = deck.notes;
  std::vector<trace::Timeline> timelines;
  std::ptrdiff_t too_large = 0;
  if (!options.json) {
    for (const std::string& note : deck.notes)
      fmt::print("{}", for_terminal(fmt::format("# {}\n", note)));
    fmt::print("{}", head(machine, table));
  }
  for (const Case& c : deck.cases) {
    const std::optional<Prediction> p = options.fitting
                                            ? predict::predict_fitting(c, machine)
                                            : std::optional(predict::predict(c, machine));
    if (!p) {
      ++too_large;
      continue;
    }
    if (options.json)
      all.push_back(to_json({c, *p, machine}));
    else
      write_stdout(table.row({c, *p, machine}));
    if (!options.timeline.empty())
      timelines.push_back(timeline_of(c, machine, *p));
  }
  if (too_large > 0) {
    const std::string note = fmt::format("left out {}, which {} not fit",
        counted(too_large, "case"),
        too_large == 1 ? "does" : "do");
    notes.push_back(note);
    if (!options.json)
      fmt::print("{}", for_terminal(fmt::format("# {}\n", note)));
  }
  if (!options.timeline.empty())
    write_timelines(options.timeline, timelines);
  if (options.json)
    write_stdout(json_text({{"machine", machine.name},
        {"between_bytes_per_s", machine.rate},
        {"notes", notes},
        {"cases", all}}));
}

int run(const PredictOptions& options) {
  const int width = layout_of(options.table).width;
  const Machine machine = predict::read_machine(options.machine, options.changes);
  const deck::Deck deck = read_deck_for(machine, options);
  if (options.best && (options.json || deck.cases.size() + deck.unused.size() != 1))
    throw InputError("--best: it takes one case, which says model, ranks and sequences of a "
                     "step, and prints a table");
  if (!options.timeline.empty() && !options.timeline.ends_with(".json"))
    throw InputError(fmt::format(
        "--timeline: \"{}\" must end in .json; scripts/timeline draws it", options.timeline));
  if (options.best)
    print_best(deck.cases.front(), machine, width, options.seconds);
  else
    print_each(deck, machine, width, options);
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
  add_table(*verb, options->table, false);
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
  verb->callback([&invocation, options] { invocation.code = run(*options); });
}
}  // namespace minitaw::app
