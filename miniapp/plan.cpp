// SPDX-License-Identifier: BSD-3-Clause
#include "model/plan.hpp"
#include <fmt/format.h>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include "base/error.hpp"
#include "cli/cli11.hpp"
#include "deck/deck.hpp"
#include "instruments/chakra/chakra.hpp"
#include "schedule/account.hpp"
#include "schedule/orders.hpp"
#include "schedule/simulate.hpp"
#include "schedule/validate.hpp"
#include "topology/devices.hpp"
#include "trace/timeline.hpp"
#include "verb.hpp"

namespace minitaw::app {
namespace {
using model::Layout, schedule::Program;

struct Options {
  DeckOptions deck;
  bool json = false, program = false;
  std::string csv, chakra;  ///< file and folder to write the program to
  std::optional<std::uint64_t>
      device_memory;  ///< bytes; empty: that of the device of this machine, if any
  int adapters = 1, threads = 1;
  schedule::Device device;
  TableOptions table;
};

using TrafficBytes = std::array<std::uint64_t, schedule::traffic_kinds>;  ///< by schedule::Traffic
using MemoryBytes = std::array<std::uint64_t, schedule::memory_kinds>;    ///< by schedule::Memory

std::uint64_t total(const auto& by_kind) {
  return std::accumulate(by_kind.begin(), by_kind.end(), std::uint64_t{0});
}

/// Bytes that a group's ranks exchange with other groups in one step.
struct GroupTraffic {
  int group = 0, ranks = 0;
  std::uint64_t out = 0, in = 0;
};

/// A rank on a host: the resident set that its process needs.
struct HostRank {
  std::uint64_t step = 0;     ///< buffers of the step, tokens included
  std::uint64_t process = 0;  ///< estimate of what the process has beside them

  [[nodiscard]] std::uint64_t total() const { return step + process; }
};

struct Fit {
  std::uint64_t available = 0;
  std::uint64_t arena = 0;  ///< of the rank that needs most
  std::uint64_t libraries =
      0;  ///< estimate of what driver, matrix products and attention take beside it
  std::int64_t largest_seq = 0;  ///< the largest S that fits; 0: none

  [[nodiscard]] bool fits() const { return arena + libraries <= available; }
};

/// The cost of a case, from its program alone. JSON, table and text are written from it.
struct CasePlan {
  Case settings;
  std::size_t number = 0;  ///< in the deck
  record::Row row;         ///< the settings
  int shards = 0;
  TrafficBytes inside{}, between{};  ///< of groups, one step
  std::vector<GroupTraffic> groups;
  schedule::MessageCounts messages;
  schedule::Ticks ticks;
  double step_s = 0;      ///< with compute as on the assumed device and transfers that are free
  double idle_share = 0;  ///< of that step, 0 to 1
  std::vector<double> idle_shares;                  ///< of each rank
  std::vector<MemoryBytes> memory;                  ///< of each rank
  std::vector<HostRank> host;                       ///< of each rank
  std::size_t worst = 0;                            ///< the rank that needs most memory
  std::array<int, schedule::slot_classes> slots{};  ///< of that rank, by schedule::SlotClass
  std::optional<Fit> device;                        ///< nothing without a device to fit

  [[nodiscard]] int slots_of(schedule::SlotClass cls) const {
    return slots[schedule::index_of(cls)];
  }

