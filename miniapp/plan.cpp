#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "cli/cli11.hpp"
#include "deck/deck.hpp"
#include "model/plan.hpp"
#include "record/table.hpp"
#include "schedule/account.hpp"
#include "schedule/simulate.hpp"
#include "schedule/validate.hpp"
#include "topology/devices.hpp"
#include "verb.hpp"

namespace minitaw::app {

namespace {

using model::Layout;
using schedule::Program;

struct Options {
  DeckOptions deck;
  bool json = false, program = false;
  std::optional<std::uint64_t> device_memory;  ///< bytes; empty: that of the device of this machine, if any
  int adapters = 1;
  schedule::Device device;
};

/// What a case costs, from its program alone.
struct CasePlan {
  Case settings;
  std::size_t number = 0;  ///< in the deck
  record::Row row;         ///< the settings
  Json json;               ///< what --json prints; the table and the text for people show parts of this
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

Json settings_json(const Case& c, const record::Row& row) {
  Json json;
  for (const record::Column& column : row.columns)
    if (column.place == record::Place::settings)
      std::visit([&](const auto& cell) { json[column.name] = cell; }, column.value);
  json["ffn_per_layer"] = c.shape.ffn;
  Json& sizes = json["micro_batch_per_rank"] = Json::array();
  for (int r = 0; r < c.ranks; ++r) sizes.push_back(micro_batch_of(c, r));
  return json;
}

/// What passes the links in one step.
Json traffic_json(const Program& program, const Layout& layout) {
  using schedule::Traffic;
  constexpr int kinds = schedule::traffic_kinds;
  const topology::Groups& groups = program.groups;
  const schedule::ByteMatrix bytes = schedule::bytes(program, layout);
  Json each = Json::array();
  for (int g = 0; g < groups.count(); ++g)
    each.push_back({{"group", g},
                    {"ranks", groups.size(g)},
                    {"bytes_out", bytes.leaving(groups, g)},
                    {"bytes_in", bytes.entering(groups, g)}});
  const auto busiest = [&](const char* direction) -> Json {
    const Json& most = *std::ranges::max_element(
        each, {}, [&](const Json& group) { return group[direction].get<std::uint64_t>(); });
    return {{"group", most["group"]}, {"bytes", most[direction]}};
  };
  const schedule::MessageCounts m = schedule::messages(program);
  return {{"bytes_per_step",
           {{"inside", by_kind<Traffic>(kinds, [&](Traffic k) { return bytes.inside(groups, k); })},
            {"between", by_kind<Traffic>(kinds, [&](Traffic k) { return bytes.between(groups, k); })}}},
          {"busiest_out", busiest("bytes_out")},
          {"busiest_in", busiest("bytes_in")},
          {"groups", each},
          {"messages",
           {{"weights_between", m.weights_between},
            {"weights_inside", m.weights_inside},
            {"gradients_between", m.gradients_between},
            {"gradients_inside", m.gradients_inside},
            {"broadcasts", m.broadcasts},
            {"reduces", m.reduces}}}};
}

/// Ticks, and idle time with compute as on the assumed device and transfers that are free.
Json time_json(const Program& program, const schedule::Costs& costs) {
  const schedule::Ticks ticks = schedule::ticks(program);
  const schedule::Idle idle = schedule::idle(program, schedule::simulate(program, costs));
  Json per_rank;
  for (std::size_t r = 0; r < program.ranks.size(); ++r) per_rank.push_back(idle.share(static_cast<int>(r)));
  return {{"ticks", {{"total", ticks.total}, {"computing_per_rank", ticks.busy}}},
          {"idle", {{"share", idle.share()}, {"step_s", idle.seconds}, {"share_per_rank", per_rank}}}};
}

/// Memory of each rank, and the slots of the one that needs most.
Json memory_json(const Program& program, const std::vector<schedule::Footprint>& footprints) {
  Json ranks = Json::array(), slots;
  for (const schedule::Footprint& rank : footprints) {
    ranks.push_back({{"rank", ranks.size()}});
    ranks.back().update(by_kind<schedule::Memory>(schedule::memory_kinds, [&](schedule::Memory kind) {
      return rank.by_kind[schedule::index_of(kind)];
    }));
  }
  const Json& worst = *std::ranges::max_element(
      ranks, {}, [](const Json& rank) { return rank["total"].get<std::uint64_t>(); });
  slots["rank"] = worst["rank"];
  for (int c = 0; c < schedule::slot_classes; ++c)
    slots[std::string(1, letter_of(static_cast<schedule::SlotClass>(c)))] =
        program.ranks[worst["rank"].get<std::size_t>()].slots[static_cast<std::size_t>(c)];
  return {{"slots", slots}, {"memory_bytes", {{"worst", worst}, {"ranks", ranks}}}};
}

/// Whether a case fits the memory of a device: with the arena of its worst rank, which is exact, and an
/// estimate of what driver, matrix products and attention take beside it.
Json fit_json(const Case& c, const Program& program, std::uint64_t available) {
  constexpr std::uint64_t context_bytes = std::uint64_t{1} << 30;  // of the driver, kernels, NCCL
  constexpr std::int64_t seq_step = 128, longest_seq = std::int64_t{1} << 26;
  const auto at = [&](std::int64_t seq) {
    model::Shape shape = c.shape;
    shape.seq = seq;
    const Layout layout = model::make_layout(shape, schedule::cut_of(program));
    std::uint64_t arena = 0;
    for (const auto& rank : schedule::memory(program, layout, c.micro_batch_per_rank))
      arena = std::max<std::uint64_t>(arena, rank.total());
    return std::pair(arena, context_bytes + model::library_estimate(shape));
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
  const auto [arena, libraries] = at(c.shape.seq);
  return {{"available_bytes", available},
          {"arena_bytes", arena},
          {"libraries_estimate_bytes", libraries},
          {"fits", arena + libraries <= available},
          {"largest_seq", fitting * seq_step}};  // 0: none
}

CasePlan plan_case(const Case& c, std::size_t number, const Program& program, const schedule::Device& device,
                   std::optional<std::uint64_t> memory) {
  const Layout layout = model::make_layout(c.shape, schedule::cut_of(program));
  CasePlan plan{c, number, record::preview({c}).front(), {}};
  plan.json = {{"settings", settings_json(c, plan.row)}, {"shards", program.shards}};
  plan.json.update(traffic_json(program, layout));
  plan.json.update(time_json(program, schedule::costs_of(program, layout, device, c.micro_batch_per_rank)));
  plan.json.update(memory_json(program, schedule::memory(program, layout, c.micro_batch_per_rank)));
  if (memory) plan.json["device"] = fit_json(c, program, *memory);
  return plan;
}

// The table over all cases.

/// "2+1+3", and "16x8" for many equal ones.
std::string groups_text(const topology::Groups& groups) {
  const auto [least, most] = std::ranges::minmax(groups.sizes());
  return groups.count() > 4 && least == most ? fmt::format("{}x{}", groups.count(), least) : groups.text();
}

/// "24 ranks in groups 8+8+8", and in how many replicas if there are several.
std::string ranks_text(const Case& c) {
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

/// "3/2/8/0/1": slots for weights, gradients, what F keeps, what B leaves for W and hidden states.
std::string slots_text(const Json& slots) {
  const auto count = [&](const char* letter) { return slots.at(letter).get<int>(); };
  return fmt::format("{}/{}/{}/{}/{}", count("w"), count("g") + count("c"), count("a"), count("b"),
                     count("x"));
}

/// Names and units, and a line for each case, with a column for each setting in which they differ.
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
  return text;
}

// One case for people.

/// A line: name, then each kind or its bytes, right-aligned.
std::string line(const std::string& name, const Json& kinds, bool titles = false) {
  std::string text = fmt::format("  {:<16}", name);
  for (const auto& [kind, bytes] : kinds.items())
    if (kind != "rank") text += fmt::format(" {:>13}", titles ? kind : size_text(bytes.get<std::uint64_t>()));
  return text + "\n";
}

std::string traffic_text(const Json& plan) {
  const Json &inside = plan["bytes_per_step"]["inside"], &between = plan["bytes_per_step"]["between"];
  std::string text =
      line("bytes per step", inside, true) + line("inside groups", inside) + line("between groups", between);
  if (const Json &out = plan["busiest_out"], &in = plan["busiest_in"]; plan["groups"].size() > 1)
    text += fmt::format("  busiest NIC      {} out (group {}), {} in (group {})\n",
                        size_text(out["bytes"].get<std::uint64_t>()), out["group"].get<int>(),
                        size_text(in["bytes"].get<std::uint64_t>()), in["group"].get<int>());
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

std::string to_text(const CasePlan& plan) {
  const Case& c = plan.settings;
  const model::Flops flops = model::flops_per_token(c.shape);
  const double tokens = tokens_of_step(c);
  return fmt::format("case {}: {}, {}, L = {}, H = {}, S = {}, B = {}, M = {}\n"
                     "  model            {:.4g} parameters in {} shards, {}\n"
                     "  step             {:.6g} tokens, {:.4g} TFLOP with causal attention ({:.4g} with full "
                     "attention)\n",
                     plan.number, c.schedule, ranks_text(c), c.shape.layers, c.shape.hidden, c.shape.seq,
                     micro_batch_text(c), c.micro_batches, static_cast<double>(model::parameters(c.shape)),
                     plan.json["shards"].get<int>(), name_of(c.shape.dtype), tokens,
                     tokens * (flops.matmul + flops.attention_causal) * 1e-12,
                     tokens * (flops.matmul + flops.attention_full) * 1e-12) +
         traffic_text(plan.json) + time_text(plan.json) + memory_text(plan.json) +
         (plan.json.contains("device") ? fit_text(plan.json["device"]) : "");
}

// The verb.

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

/// In the order of the deck, but those of one program are planned one after another: no other one is kept, as
/// it may be large.
Plans plan_all(const deck::Deck& deck, const Options& options) {
  const auto memory = device_memory(options);
  std::vector<std::size_t> order(deck.cases.size());
  std::iota(order.begin(), order.end(), 0);
  const auto request = [&](std::size_t i) { return request_of(deck.cases[i]); };
  std::ranges::stable_sort(order, {}, request);
  Plans plans(order.size());
  Program program;
  for (std::size_t k = 0; k < order.size(); ++k) {
    const std::size_t i = order[k];
    const Case& c = deck.cases[i];
    if (c.ranks >= 512)  // it takes a while
      fmt::print(stderr, "planning case {} of {}: {} on {} ranks, {} micro-batches\n", i + 1, order.size(),
                 c.schedule, c.ranks, c.micro_batches);
    if (k == 0 || request(order[k - 1]) != request(i)) program = schedule::build_valid(request(i));
    plans[i] = plan_case(c, i, program, options.device, memory);
  }
  return plans;
}

int plan(const Options& options) {
  const deck::Deck deck =
      deck::read_deck(options.deck.path, options.deck.overrides,
                      {.ranks = 0, .node_sizes = {}, .planning = true, .adapters = options.adapters});
  if (options.program) {
    if (deck.cases.size() != 1)
      throw InputError(fmt::format(
          "--program: the deck has {} cases, the program of one can be printed; choose it with --set",
          deck.cases.size()));
    write_stdout(schedule::to_text(schedule::build_valid(request_of(deck.cases.front()))));
    return 0;
  }
  const Plans plans = plan_all(deck, options);
  if (options.json) {
    Json all = {{"notes", deck.notes},
                {"assumed_per_rank",
                 {{"flops", options.device.flops}, {"memory_bytes_per_s", options.device.memory}}},
                {"cases", Json::array()}};
    for (const CasePlan& plan : plans) all["cases"].push_back(plan.json);
    write_stdout(json_text(all));
    return 0;
  }
  for (const std::string& note : deck.notes) fmt::print("# {}\n", note);
  if (!plans.empty()) fmt::print("{}", table_text(plans));
  for (const CasePlan& plan : plans) fmt::print("\n{}", to_text(plan));
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand(
      "plan", "bytes, memory and idle time of every case, without running it; needs no MPI job");
  add_deck(*verb, options->deck);
  CLI::Option* json = verb->add_flag("--json", options->json, "JSON on standard output, nothing else");
  verb->add_flag("--program", options->program, "the actions of every rank of the one case that is left")
      ->excludes(json);
  add_memory(*verb, "--device-memory", options->device_memory,
             "memory of one device, for example 80G: says whether each case fits and the largest S that does "
             "(default: the device of this machine, if there is one)");
  add_flops(*verb, "--flops", options->device.flops,
            fmt::format("assumed FLOP/s of a rank ({:.0f}T: 40% of an H100 SXM in dense bf16)",
                        options->device.flops * 1e-12));
  verb->add_option("--adapters", options->adapters, "network adapters of each node: what rails=auto becomes")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  verb->callback([&invocation, options] { invocation.code = plan(*options); });
}

}  // namespace minitaw::app
