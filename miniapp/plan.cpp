#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "cli/cli11.hpp"
#include "deck/deck.hpp"
#include "deck/value.hpp"
#include "model/plan.hpp"
#include "record/table.hpp"
#include "schedule/account.hpp"
#include "schedule/simulate.hpp"
#include "schedule/validate.hpp"
#include "topology/devices.hpp"
#include "trace/timeline.hpp"
#include "verb.hpp"

namespace minitaw::app {

namespace {

using schedule::Machine;

/// What a case costs, from its program alone.
struct CasePlan {
  deck::Case settings;
  int number = 0;   ///< from 0
  record::Row row;  ///< the settings
  std::shared_ptr<const schedule::Program> program{};
  Json json{};  ///< what --json prints of it; the table and the text for people show parts of this
};

/// Bytes by kind; "total" comes last.
template <class Kind>
Json by_kind(int count, const auto& bytes) {
  Json kinds;
  std::uint64_t total = 0;
  for (int k = 0; k < count; ++k) {
    const std::uint64_t here = bytes(static_cast<Kind>(k));
    kinds[schedule::name_of(static_cast<Kind>(k))] = here;
    total += here;
  }
  kinds["total"] = total;
  return kinds;
}

model::Layout layout_of(const CasePlan& plan, std::int64_t seq) {
  model::Shape shape = plan.settings.shape;
  shape.seq = seq;
  return model::make_layout(shape, schedule::cut_of(*plan.program));
}

schedule::Costs costs_of(const CasePlan& plan, const Machine& machine) {
  return schedule::costs_of(*plan.program, layout_of(plan, plan.settings.shape.seq), machine,
                            plan.settings.micro_batch_per_rank);
}

Json settings_json(const CasePlan& plan) {
  Json json;
  for (const record::Column& column : plan.row.columns)
    if (column.place == record::Place::settings)
      std::visit([&](const auto& cell) { json[column.name] = cell; }, column.value);
  json["ffn_per_layer"] = plan.settings.shape.ffn;
  Json& sizes = json["micro_batch_per_rank"] = Json::array();
  for (int r = 0; r < plan.settings.ranks; ++r) sizes.push_back(deck::micro_batch_of(plan.settings, r));
  return json;
}

/// Sets what passes the links in one step; of the NICs, `nic` bytes/s each direction, if that is known.
void add_bytes(CasePlan& plan, double nic) {
  using schedule::Traffic;
  constexpr int kinds = schedule::traffic_kinds;
  const topology::Groups& groups = plan.settings.groups;
  const schedule::ByteMatrix bytes = schedule::bytes(*plan.program, layout_of(plan, plan.settings.shape.seq));
  plan.json["bytes_per_step"] = {
      {"inside", by_kind<Traffic>(kinds, [&](Traffic k) { return bytes.inside(groups, k); })},
      {"between", by_kind<Traffic>(kinds, [&](Traffic k) { return bytes.between(groups, k); })}};
  Json busiest_out, busiest_in, each = Json::array();
  for (int g = 0; g < groups.count(); ++g) {
    const std::uint64_t out = bytes.leaving(groups, g), in = bytes.entering(groups, g);
    if (g == 0 || out > busiest_out["bytes"]) busiest_out = {{"group", g}, {"bytes", out}};
    if (g == 0 || in > busiest_in["bytes"]) busiest_in = {{"group", g}, {"bytes", in}};
    each.push_back({{"group", g}, {"ranks", groups.size(g)}, {"bytes_out", out}, {"bytes_in", in}});
  }
  const double most = std::max(busiest_out["bytes"].get<double>(), busiest_in["bytes"].get<double>());
  plan.json["busiest_out"] = busiest_out;
  plan.json["busiest_in"] = busiest_in;
  plan.json["groups"] = each;
  if (nic > 0) plan.json["nic_s"] = most / nic;  // for the busiest, at least
}

void add_messages(CasePlan& plan) {
  const schedule::MessageCounts m = schedule::messages(*plan.program);
  plan.json["messages"] = {{"weights_between", m.weights_between},
                           {"weights_inside", m.weights_inside},
                           {"gradients_between", m.gradients_between},
                           {"gradients_inside", m.gradients_inside},
                           {"broadcasts", m.broadcasts},
                           {"reduces", m.reduces}};
}

/// Ticks, and idle time with compute as on the assumed machine and transfers that are free.
void add_time(CasePlan& plan, const Machine& machine) {
  const schedule::Ticks ticks = schedule::ticks(*plan.program);
  plan.json["ticks"] = {{"total", ticks.total}, {"computing_per_rank", ticks.busy}};
  const schedule::Idle idle = schedule::idle(
      *plan.program, schedule::simulate(*plan.program, schedule::free_transfers(costs_of(plan, machine))));
  plan.json["idle"] = {{"share", idle.share()}, {"step_s", idle.seconds}};
  for (int r = 0; r < plan.settings.ranks; ++r) plan.json["idle"]["share_per_rank"].push_back(idle.share(r));
}

/// Memory of each rank, and the slots of the one that needs most.
void add_memory(CasePlan& plan) {
  Json ranks = Json::array();
  std::size_t worst = 0;
  for (const schedule::Footprint& rank : schedule::memory(
           *plan.program, layout_of(plan, plan.settings.shape.seq), plan.settings.micro_batch_per_rank)) {
    Json bytes = {{"rank", ranks.size()}};
    bytes.update(by_kind<schedule::Memory>(schedule::memory_kinds, [&](schedule::Memory kind) {
      return rank.by_kind[static_cast<std::size_t>(kind)];
    }));
    ranks.push_back(std::move(bytes));
    if (ranks.back()["total"] > ranks[worst]["total"]) worst = ranks.size() - 1;
  }
  plan.json["slots"]["rank"] = worst;
  for (int c = 0; c < schedule::slot_classes; ++c)
    plan.json["slots"][std::string(1, letter_of(static_cast<schedule::SlotClass>(c)))] =
        plan.program->ranks[worst].slots[static_cast<std::size_t>(c)];
  plan.json["memory_bytes"] = {{"worst", ranks[worst]}, {"ranks", ranks}};
}

/// Builds and validates the program of a case and counts what it asks for. `program`: that of the same
/// request, if there is one already.
CasePlan plan_case(const deck::Deck& deck, std::size_t number, const Machine& machine,
                   std::shared_ptr<const schedule::Program> program = nullptr) {
  const deck::Case& c = deck.cases[number];
  if (c.ranks >= 512)  // it takes a while
    fmt::print(stderr, "planning case {} of {}: {} on {} ranks, {} micro-batches\n", number + 1,
               deck.cases.size(), c.schedule, c.ranks, c.micro_batches);
  if (program == nullptr) {
    program = std::make_shared<const schedule::Program>(schedule::build(deck::request_of(c)));
    schedule::require_valid(*program);
  }
  CasePlan plan{c, static_cast<int>(number), record::preview({c}).front(), std::move(program)};
  plan.json = {{"settings", settings_json(plan)}, {"shards", plan.program->shards}};
  add_bytes(plan, machine.nic);
  add_messages(plan);
  add_time(plan, machine);
  add_memory(plan);
  return plan;
}

/// Whether a case fits the memory of a device: with the arena of its worst rank, which is exact, and an
/// estimate of what driver, matrix products and attention take beside it.
Json fit(const CasePlan& plan, std::uint64_t available) {
  constexpr std::uint64_t context_bytes = std::uint64_t{1} << 30;  // of the driver, kernels, NCCL
  constexpr std::int64_t seq_step = 128, longest_seq = std::int64_t{1} << 26;
  const auto at = [&](std::int64_t seq) {
    const model::Layout layout = layout_of(plan, seq);
    std::uint64_t arena = 0;
    for (const auto& rank : schedule::memory(*plan.program, layout, plan.settings.micro_batch_per_rank))
      arena = std::max<std::uint64_t>(arena, rank.total());
    return std::pair(arena, context_bytes + model::library_estimate(layout.shape));
  };
  // Memory grows with S, so halving finds the last that fits.
  std::int64_t fitting = 0, beyond = longest_seq / seq_step + 1;
  while (beyond - fitting > 1) {
    const std::int64_t middle = fitting + (beyond - fitting) / 2;
    bool fits = false;
    try {
      const auto [arena, libraries] = at(middle * seq_step);
      fits = arena + libraries <= available;
    } catch (const InputError&) {  // larger than any buffer can be
    }
    (fits ? fitting : beyond) = middle;
  }
  const auto [arena, libraries] = at(plan.settings.shape.seq);
  return {{"available_bytes", available},
          {"arena_bytes", arena},
          {"libraries_estimate_bytes", libraries},
          {"fits", arena + libraries <= available},
          {"largest_seq", fitting * seq_step}};  // 0: none
}

// The table over all cases.

/// "2+1+3", and "16x8" for many equal ones.
std::string groups_text(const topology::Groups& groups) {
  const auto [least, most] = std::ranges::minmax(groups.sizes());
  return groups.count() > 4 && least == most ? fmt::format("{}x{}", groups.count(), least) : groups.text();
}

/// "24 ranks in groups 8+8+8", and in how many replicas if there are several.
std::string ranks_text(const deck::Case& c) {
  return fmt::format("{} ranks in groups {}{}", c.ranks, groups_text(c.groups),
                     c.replicas > 1 ? fmt::format(", {} replicas", c.replicas) : "");
}

using Plans = std::vector<CasePlan>;
using Column = record::TextColumn<CasePlan>;

/// A number of the JSON, by its pointer.
double value_at(const CasePlan& plan, const std::string& pointer) {
  return plan.json.at(Json::json_pointer(pointer)).get<double>();
}

/// Columns of bytes in the unit that the largest of them asks for: titles, and where the JSON has them.
void append_bytes(std::vector<Column>& columns, const Plans& plans, bool per_rank,
                  const std::vector<std::pair<std::string, std::string>>& added) {
  const auto bytes = [=](const CasePlan& p, const std::string& pointer) {
    return value_at(p, pointer) / (per_rank ? p.settings.ranks : 1);
  };
  double most = 0;
  for (const auto& [title, pointer] : added)
    for (const CasePlan& plan : plans) most = std::max(most, bytes(plan, pointer));
  const ByteUnit unit = byte_unit(most, 10000);
  for (const auto& [title, pointer] : added)
    columns.push_back({title, unit.name + (per_rank ? "/rank" : ""), 0, [=, at = pointer](const CasePlan& p) {
                         return record::figure(bytes(p, at) / unit.bytes, 3);
                       }});
}

/// "1:05:00", "12 s", "3.4 ms".
std::string duration_text(double seconds) {
  if (seconds < 1) return fmt::format("{:.3g} ms", 1e3 * seconds);
  if (seconds < 120) return fmt::format("{:.3g} s", seconds);
  const auto whole = static_cast<std::int64_t>(seconds);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

/// All timed and warm-up steps of the deck, at the assumed rates.
std::string sweep_text(const Plans& plans) {
  double seconds = 0;
  std::int64_t steps = 0;
  for (const CasePlan& plan : plans) {
    const std::int64_t here =
        std::int64_t{plan.settings.repeats} * (plan.settings.steps + plan.settings.warmup);
    steps += here;
    seconds +=
        static_cast<double>(here) * std::max(value_at(plan, "/idle/step_s"), plan.json.value("nic_s", 0.0));
  }
  return fmt::format("# all {} cases: {} steps, {} at least at {}\n", plans.size(), steps,
                     duration_text(seconds),
                     plans.front().json.contains("nic_s") ? "the assumed rates"
                                                          : "the assumed FLOP/s, if transfers take no time");
}

/// "3/2/8/0/1": slots for weights, gradients, what F keeps, what B leaves for W and hidden states.
std::string slots_text(const Json& slots) {
  const auto count = [&](const char* letter) { return slots.at(letter).get<int>(); };
  return fmt::format("{}/{}/{}/{}/{}", count("w"), count("g") + count("c"), count("a"), count("b"),
                     count("x"));
}

/// Names and units, a line for each case with a column for each setting in which they differ, and a line on
/// all of them together.
std::string table_text(const Plans& plans) {
  std::vector<Column> columns = {
      {"case", "", 0, [](const CasePlan& p) { return fmt::to_string(p.number); }},
      {"schedule", "", -1, [](const CasePlan& p) { return p.settings.schedule; }},
      {"ranks", "", 0, [](const CasePlan& p) { return fmt::to_string(p.settings.ranks); }},
      {"groups", "", -1, [](const CasePlan& p) { return groups_text(p.settings.groups); }}};
  std::vector<record::Row> settings;
  for (const CasePlan& plan : plans) settings.push_back(plan.row);
  for (const std::string_view name : record::varying_settings(settings)) {
    if (name == "schedule" || name == "ranks" || name == "groups") continue;
    const std::string title = name == "micro_batch" ? "B" : name == "micro_batches" ? "M" : std::string(name);
    columns.push_back({title, "", 0, [name](const CasePlan& p) { return p.row.column(name).text(); }});
  }
  append_bytes(columns, plans, true,
               {{"inside", "/bytes_per_step/inside/total"}, {"between", "/bytes_per_step/between/total"}});
  append_bytes(columns, plans, false, {{"NIC-out", "/busiest_out/bytes"}, {"NIC-in", "/busiest_in/bytes"}});
  if (plans.front().json.contains("nic_s"))
    columns.push_back(
        {"NIC-time", "s", 0, [](const CasePlan& p) { return fmt::format("{:.4g}", value_at(p, "/nic_s")); }});
  std::vector<std::pair<std::string, std::string>> memory;
  for (const auto& [kind, bytes] : plans.front().json["memory_bytes"]["worst"].items())
    if (kind != "rank") memory.emplace_back(kind == "total" ? "memory" : kind, "/memory_bytes/worst/" + kind);
  append_bytes(columns, plans, false, memory);
  columns.push_back({"w/g/a/b/x", "slots", 0, [](const CasePlan& p) { return slots_text(p.json["slots"]); }});
  columns.push_back({"ticks", "", 0, [](const CasePlan& p) { return p.json["ticks"]["total"].dump(); }});
  columns.push_back({"idle", "%", 0, [](const CasePlan& p) {
                       return fmt::format("{:.1f}", std::max(0.0, 100 * value_at(p, "/idle/share")));
                     }});
  const record::TextTable<CasePlan> table(columns, plans);
  std::string text = table.header();
  for (const CasePlan& plan : plans) text += table.row(plan);
  return text + sweep_text(plans);
}

// One case for people.

/// A line: name, then each kind or its bytes, right-aligned.
std::string line(const std::string& name, const Json& kinds, bool titles = false) {
  std::string text = fmt::format("  {:<16}", name);
  for (const auto& [kind, bytes] : kinds.items())
    if (kind != "rank") text += fmt::format(" {:>13}", titles ? kind : size_text(bytes.get<std::uint64_t>()));
  return text + "\n";
}

std::string traffic_text(const Json& plan, const Machine& machine) {
  const Json &inside = plan["bytes_per_step"]["inside"], &between = plan["bytes_per_step"]["between"];
  std::string text =
      line("bytes per step", inside, true) + line("inside groups", inside) + line("between groups", between);
  if (const Json &out = plan["busiest_out"], &in = plan["busiest_in"]; plan["groups"].size() > 1)
    text += fmt::format("  busiest NIC      {} out (group {}), {} in (group {})\n",
                        size_text(out["bytes"].get<std::uint64_t>()), out["group"].get<int>(),
                        size_text(in["bytes"].get<std::uint64_t>()), in["group"].get<int>());
  if (plan.contains("nic_s"))
    text += fmt::format("  NIC time         {:.4g} s at least for a step at {:.4g} MB/s each direction\n",
                        plan["nic_s"].get<double>(), machine.nic * 1e-6);
  const auto count = [&](const char* name) { return plan["messages"][name].get<std::uint64_t>(); };
  return text +
         fmt::format("  messages         weights {} between, {} inside; gradients {} between, {} inside; "
                     "{} broadcasts, {} reduces\n",
                     count("weights_between"), count("weights_inside"), count("gradients_between"),
                     count("gradients_inside"), count("broadcasts"), count("reduces"));
}

std::string time_text(const Json& plan) {
  const auto busy = plan["ticks"]["computing_per_rank"].get<std::vector<int>>();
  const auto shares = plan["idle"]["share_per_rank"].get<std::vector<double>>();
  const auto [fewest, most] = std::ranges::minmax(busy);
  const auto [least, largest] = std::ranges::minmax(shares);
  return fmt::format(
      "  ticks            {} per step, of which a rank computes in {} to {}\n"
      "  idle             {:.2f}% of the time if transfers take none ({:.2f} to {:.2f}% per rank)\n",
      plan["ticks"]["total"].get<int>(), fewest, most, 100 * plan["idle"]["share"].get<double>(), 100 * least,
      100 * largest);
}

/// The rank that needs most, then one line for each run of ranks that need the same.
std::string memory_text(const Json& plan) {
  const Json &worst = plan["memory_bytes"]["worst"], &ranks = plan["memory_bytes"]["ranks"];
  const int rank = worst["rank"].get<int>();
  std::string text =
      fmt::format("  slots            {} for weights / gradients / kept by F / left by B / hidden "
                  "states on rank {}\n",
                  slots_text(plan["slots"]), rank) +
      line("memory per rank", worst, true) + line(fmt::format("worst: rank {}", rank), worst);
  const auto needs = [&](std::size_t r) {
    Json bytes = ranks[r];
    bytes.erase("rank");
    return bytes;
  };
  for (std::size_t first = 0, end = 0; first < ranks.size(); first = end) {
    while (end < ranks.size() && needs(end) == needs(first)) ++end;
    text +=
        line(end - first == 1 ? fmt::format("rank {}", first) : fmt::format("ranks {} to {}", first, end - 1),
             ranks[first]);
  }
  return text;
}

std::string fit_text(const Json& fit) {
  const auto size = [&](const char* name) { return size_text(fit[name].get<std::uint64_t>()); };
  const auto largest = fit["largest_seq"].get<std::int64_t>();
  return fmt::format("  device           {}: worst rank needs {} and about {} for libraries, of {}; {}\n",
                     fit["fits"].get<bool>() ? "fits" : "DOES NOT FIT", size("arena_bytes"),
                     size("libraries_estimate_bytes"), size("available_bytes"),
                     largest > 0 ? fmt::format("the largest S that fits is {}", largest) : "no S fits");
}

std::string to_text(const CasePlan& plan, const Machine& machine) {
  const deck::Case& c = plan.settings;
  const model::Flops flops = model::flops_per_token(c.shape);
  const double tokens = deck::tokens_of_step(c);
  return fmt::format("case {}: {}, {}, L = {}, H = {}, S = {}, B = {}, M = {}\n"
                     "  model            {:.4g} parameters in {} shards, {}\n"
                     "  step             {:.6g} tokens, {:.4g} TFLOP with causal attention ({:.4g} with full "
                     "attention)\n",
                     plan.number, c.schedule, ranks_text(c), c.shape.layers, c.shape.hidden, c.shape.seq,
                     deck::micro_batch_text(c), c.micro_batches,
                     static_cast<double>(model::parameters(c.shape)), plan.json["shards"].get<int>(),
                     name_of(c.shape.dtype), tokens, tokens * (flops.matmul + flops.attention_causal) * 1e-12,
                     tokens * (flops.matmul + flops.attention_full) * 1e-12) +
         traffic_text(plan.json, machine) + time_text(plan.json) + memory_text(plan.json) +
         (plan.json.contains("device") ? fit_text(plan.json["device"]) : "");
}

Json to_json(const Machine& machine) {
  Json json = {{"flops", machine.flops},
               {"inside_bytes_per_s", machine.inside},
               {"between_bytes_per_s", machine.between},
               {"memory_bytes_per_s", machine.memory}};
  if (machine.nic > 0) json["nic_bytes_per_s"] = machine.nic;
  return json;
}

// The verb.

struct Options {
  DeckOptions deck;
  bool json = false, program = false;
  std::optional<std::uint64_t> device_memory;  ///< bytes; empty: that of the device of this machine, if any
  int adapters = 1;
  std::string timeline, timeline_cases, costs;  ///< empty: none; the first; those of the machine
  Machine machine;
};

// The timeline.

/// The cases to draw, in the order given.
std::vector<std::size_t> chosen_cases(const Options& options, std::size_t cases) {
  if (options.timeline.empty()) {
    if (!options.timeline_cases.empty()) throw InputError("--case: it chooses what --timeline FILE holds");
    if (!options.costs.empty()) throw InputError("--costs: they are for --timeline FILE");
    return {};
  }
  if (!options.timeline.ends_with(".json"))
    throw InputError(
        fmt::format("--timeline: \"{}\" must end in .json; scripts/timeline draws it", options.timeline));
  const std::string& list = options.timeline_cases;
  if (list.empty()) return {0};
  std::vector<std::size_t> chosen(cases);
  std::iota(chosen.begin(), chosen.end(), 0);
  if (list == "all") return chosen;
  chosen.clear();
  for (const std::string& number : deck::parse_words(list, true, "--case").values)
    chosen.push_back(
        static_cast<std::size_t>(deck::to_size("--case", number, 0, static_cast<std::int64_t>(cases) - 1)));
  return chosen;
}

trace::Timeline timeline_of(const deck::Deck& deck, std::size_t number, const Machine& machine,
                            const std::string& costs) {
  constexpr std::size_t most_actions = 1'000'000;  // a drawing of more is of no use to anybody
  const CasePlan plan = plan_case(deck, number, machine);
  const deck::Case& c = plan.settings;
  std::size_t actions = 0;
  for (const schedule::RankProgram& rank : plan.program->ranks) actions += rank.actions.size();
  if (actions > most_actions)
    throw InputError(fmt::format("--timeline: this step has {} actions, and {} can be drawn; take fewer "
                                 "ranks, layers or micro_batches",
                                 actions, most_actions));
  const auto spans = schedule::simulate(
      *plan.program, costs.empty() ? costs_of(plan, machine)
                                   : trace::read_costs(deck::read_text(costs), costs, plan.program->groups));
  const std::string step = fmt::format("step {:.4g} ms", schedule::idle(*plan.program, spans).seconds * 1e3),
                    sizes = fmt::format("S = {}, B = {}, M = {}", c.shape.seq, deck::micro_batch_text(c),
                                        c.micro_batches);
  const std::string title =
      costs.empty()
          ? fmt::format("{}: {}\n{} blocks, H = {}, {}, {}; {}, {:.4g} ms if transfers took no time, ranks "
                        "then idle {:.1f}%\nassumed of each rank: {:.4g} TFLOP/s, {:.4g} GB/s inside its "
                        "group, {:.4g} GB/s to other groups; transfers do not slow each other down",
                        c.schedule, ranks_text(c), c.shape.layers, c.shape.hidden, sizes,
                        name_of(c.shape.dtype), step, value_at(plan, "/idle/step_s") * 1e3,
                        100 * value_at(plan, "/idle/share"), machine.flops * 1e-12, machine.inside * 1e-9,
                        machine.between * 1e-9)
          : fmt::format("{}: {}, {}\n{}; every action takes its measured mean; transfers do not slow each "
                        "other down",
                        c.schedule, ranks_text(c), sizes, step);
  return trace::make_timeline(*plan.program, spans, title);
}

void write_timeline(const Options& options, const deck::Deck& deck, const Machine& machine) {
  std::vector<trace::Timeline> timelines;
  for (const std::size_t i : chosen_cases(options, deck.cases.size()))
    timelines.push_back(timeline_of(deck, i, machine, options.costs));
  if (timelines.empty()) return;
  std::ofstream file(options.timeline, std::ios::binary);
  file << trace::to_json(timelines);
  file.close();
  if (!file) throw InputError(fmt::format("--timeline: {} cannot be written", options.timeline));
}

/// Memory of one device; nothing if there is none and none was named.
std::optional<std::uint64_t> device_memory(const Options& options) {
  if (options.device_memory) return options.device_memory;
  try {
    const auto devices = topology::visible_devices();
    return devices.empty() ? std::nullopt : std::optional(devices.front().bytes);
  } catch (const InputError&) {
    return std::nullopt;  // planning needs no device
  }
}

int plan(const Options& options) {
  const deck::Deck deck =
      deck::read_deck(options.deck.path, options.deck.overrides,
                      {.ranks = 0, .node_sizes = {}, .planning = true, .adapters = options.adapters});
  const Machine& machine = options.machine;
  const auto memory = device_memory(options);
  write_timeline(options, deck, machine);
  if (options.program) {
    if (deck.cases.size() != 1)
      throw InputError(fmt::format(
          "--program: the deck has {} cases, the program of one can be printed; choose it with --set",
          deck.cases.size()));
    fmt::print("{}", schedule::to_text(*plan_case(deck, 0, machine).program));
    return 0;
  }
  // Cases of one program one after another; no other program is kept, as it may be large.
  const std::size_t count = deck.cases.size();
  std::map<schedule::Request, std::size_t> place;
  std::vector<std::vector<std::size_t>> alike;
  for (std::size_t i = 0; i < count; ++i) {
    const auto [at, added] = place.try_emplace(deck::request_of(deck.cases[i]), alike.size());
    if (added) alike.emplace_back();
    alike[at->second].push_back(i);
  }
  std::vector<std::optional<CasePlan>> planned(count);
  std::vector<std::string> details(count);
  for (const std::vector<std::size_t>& of_one : alike)
    for (std::shared_ptr<const schedule::Program> program; const std::size_t i : of_one) {
      CasePlan& plan = planned[i].emplace(plan_case(deck, i, machine, std::move(program)));
      if (memory) plan.json["device"] = fit(plan, *memory);
      if (!options.json) details[i] = "\n" + to_text(plan, machine);
      program = std::move(plan.program);
    }
  if (options.json) {
    Json all = {{"notes", deck.notes}, {"assumed_per_rank", to_json(machine)}, {"cases", Json::array()}};
    for (std::optional<CasePlan>& plan : planned) all["cases"].push_back(std::move(plan->json));
    put_out(json_text(all));
  } else {
    for (const std::string& note : deck.notes) fmt::print("# {}\n", note);
    Plans plans;
    for (std::optional<CasePlan>& plan : planned) plans.push_back(std::move(*plan));
    fmt::print("{}{}", plans.empty() ? "" : table_text(plans), fmt::join(details, ""));
  }
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  Machine& machine = options->machine;
  CLI::App* verb = app.add_subcommand(
      "plan", "bytes, memory and idle time of every case, without running it; needs no MPI job");
  add_deck(*verb, options->deck);
  CLI::Option* json = verb->add_flag("--json", options->json, "JSON on standard output, nothing else");
  verb->add_flag("--program", options->program, "the actions of every rank of the one case that is left")
      ->excludes(json);
  add_memory(*verb, "--device-memory", options->device_memory,
             "memory of one device, for example 80G: says whether each case fits and the largest S that does "
             "(default: the device of this machine, if there is one)");
  verb->add_option("--timeline", options->timeline,
                   "write when every action of a planned step runs, for scripts/timeline")
      ->type_name("FILE.json");
  verb->add_option("--case", options->timeline_cases,
                   "what --timeline holds: a number of the table, or 0,2 or all (default: 0)")
      ->type_name("N");
  verb->add_option(
          "--costs", options->costs,
          "measured durations of the actions of --timeline, as scripts/timeline --planned makes them")
      ->type_name("FILE.json");
  add_rate(*verb, "--flops", Rate::flops, machine.flops,
           fmt::format("assumed FLOP/s of a rank ({:.0f}T: 40% of an H100 SXM in dense bf16)",
                       machine.flops * 1e-12));
  add_rate(*verb, "--inside", Rate::bytes, machine.inside,
           fmt::format(
               "assumed bytes/s of a rank inside its group, one direction ({:.0f}G: NVLink of an H100 SXM)",
               machine.inside * 1e-9));
  add_rate(*verb, "--between", Rate::bytes, machine.between,
           fmt::format("assumed bytes/s of a rank to other groups, one direction ({:.0f}G: an adapter of 400 "
                       "Gbit/s for each rank, as in a DGX H100)",
                       machine.between * 1e-9));
  add_rate(*verb, "--nic", Rate::link, machine.nic,
           "rate of the adapter that all ranks of a group share, each direction: 12.5M in bytes/s, or "
           "100mbit; says how long a step takes at least for what passes the busiest one");
  verb->add_option("--adapters", options->adapters, "network adapters of each node: what rails=auto becomes")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  verb->callback([&invocation, options] { invocation.code = plan(*options); });
}

}  // namespace minitaw::app