  /// The group that sends (&GroupTraffic::out) or receives (&GroupTraffic::in) most.
  [[nodiscard]] const GroupTraffic& busiest(std::uint64_t GroupTraffic::* bytes) const {
    return *std::ranges::max_element(groups, {}, bytes);
  }
};

/// The arena of the worst rank is exact, the rest an estimate.
Fit fit_of(const Case& c, const Program& program, std::uint64_t available) {
  constexpr std::uint64_t context_bytes = std::uint64_t{1} << 30;  // of the driver, kernels, NCCL
  constexpr std::int64_t seq_step = 128, longest_seq = std::int64_t{1} << 26;
  const auto at = [&](std::int64_t seq) {
    model::Shape shape = c.shape;
    shape.seq = seq;
    const Layout layout = model::make_layout(shape, schedule::cut_of(program));
    Fit fit{available, 0, context_bytes + model::library_estimate(shape)};
    for (const auto& rank : schedule::memory(program, layout, c.micro_batch_per_rank))
      fit.arena = std::max<std::uint64_t>(fit.arena, rank.arena());
    return fit;
  };
  // Memory grows with S, so halving finds the last that fits.
  std::int64_t fitting = 0, beyond = longest_seq / seq_step + 1;
  while (beyond - fitting > 1) {
    const std::int64_t middle = fitting + (beyond - fitting) / 2;
    bool fits = false;
    try {
      fits = at(middle * seq_step).fits();
    } catch (const InputError&) {  // larger than any buffer can be
    }
    (fits ? fitting : beyond) = middle;
  }
  Fit fit = at(c.shape.seq);
  fit.largest_seq = fitting * seq_step;
  return fit;
}

CasePlan plan_case(const Case& c,
    std::size_t number,
    const Program& program,
    const schedule::Device& device,
    std::optional<std::uint64_t> memory,
    int threads) {
  const Layout layout = model::make_layout(c.shape, schedule::cut_of(program));
  const topology::Groups& groups = program.groups;
  CasePlan plan;
  plan.settings = c;
  plan.number = number;
  plan.row = record::preview({c}).front();
  plan.shards = program.shards;

  const schedule::ByteMatrix bytes = schedule::bytes(program, layout);
  for (int k = 0; k < schedule::traffic_kinds; ++k) {
    plan.inside[k] = bytes.inside(groups, static_cast<schedule::Traffic>(k));
    plan.between[k] = bytes.between(groups, static_cast<schedule::Traffic>(k));
  }
  for (int g = 0; g < groups.count(); ++g)
    plan.groups.push_back({g, groups.size(g), bytes.leaving(groups, g), bytes.entering(groups, g)});
  plan.messages = schedule::messages(program);

  plan.ticks = schedule::ticks(program);
  const schedule::Costs costs = schedule::costs_of(program, layout, device, c.micro_batch_per_rank);
  const schedule::Idle idle = schedule::idle(program, schedule::simulate(program, costs));
  plan.step_s = idle.seconds;
  plan.idle_share = idle.share();
  for (int r = 0; r < c.ranks; ++r)
    plan.idle_shares.push_back(idle.share(r));

  for (const schedule::Footprint& rank : schedule::memory(program, layout, c.micro_batch_per_rank))
    std::ranges::copy(rank.by_kind, plan.memory.emplace_back().begin());
  for (int r = 0; r < c.ranks; ++r) {
    const std::uint64_t beside = schedule::process_bytes(program, r, c.steps) +
                                 model::blas_estimate(shape_of_rank(c, r), threads);
    plan.host.push_back({total(plan.memory[r]), schedule::process_base + beside});
  }
  plan.worst = std::ranges::max_element(plan.memory, {}, total<MemoryBytes>) - plan.memory.begin();
  plan.slots = program.ranks[plan.worst].slots;
  if (memory)
    plan.device = fit_of(c, program, *memory);
  return plan;
}

/// Bytes by kind; "total" comes last.
template <class Kind>
Json by_kind(const auto& bytes, Json json = {}) {
  for (std::size_t k = 0; k < bytes.size(); ++k)
    json[schedule::name_of(static_cast<Kind>(k))] = bytes[k];
  json["total"] = total(bytes);
  return json;
}

Json settings_json(const CasePlan& plan) {
  Json json;
  for (const record::Column& column : plan.row.columns)
    if (column.is_setting)
      std::visit([&](const auto& cell) { json[column.name] = cell; }, column.value);
  json["ffn_per_layer"] = plan.settings.shape.ffn;
  Json& sizes = json["micro_batch_per_rank"] = Json::array();
  for (int r = 0; r < plan.settings.ranks; ++r)
    sizes.push_back(micro_batch_of(plan.settings, r));
  return json;
}

Json to_json(const CasePlan& plan) {
  Json groups = Json::array(), ranks = Json::array();
  for (const GroupTraffic& g : plan.groups)
    groups.push_back(
        {{"group", g.group}, {"ranks", g.ranks}, {"bytes_out", g.out}, {"bytes_in", g.in}});
  for (const auto& rank : plan.memory)
    ranks.push_back(by_kind<schedule::Memory>(rank, {{"rank", ranks.size()}}));
  const auto busiest = [&](std::uint64_t GroupTraffic::* bytes) -> Json {
    const GroupTraffic& most = plan.busiest(bytes);
    return {{"group", most.group}, {"bytes", most.*bytes}};
  };
  Json slots = {{"rank", plan.worst}};
  for (int c = 0; c < schedule::slot_classes; ++c)
    slots[std::string(1, letter_of(static_cast<schedule::SlotClass>(c)))] = plan.slots[c];
  const schedule::MessageCounts& m = plan.messages;
  Json json = {{"settings", settings_json(plan)},
      {"shards", plan.shards},
      {"bytes_per_step",
          {{"inside", by_kind<schedule::Traffic>(plan.inside)},
              {"between", by_kind<schedule::Traffic>(plan.between)}}},
      {"busiest_out", busiest(&GroupTraffic::out)},
      {"busiest_in", busiest(&GroupTraffic::in)},
      {"groups", groups},
      {"messages",
          {{"weights_between", m.weights_between},
              {"weights_inside", m.weights_inside},
              {"gradients_between", m.gradients_between},
              {"gradients_inside", m.gradients_inside},
              {"broadcasts", m.broadcasts},
              {"reduces", m.reduces}}},
      {"ticks", {{"total", plan.ticks.total}, {"computing_per_rank", plan.ticks.busy}}},
      {"idle",
          {{"share", plan.idle_share},
              {"step_s", plan.step_s},
              {"share_per_rank", plan.idle_shares}}},
      {"slots", slots},
      {"memory_bytes", {{"worst", ranks[plan.worst]}, {"ranks", ranks}}}};
  for (const HostRank& rank : plan.host)
    json["host_bytes"].push_back(
        {{"step", rank.step}, {"process_estimate", rank.process}, {"total", rank.total()}});
  if (const auto& fit = plan.device)
    json["device"] = {{"available_bytes", fit->available},
        {"arena_bytes", fit->arena},
        {"libraries_estimate_bytes", fit->libraries},
        {"fits", fit->fits()},
        {"largest_seq", fit->largest_seq}};
  return json;
}

/// "2+1+3", and "16x8" for many equal ones.
std::string groups_text(const topology::Groups& groups) {
  const auto [least, most] = std::ranges::minmax(groups.sizes());
  return groups.count() > 4 && least == most ? fmt::format("{}x{}", groups.count(), least)
                                             : groups.text();
}

using Plans = std::vector<CasePlan>;
using Column = record::TextColumn<CasePlan>;

struct ByteColumn {
  std::string title;
  std::function<double(const CasePlan&)> bytes;
  int spare = 0;
};

/// Columns of bytes in the unit that the largest of them asks for.
void append_bytes(std::vector<Column>& columns,
    const Plans& plans,
    const std::string& per,
    const std::vector<ByteColumn>& added) {
  double most = 0;
  for (const auto& [title, bytes, spare] : added)
    for (const CasePlan& plan : plans)
      most = std::max(most, bytes(plan));
  const ByteUnit unit = byte_unit(most, 10000);
  for (const auto& [title, bytes, spare] : added)
    columns.push_back({title,
        unit.name + per,
        0,
        [unit, bytes = bytes](
            const CasePlan& p) { return record::figure(bytes(p) / unit.bytes, 3); },
        spare});
}

/// "3/0/2/0/8/0/1": slots for weights, parts kept, gradients, sums, what F saves, what B leaves for
/// W, hidden states.
std::string slots_text(const CasePlan& plan) {
  using enum schedule::SlotClass;
  return fmt::format("{}/{}/{}/{}/{}/{}/{}",
      plan.slots_of(weights),
      plan.slots_of(kept),
      plan.slots_of(gradient) + plan.slots_of(contribution),
      plan.slots_of(partial),
      plan.slots_of(saved),
      plan.slots_of(deferred),
      plan.slots_of(hidden));
}

/// Names and units, and a line for each case, with a column for each setting in which they differ.
std::string table_text(const Plans& plans, int width) {
  std::vector<Column> columns = {
      {"case", "", 0, [](const CasePlan& p) { return fmt::to_string(p.number); }},
      {"schedule", "", -1, [](const CasePlan& p) { return p.settings.schedule; }},
      {"ranks", "", 0, [](const CasePlan& p) { return fmt::to_string(p.settings.ranks); }, 5},
      {"groups", "", -1, [](const CasePlan& p) { return groups_text(p.settings.groups); }, 6}};
  for (const std::string_view name : record::varying_settings(list_of(plans, &CasePlan::row))) {
    if (name == "schedule" || name == "ranks" || name == "groups")
      continue;
    const std::string title = name == "micro_batch"     ? "B"
                              : name == "micro_batches" ? "M"
                                                        : std::string(name);
    columns.push_back(
        {title, "", 0, [name](const CasePlan& p) { return p.row.column(name).text(); }});
  }
  const auto per_rank = [](const TrafficBytes& bytes, const CasePlan& p) {
    return static_cast<double>(total(bytes)) / p.settings.ranks;
  };
  append_bytes(columns,
      plans,
      "/rank",
      {{"inside", [=](const CasePlan& p) { return per_rank(p.inside, p); }, 2},
          {"between", [=](const CasePlan& p) { return per_rank(p.between, p); }, 3}});
  const auto busiest = [](std::uint64_t GroupTraffic::* bytes) {
    return [=](const CasePlan& p) { return static_cast<double>(p.busiest(bytes).*bytes); };
  };
  append_bytes(columns,
      plans,
      "",
      {{"NIC-out", busiest(&GroupTraffic::out)}, {"NIC-in", busiest(&GroupTraffic::in), 1}});
  std::vector<ByteColumn> memory;
  for (std::size_t k = 0; k < schedule::memory_kinds; ++k)
    memory.push_back({std::string(schedule::name_of(static_cast<schedule::Memory>(k))),
        [k](const CasePlan& p) { return static_cast<double>(p.memory[p.worst][k]); },
        7});
  memory.push_back(
      {"memory", [](const CasePlan& p) { return static_cast<double>(total(p.memory[p.worst])); }});
  append_bytes(columns, plans, "", memory);
  columns.push_back({"w/k/g/p/a/b/x", "slots", 0, slots_text, 8});
  columns.push_back(
      {"ticks", "", 0, [](const CasePlan& p) { return fmt::to_string(p.ticks.total); }, 4});
  columns.push_back({"idle", "%", 0, [](const CasePlan& p) {
                       return fmt::format("{:.1f}", std::max(0.0, 100 * p.idle_share));
                     }});
  const record::TextTable<CasePlan> table(columns, plans, width);
  std::string text = table.header();
  for (const CasePlan& plan : plans)
    text += table.row(plan);
  return text;
}

std::string cells(const std::string& name, const std::vector<std::string>& cells) {
  std::string text = fmt::format("  {:<16}", name);
  for (const std::string& cell : cells)
    text += fmt::format(" {:>13}", cell);
  return text + "\n";
}

template <class Kind>
std::string title_line(const std::string& name, int kinds) {
  std::vector<std::string> titles = schedule::names_of<Kind>(kinds);
  titles.emplace_back("total");
  return cells(name, titles);
}

std::string line(const std::string& name, const auto& bytes) {
  std::vector<std::string> sizes = list_of(bytes, size_text);
  sizes.push_back(size_text(total(bytes)));
  return cells(name, sizes);
}

std::string traffic_text(const CasePlan& plan) {
  std::string text = title_line<schedule::Traffic>("bytes per step", schedule::traffic_kinds) +
                     line("inside groups", plan.inside) + line("between groups", plan.between);
  const GroupTraffic &out = plan.busiest(&GroupTraffic::out), &in = plan.busiest(&GroupTraffic::in);
  if (plan.groups.size() > 1)
    text += fmt::format("  busiest NIC      {} out (group {}), {} in (group {})\n",
        size_text(out.out),
        out.group,
        size_text(in.in),
        in.group);
  const schedule::MessageCounts& m = plan.messages;
  return text +
         fmt::format(
             "  messages         weights {} between, {} inside; gradients {} between, {} inside; "
             "{} broadcasts, {} reduces\n",
             m.weights_between,
             m.weights_inside,
             m.gradients_between,
             m.gradients_inside,
             m.broadcasts,
             m.reduces);
}

std::string time_text(const CasePlan& plan) {
  const auto [fewest, most] = std::ranges::minmax(plan.ticks.busy);
  const auto [least, largest] = std::ranges::minmax(plan.idle_shares);
  return fmt::format("  ticks            {} per step, of which a rank computes in {} to {}\n"
                     "  idle             {:.2f}% of the time if transfers take none ({:.2f} to "
                     "{:.2f}% per rank)\n",
      plan.ticks.total,
      fewest,
      most,
      100 * plan.idle_share,
      100 * least,
      100 * largest);
}

/// The rank that needs most, then one line for each run of ranks that need the same.
std::string memory_text(const CasePlan& plan) {
  const std::vector<MemoryBytes>& ranks = plan.memory;
  std::string text =
      fmt::format(
          "  slots            {} for weights / parts kept / gradients / sums / saved by F / "
          "left by B / hidden states on rank {}\n",
          slots_text(plan),
          plan.worst) +
      title_line<schedule::Memory>("memory per rank", schedule::memory_kinds) +
      line(fmt::format("worst: rank {}", plan.worst), ranks[plan.worst]);
  for (std::size_t first = 0, end = 0; first < ranks.size(); first = end) {
    while (end < ranks.size() && ranks[end] == ranks[first])
      ++end;
    text += line(end - first == 1 ? fmt::format("rank {}", first)
                                  : fmt::format("ranks {} to {}", first, end - 1),
        ranks[first]);
  }
  const HostRank& worst = plan.host[plan.worst];
  return text + fmt::format(
                    "  on a host        rank {} needs {} and about {} for its process, {} in all\n",
                    plan.worst,
                    size_text(worst.step),
                    size_text(worst.process),
                    size_text(worst.total()));
}

std::string fit_text(const Fit& fit) {
  return fmt::format(
      "  device           {}: worst rank needs {} and about {} for libraries, of {}; {}\n",
      fit.fits() ? "fits" : "DOES NOT FIT",
      size_text(fit.arena),
      size_text(fit.libraries),
      size_text(fit.available),
      fit.largest_seq > 0 ? fmt::format("the largest S that fits is {}", fit.largest_seq)
                          : "no S fits");
}

std::string to_text(const CasePlan& plan) {
  const Case& c = plan.settings;
  const model::Flops flops = model::flops_per_token(c.shape);
  const double tokens = tokens_of_step(c);
  return fmt::format("case {}: {}, {} in groups {}{}, L = {}, H = {}, S = {}, B = {}, M = {}\n"
                     "  model            {:.4g} parameters in {}, {}\n"
                     "  step             {:.6g} tokens, {:.4g} TFLOP with causal attention ({:.4g} "
                     "with full "
                     "attention)\n",
             plan.number,
             c.schedule,
             counted(c.ranks, "rank"),
             groups_text(c.groups),
             c.replicas > 1 ? fmt::format(", {} replicas", c.replicas) : "",
             c.shape.layers,
             c.shape.hidden,
             c.shape.seq,
             micro_batch_text(c),
             c.micro_batches,
             static_cast<double>(model::parameters(c.shape)),
             counted(plan.shards, "shard"),
             name_of(c.shape.dtype),
             tokens,
             tokens * (flops.matmul + flops.attention_causal) * 1e-12,
             tokens * (flops.matmul + flops.attention_full) * 1e-12) +
         traffic_text(plan) + time_text(plan) + memory_text(plan) +
         (plan.device ? fit_text(*plan.device) : "");
}

/// Memory of one device; nothing if there is none and none was named.
std::optional<std::uint64_t> device_memory(const Options& options) {
  if (options.device_memory)
    return options.device_memory;
  try {
    const auto devices = topology::visible_devices();
    return devices.empty() ? std::nullopt : std::optional(devices.front().bytes);
  } catch (const InputError&) {
    return std::nullopt;  // planning needs no device
  }
}

/// In the order of the deck. Cases of one program are planned together: a large one is kept only
/// once.
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
      fmt::print(stderr,
          "planning case {} of {}: {} on {} ranks, {}\n",
          i + 1,
          order.size(),
          c.schedule,
          c.ranks,
          counted(c.micro_batches, "micro-batch"));
    if (k == 0 || request(order[k - 1]) != request(i))
      program = schedule::build_valid(request(i));
    plans[i] = plan_case(c, i, program, options.device, memory, options.threads);
  }
  return plans;
}

