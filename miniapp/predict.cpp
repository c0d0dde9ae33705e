// SPDX-License-Identifier: BSD-3-Clause
#include "predict/predict.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.hpp"
#include "cli/cli11.hpp"
#include "deck/deck.hpp"
#include "record/table.hpp"
#include "verb.hpp"

namespace minitaw::app {
namespace {
using predict::Machine;
using predict::Prediction;

struct Options {
  DeckOptions deck;
  std::string machine;
  std::vector<std::string> changes;  ///< of the machine: "between.rate=25 Gbit/s"
  std::string timeline;              ///< file; empty: none
  bool json = false, best = false;
  TableOptions table;
};

/// Sums over the ranks, and the time of all of them.
struct Total : trace::RankTime {
  double whole;
  explicit Total(const trace::StepAccount& account)
      : RankTime(trace::total_of(account.ranks)), whole(account.length * static_cast<double>(account.ranks.size())) {}
};

double busiest(const Prediction& p, const Machine& machine) {
  double most = 0;
  for (int i = 0; i < static_cast<int>(p.adapters.size()) && machine.rate > 0; ++i)
    most = std::max(most, std::max(p.adapters[i].out, p.adapters[i].in) / machine.rates[i]);
  return most / p.seconds;
}

/// Seconds that transfers occupy lanes of a rank, the mean over the ranks: waiting for the other side counts,
/// as in kernels of NCCL.
double transfer_seconds(const Prediction& p) {
  double sum = 0;
  for (std::size_t r = 0; r < p.spans.size(); ++r)
    for (std::size_t i = 0; i < p.spans[r].size(); ++i)
      if (is_communication(p.program.ranks[r].actions[i].kind)) sum += p.spans[r][i].end - p.spans[r][i].begin;
  return sum / static_cast<double>(p.spans.size());
}

Json to_json(const Case& c, const Machine& machine, const Prediction& p) {
  const Total total(p.account);
  Json exposed, adapters = Json::array();
  for (std::size_t k = 0; k < total.exposed.size(); ++k)
    exposed[schedule::name_of(static_cast<schedule::Traffic>(k))] = total.exposed[k] / total.whole;
  for (const predict::AdapterUse& use : p.adapters) {
    const double whole = machine.rates[adapters.size()] * p.seconds;
    adapters.push_back(
        {{"out_bytes", use.out}, {"in_bytes", use.in}, {"out_busy", use.out / whole}, {"in_busy", use.in / whole}});
  }
  return {{"settings", deck::identity(c)}, {"step_s", p.seconds}, {"tokens_per_s", p.tokens_per_s},
      {"mfu", p.mfu > 0 ? Json(p.mfu) : Json()}, {"compute", total.compute / total.whole}, {"exposed", exposed},
      {"idle", total.idle / total.whole}, {"overlap", total.communication > 0 ? total.overlap() : 0},
      {"transfer_s", transfer_seconds(p)}, {"memory_bytes", p.worst_memory()},
      {"fits", p.fits ? Json(*p.fits) : Json()}, {"adapters", adapters}};
}

struct Row {
  const Case& settings;
  const Prediction& prediction;
};

/// Rows are printed as they come, so the widths are fixed.
record::TextTable<Row> make_table(const Machine& machine, int width) {
  const auto percent = [](auto share) {
    return [share](const Row& row) {
      const Total total(row.prediction.account);
      return fmt::format("{:.1f}", 100 * share(total) / total.whole);
    };
  };
  const auto setting = [](auto value) {
    return [value](const Row& row) { return fmt::to_string(value(row.settings)); };
  };
  return {
      {{"schedule", "", -24, [](const Row& row) { return row.settings.schedule; }},
          {"ranks", "", 5, [](const Row& row) { return ranks_text(row.settings.ranks, row.settings.replicas); }, 4},
          {"groups", "", -10,
              [](const Row& row) {
                const topology::Groups& groups = row.settings.groups;
                return groups.count() > 4 ? fmt::format("{} groups", groups.count()) : groups.text();
              },
              7},
          {"seq", "token", 6, setting([](const Case& c) { return c.shape.seq; }), 3},
          {"B", "", 3, setting([](const Case& c) { return c.shape.micro_batch; }), 6},
          {"M", "", 5, setting([](const Case& c) { return c.micro_batches; }), 5},
          {"step", "s", 8, [](const Row& row) { return record::figure(row.prediction.seconds); }},
          {"rate", "token/s", 8, [](const Row& row) { return record::figure(row.prediction.tokens_per_s); }},
          {"rate/rank", "token/s", 9,
              [](const Row& row) { return record::figure(row.prediction.tokens_per_s / row.settings.ranks); }, 8},
          {"MFU", "%", 5,
              [](const Row& row) {
                const double mfu = row.prediction.mfu;
                return mfu > 0 ? fmt::format("{:.1f}", 100 * mfu) : "-";
              },
              2},
          {"compute", "%", 7, percent([](const Total& t) { return t.compute; }), 9},
          {"exposed", "%", 7, percent([](const Total& t) { return t.exposed_total(); })},
          {"idle", "%", 5, percent([](const Total& t) { return t.idle; })},
          {"adapter", "busy, %", 7,
              [&machine](const Row& row) { return fmt::format("{:.1f}", 100 * busiest(row.prediction, machine)); }, 1},
          {"memory", "GiB", 8,
              [](const Row& row) {
                return fmt::format("{:.2f}", static_cast<double>(row.prediction.worst_memory()) / (1 << 30));
              }},
          {"", "", 0, [](const Row& row) { return row.prediction.fits.value_or(true) ? "" : " does not fit"; }}},
      {}, width};
}

std::string head(const Machine& machine, const record::TextTable<Row>& table) {
  return fmt::format("# machine = {} ({} of {})\n", machine.name, counted(machine.nodes, "node"),
             counted(machine.ranks_per_node, "rank")) +
         table.header();
}

/// Returns the timeline of all ranks, or of the first replica if it stood for all.
trace::Timeline timeline_of(const Case& c, const Machine& machine, const Prediction& p) {
  constexpr std::size_t most_actions = 1'000'000;  // more cannot be read in a drawing
  std::size_t actions = 0;
  for (const auto& rank : p.spans) actions += rank.size();
  if (actions > most_actions)
    throw InputError(fmt::format("--timeline: the step of {} has {} actions, and {} can be drawn; take fewer "
                                 "ranks, layers or micro_batches",
        c.schedule, actions, most_actions));
  const bool whole = p.spans.size() == static_cast<std::size_t>(c.ranks);
  return trace::make_timeline(p.program, p.spans,
      fmt::format("{}: {} in groups {}{}\n{}, H = {}, S = {}, B = {}, M = {}, {}; {}: step {:.4g} s", c.schedule,
          counted(std::ssize(p.spans), "rank"), p.program.groups.text(),
          c.replicas == 1 ? ""
          : whole         ? fmt::format(", {} replicas", c.replicas)
                          : fmt::format(", the first of {} replicas", c.replicas),
          counted(c.shape.layers, "block"), c.shape.hidden, c.shape.seq, micro_batch_text(c), c.micro_batches,
          name_of(c.shape.dtype), machine.name, p.seconds));
}

void write_timelines(const std::string& path, const std::vector<trace::Timeline>& timelines) {
  std::ofstream file(path, std::ios::binary);
  file << trace::to_json(timelines);
  file.close();
  if (!file) throw InputError(fmt::format("--timeline: {} cannot be written", path));
}

/// A way to spread the same sequences of a step over the machine.
struct Candidate {
  Case settings;
  predict::Floor floor;
  std::optional<Prediction> prediction;
  std::string why;  ///< it is not predicted
};

/// What ranks may keep in a step: nothing, what users know by names of their own (ZeRO++ hpZ, FSDP's
/// reshard_after_forward = False, ZeRO-2, ZeRO-1), and the fewest bytes between groups.
constexpr std::array forms_of_keeping = {"", ":reshard=group", ":reshard=none", ":fetch=step:reshard=none",
    ":fetch=step:reduce=none:reshard=none", ":fetch=step:reduce=group:reshard=group"};

std::vector<std::string> specs_for(const Machine& machine) {
  std::vector<std::string> specs;
  for (const schedule::Entry& entry : schedule::registry()) {
    if (entry.one_rank) continue;
    std::vector<std::string> forms = {entry.name};
    for (const schedule::OptionDoc& option : entry.options) {
      std::vector<std::string> values;
      if (option.name == "prefetch") values = {"1", "2"};
      if (option.name == "chunks") values = {"1", "2", "4"};
      if (option.name == "hierarchical") values = {"off", "on"};
      if (option.name == "rails" && machine.adapters > 1) values = {"1", std::to_string(machine.adapters)};
      std::vector<std::string> more;
      for (const std::string& form : forms)
        for (const std::string& value : values) more.push_back(form + ":" + option.name + "=" + value);
      if (!values.empty()) forms = more;
    }
    const bool keeps = std::ranges::count(entry.options, "reshard", &schedule::OptionDoc::name) > 0;
    for (const std::string& form : forms)
      for (const char* kept : forms_of_keeping)
        if (keeps || *kept == 0) specs.push_back(schedule::to_text(schedule::parse_spec(form + kept)));
  }
  return specs;
}

/// All that fit ranks and layers: schedules with prefetch, replicas, groups, micro-batches, recompute.
std::vector<Candidate> candidates(const Case& base, const Machine& machine) {
  const std::int64_t sequences = base.micro_batches * base.shape.micro_batch;
  std::vector<topology::Groups> groupings = {base.groups};
  if (base.groups.count() > 1 && base.ranks % (2 * base.groups.count()) == 0)
    groupings.push_back(topology::Groups::equal(base.ranks, 2 * base.groups.count()));
  std::vector<Candidate> all;
  Case c = base;
  for (const std::string& spec : specs_for(machine))
    for (c.replicas = 1; c.replicas <= c.ranks; ++c.replicas) {
      if (c.ranks % c.replicas != 0) continue;
      for (const topology::Groups& groups : groupings)
        for (std::int64_t b = 1; b <= sequences; b *= 2)
          for (const model::Recompute recompute :
              {model::Recompute::block, model::Recompute::keep_attention, model::Recompute::none}) {
            if (sequences % b != 0) continue;
            c.schedule = spec;
            c.groups = groups;
            c.shape.micro_batch = b;
            c.shape.recompute = recompute;
            c.micro_batches = static_cast<int>(sequences / b);
            try {
              schedule::check(request_of(c));
              all.push_back({c, {}, {}, {}});
            } catch (const InputError&) {  // too few layers, or micro-batches that do not divide
            }
          }
    }
  return all;
}

/// The number of groups makes no difference: pipelines and flat FSDP do not know them.
bool differ_by_groups_alone(const Candidate& a, const Candidate& b) {
  const auto key = [](const Candidate& c) {
    return std::tuple(c.settings.schedule, c.settings.replicas, c.settings.shape.micro_batch,
        c.settings.shape.recompute, c.prediction ? c.prediction->seconds : 0);
  };
  return &a != &b && key(a) == key(b);
}

constexpr std::size_t shown = 10;

/// Predicts candidates with low floors first. Once ten are faster than the next floor, the rest has lost.
void search(const Case& base, const Machine& machine, int width) {
  std::vector<Candidate> all = candidates(base, machine);
  for (Candidate& c : all) {
    try {
      c.floor = predict::floor_of(c.settings, machine);
    } catch (const InputError& error) {
      c.why = error.what();
    }
    if (!c.floor.fits.value_or(true)) c.why = "memory";
  }
  std::ranges::stable_sort(all, {}, [](const Candidate& c) { return c.floor.seconds(); });
  std::vector<double> times;
  for (Candidate& c : all) {
    if (!c.why.empty()) continue;
    std::ranges::sort(times);
    if (times.size() >= shown && c.floor.seconds() >= times[shown - 1]) {
      c.why = c.floor.adapter > c.floor.compute ? "adapter" : "computing";
      continue;
    }
    c.prediction = predict::predict(c.settings, machine);
    c.prediction->spans = {};
    c.prediction->program = {};
    if (std::ranges::any_of(all, [&](const Candidate& other) { return differ_by_groups_alone(other, c); })) {
      c.prediction.reset();
      c.why = "groups";
      continue;
    }
    times.push_back(c.prediction->seconds);
  }
  std::ranges::stable_sort(all, {}, [](const Candidate& c) { return c.prediction ? c.prediction->seconds : 1e300; });
  const record::TextTable<Row> table = make_table(machine, width);
  std::map<std::string, int> lost;
  std::string text;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Candidate& c = all[i];
    const Case& s = c.settings;
    if (!c.prediction) ++lost[c.why];
    else if (i < shown)
      text += table.row({s, *c.prediction}) + fmt::format("    {} replicas={} groups={} micro_batch={} recompute={}\n",
                                                  s.schedule, s.replicas, s.groups.count(), s.shape.micro_batch,
                                                  model::name_of(s.shape.recompute));
    else ++lost[c.prediction->account.length > 2 * c.floor.seconds() ? "waits (more than half of the step)" : "waits"];
  }
  write_stdout(head(machine, table) + text + fmt::format("# {} tried; those not shown lose by:", all.size()));
  for (const auto& [why, count] : lost) fmt::print(" {} {};", count, why);
  fmt::print("\n# memory: they do not fit; adapter, computing: it alone takes longer than the tenth; waits: "
             "predicted, and slower;\n# groups: listed with another number of them, which changes nothing\n");
}

int run(const Options& options) {
  const int width = layout_of(options.table).width;
  const Machine machine = predict::read_machine(options.machine, options.changes);
  const std::vector<int> nodes(static_cast<std::size_t>(machine.nodes), machine.ranks_per_node);
  const deck::Deck deck = deck::read_deck(options.deck.path, options.deck.overrides,
      {.ranks = machine.ranks(), .node_sizes = nodes, .planning = true, .adapters = machine.adapters});
  if (options.best) {
    if (options.json || deck.cases.size() != 1)
      throw InputError(
          "--best: it takes one case, which says model, ranks and sequences of a step, and prints a table");
    search(deck.cases.front(), machine, width);
    return 0;
  }
  if (!options.timeline.empty() && !options.timeline.ends_with(".json"))
    throw InputError(fmt::format("--timeline: \"{}\" must end in .json; scripts/timeline draws it", options.timeline));
  const record::TextTable<Row> table = make_table(machine, width);
  Json all = Json::array();
  std::vector<trace::Timeline> timelines;
  if (!options.json) {
    for (const std::string& note : deck.notes) fmt::print("# {}\n", note);
    fmt::print("{}", head(machine, table));
  }
  for (std::size_t i = 0; i < deck.cases.size(); ++i) {
    const Case& c = deck.cases[i];
    const Prediction p = predict::predict(c, machine);
    if (options.json) all.push_back(to_json(c, machine, p));
    else write_stdout(table.row({c, p}));
    if (!options.timeline.empty()) timelines.push_back(timeline_of(c, machine, p));
  }
  if (!options.timeline.empty()) write_timelines(options.timeline, timelines);
  if (options.json)
    write_stdout(json_text(
        {{"machine", machine.name}, {"between_bytes_per_s", machine.rate}, {"notes", deck.notes}, {"cases", all}}));
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
  add_table(*verb, options->table, false);
  CLI::Option* best = verb->add_flag("--best", options->best,
      "try schedules, prefetch, replicas, groups, micro-batches and recomputation for the sequences "
      "of the one case");
  verb->add_option(
          "--timeline", options->timeline, "write when every action of the predicted steps runs, for scripts/timeline")
      ->type_name("FILE.json")
      ->excludes(best);
  verb->callback([&invocation, options] { invocation.code = run(*options); });
}
}  // namespace minitaw::app