void write_csv(const Program& program, const Case& c, const std::string& path) {
  if (!schedule::entry_of(request_of(c).spec.name).passes_activations)
    throw InputError(fmt::format(
        "--csv: {} passes no activations from stage to stage; plan a pipeline", c.schedule));
  std::ofstream file(path, std::ios::binary);
  if (!(file << schedule::to_torch_csv(program)).flush())
    throw InputError(fmt::format("--csv: {} cannot be written", path));
}

/// The program of the only case, as text or for other programs.
void write_program(const deck::Deck& deck, const Options& options) {
  if (deck.cases.size() + deck.unused.size() != 1)
    throw InputError(fmt::format(
        "--{}: the deck has {} cases, the program of one can be printed; choose it with --set",
        options.program       ? "program"
        : options.csv.empty() ? "chakra"
                              : "csv",
        deck.cases.size() + deck.unused.size()));
  const Case& c = deck.cases.front();
  const Program program = schedule::build_valid(request_of(c));
  if (options.program)
    write_stdout(schedule::to_text(program));
  if (!options.csv.empty())
    write_csv(program, c, options.csv);
  if (options.chakra.empty())
    return;
  const Layout layout = model::make_layout(c.shape, schedule::cut_of(program));
  chakra::write_chakra(program, layout, options.device, c.micro_batch_per_rank, options.chakra);
}

constexpr int few = 4;  ///< cases whose details a terminal shows

int plan(const Options& options) {
  const deck::Deck deck = deck::read_deck(options.deck.path,
      options.deck.overrides,
      {.ranks = 0, .node_sizes = {}, .planning = true, .adapters = options.adapters});
  if (options.program || !options.csv.empty() || !options.chakra.empty()) {
    write_program(deck, options);
    return 0;
  }
  const Plans plans = plan_all(deck, options);
  if (options.json) {
    Json all = {{"notes", deck.notes},
        {"assumed_per_rank",
            {{"flops", options.device.flops}, {"memory_bytes_per_s", options.device.memory}}},
        {"cases", Json::array()}};
    for (const CasePlan& plan : plans)
      all["cases"].push_back(to_json(plan));
    write_stdout(json_text(all));
    return 0;
  }
  for (const std::string& note : deck.notes)
    fmt::print("# {}\n", note);
  const int width = layout_of(options.table).width;
  if (!plans.empty())
    fmt::print("{}", table_text(plans, width));
  if (width > 0 && std::ssize(plans) > few) {
    fmt::print(
        "# {} in detail: --wide, or choose some with --set\n", counted(std::ssize(plans), "case"));
    return 0;
  }
  for (const CasePlan& plan : plans)
    fmt::print("\n{}", to_text(plan));
  return 0;
}
}  // namespace

void add_plan(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand(
      "plan", "bytes, memory and idle time of every case, without running it; needs no MPI job");
  add_deck(*verb, options->deck);
  CLI::Option* json =
      verb->add_flag("--json", options->json, "JSON on standard output, nothing else");
  verb->add_flag(
          "--program", options->program, "the actions of every rank of the one case that is left")
      ->excludes(json);
  verb->add_option("--csv", options->csv, "write the order of a pipeline, for PyTorch's _load_csv")
      ->type_name("FILE")
      ->excludes(json);
  verb->add_option("--chakra",
          options->chakra,
          "write the program as Chakra execution traces, for ASTRA-sim")
      ->type_name("FOLDER")
      ->excludes(json);
  add_memory(*verb,
      "--device-memory",
      options->device_memory,
      "memory of one device, for example 80G: says whether each case fits and the largest S that "
      "does "
      "(default: the device of this machine, if there is one)");
  add_flops(*verb,
      "--flops",
      options->device.flops,
      fmt::format("assumed FLOP/s of a rank ({:.0f}T: 40% of an H100 SXM in dense bf16)",
          options->device.flops * 1e-12));
  verb->add_option(
          "--adapters", options->adapters, "network adapters of each node: what rails=auto becomes")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  verb->add_option(
          "--threads", options->threads, "threads of a rank on a host: what its BLAS takes")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  add_table(*verb, options->table, false);
  verb->callback([&invocation, options] { invocation.code = plan(*options); });
}
}  // namespace minitaw::app
