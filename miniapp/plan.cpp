// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <ranges>
#include <unistd.h>
#include "base/error.hpp"
#include "budget.hpp"
#include "cli/cli11.hpp"
#include "deck/deck.hpp"
#include "schedule/simulate.hpp"
#include "schedule/validate.hpp"
#include "topology/devices.hpp"
#include "verb.hpp"

namespace minitaw::app {
namespace {
using schedule::Program;

using TrafficBytes = std::array<std::uint64_t, schedule::traffic_kinds>;  ///< by schedule::Traffic
using GroupTraffic = schedule::ByteMatrix::OfGroup;
using MemoryBytes = decltype(schedule::Footprint::by_kind);  ///< by schedule::Memory

/// Whether the ranks fit on devices of one size.
struct DeviceFit {
  std::uint64_t available = 0;
  Need worst;                    ///< of the rank that needs most
  std::int64_t largest_seq = 0;  ///< the largest S that fits; 0: none

  bool fits() const { return worst.total() <= available; }
};

/// The cost of a case, from its program alone.
struct CaseCost {
  Case asked;
  std::int64_t number = 0;  ///< in the deck
  int shards = 0;
  TrafficBytes inside{}, between{};  ///< of groups, one step
  std::vector<GroupTraffic> groups;
  schedule::Ticks ticks;
  schedule::Idle idle;  ///< with compute as on the assumed device and transfers that are free
  std::vector<MemoryBytes> memory;                  ///< of each rank of a replica
  std::vector<Need> host;                           ///< of each, with its whole process
  std::size_t worst = 0;                            ///< the rank that needs most memory
  std::array<int, schedule::slot_classes> slots{};  ///< of that rank, by schedule::SlotClass
  std::optional<DeviceFit> device;                  ///< nothing without a device to fit
};

/// The machine that a plan assumes.
struct AssumedMachine {
  schedule::Device device;
  std::optional<std::uint64_t> device_memory;  ///< bytes; nothing: unknown
  int adapters = 1;                            ///< of each node
};

/// The sum over all kinds.
std::uint64_t total(const auto& by_kind) {
  return std::accumulate(by_kind.begin(), by_kind.end(), std::uint64_t{0});
}

/// Memory that driver, kernels and NCCL take of a device; an estimate.
constexpr std::uint64_t context_bytes = std::uint64_t{1} << 30;

/// The need of the rank whose arena is largest, with what driver, kernels and NCCL take.
Need worst_on_device(const PlannedCase& plan) {
  Need worst = std::ranges::max(needs_on_device(plan), {}, &Need::step);
  worst.beside += context_bytes;
  return worst;
}

/// The largest S, a multiple of 128 that falls into chunks, with which the case fits; 0: none.
std::int64_t largest_seq(const PlannedCase& plan, std::uint64_t available) {
  constexpr int longest_seq = 1 << 26;
  const int seq_step = std::lcm(128, 2 * plan.asked.shape.context.count);
  const auto fits = [&](int steps) {
    Case other = plan.asked;
    other.shape.seq = std::int64_t{steps} * seq_step;
    try {
      return worst_on_device(PlannedCase(other, plan.program)).total() <= available;
    } catch (const InputError&) {  // larger than any buffer can be
      return false;
    }
  };
  const auto steps = std::views::iota(1, longest_seq / seq_step + 1);  // memory grows with them
  return seq_step * (std::ranges::partition_point(steps, fits) - steps.begin());
}

CaseCost cost_of(const PlannedCase& plan, std::int64_t number, const AssumedMachine& machine) {
  const Program& program = *plan.program;
  CaseCost cost;
  cost.asked = plan.asked;
  cost.number = number;
  cost.shards = program.shards;
  const schedule::ByteMatrix bytes = schedule::bytes(program, plan.layout);
  for (const auto& [kind, name] : schedule::table_of<schedule::Traffic>) {
    cost.inside[index_of(kind)] = bytes.inside(plan.asked.groups, kind);
    cost.between[index_of(kind)] = bytes.between(plan.asked.groups, kind);
  }
  cost.groups = bytes.by_group(plan.asked.groups);
  cost.ticks = schedule::ticks(program);
  const schedule::Costs seconds = schedule::costs_of(program, plan.layout, machine.device);
  cost.idle = schedule::idle(program, schedule::simulate(program, seconds));
  cost.memory = list_of(plan.memory, &schedule::Footprint::by_kind);
  cost.host = needs_on_host(plan, 1);
  for (Need& rank : cost.host)
    rank.beside += schedule::process_base;
  cost.worst = std::ranges::max_element(cost.memory, {}, total<MemoryBytes>) - cost.memory.begin();
  cost.slots = program.ranks[cost.worst].slots;
  if (const auto available = machine.device_memory)
    cost.device = {*available, worst_on_device(plan), largest_seq(plan, *available)};
  return cost;
}

using Costs = std::vector<CaseCost>;
using CostColumn = TableColumn<CaseCost>;
using CostColumns = std::vector<CostColumn>;

/// Bytes by kind; "total" comes last.
template <class Kind>
Json by_kind(const auto& bytes, Json json = {}) {
  for (std::size_t k = 0; k < bytes.size(); ++k)
    json[schedule::name_of(static_cast<Kind>(k))] = bytes[k];
  json["total"] = total(bytes);
  return json;
}

using BytesOf = std::function<double(const CaseCost&)>;

/// Appends columns of bytes, in the unit that the largest of them asks for.
void append_bytes(CostColumns& columns,
    const Costs& plans,
    const std::string& per,
    bool wide,
    const std::vector<std::pair<std::string, BytesOf>>& added) {
  double most = 0;
  for (const auto& [title, bytes] : added)
    for (const CaseCost& plan : plans)
      most = std::max(most, bytes(plan));
  const ByteUnit unit = byte_unit(most, 10000);
  for (const auto& [title, bytes] : added)
    columns.push_back({.title = title,
        .units = unit.name + per,
        .value = bytes,
        .format = {.factor = 1 / unit.bytes, .decimals = 3},
        .wide = wide});
}

std::string cells(const std::string& name, const std::vector<std::string>& cells) {
  std::string text = fmt::format("  {:<16}", name);
  for (const std::string& cell : cells)
    text += fmt::format(" {:>13}", cell);
  return text + "\n";
}

template <class Kind>
std::string title_line(const std::string& name) {
  std::vector<std::string> titles = schedule::names_of<Kind>();
  titles.emplace_back("total");
  return cells(name, titles);
}

std::string line(const std::string& name, const auto& bytes) {
  std::vector<std::string> sizes = list_of(bytes, size_text);
  sizes.push_back(size_text(total(bytes)));
  return cells(name, sizes);
}

/// One line for each run of ranks that need the same; replicas are alike.
std::string memory_text(const CaseCost& plan) {
  const std::vector<MemoryBytes>& ranks = plan.memory;
  std::string text =
      title_line<schedule::Memory>(plan.asked.replicas > 1 ? "of each replica" : "memory per rank");
  for (std::size_t first = 0, end = 0; first < ranks.size(); first = end) {
    while (end < ranks.size() && ranks[end] == ranks[first])
      ++end;
    text += line(end - first == 1 ? fmt::format("rank {}", first)
                                  : fmt::format("ranks {} to {}", first, end - 1),
        ranks[first]);
  }
  const Need& worst = plan.host[plan.worst];
  return text + fmt::format(
                    "  on a host        rank {} needs {} and about {} for its process, {} in all\n",
                    plan.worst,
                    size_text(worst.step),
                    size_text(worst.beside),
                    size_text(worst.total()));
}

std::string fit_text(const DeviceFit& fit) {
  return fmt::format(
      "  device           {}: worst rank needs {} and about {} for libraries, of {}; {}\n",
      fit.fits() ? "fits" : "DOES NOT FIT",
      size_text(fit.worst.step),
      size_text(fit.worst.beside),
      size_text(fit.available),
      fit.largest_seq > 0 ? fmt::format("the largest S that fits is {}", fit.largest_seq)
                          : "no S fits");
}

Json json_of(const CaseCost& plan) {
  Json groups = Json::array(), ranks = Json::array(), busy = Json::array(), host = Json::array(),
       shares = Json::array();
  for (const int g : indices(plan.groups))
    groups.push_back({{"group", g},
        {"ranks", plan.asked.groups.size(g)},
        {"bytes_out", plan.groups[g].out},
        {"bytes_in", plan.groups[g].in}});
  for (int rank = 0; rank < plan.asked.ranks; ++rank) {
    const auto like = rank % plan.memory.size();
    ranks.push_back(by_kind<schedule::Memory>(plan.memory[like], {{"rank", rank}}));
    busy.push_back(plan.ticks.busy[like]);
    shares.push_back(plan.idle.share(like));
    const Need& need = plan.host[like];
    host.push_back(
        {{"step", need.step}, {"process_estimate", need.beside}, {"total", need.total()}});
  }
  const auto busiest = [&](std::uint64_t GroupTraffic::* bytes) -> Json {
    const auto most = std::ranges::max_element(plan.groups, {}, bytes);
    return {{"group", most - plan.groups.begin()}, {"bytes", (*most).*bytes}};
  };
  Json slots = {{"rank", plan.worst}};
  for (const int c : indices(plan.slots))
    slots[std::string(1, letter_of(static_cast<schedule::SlotClass>(c)))] = plan.slots[c];
  Json json = {{"settings", settings_json(plan.asked)},
      {"shards", plan.shards},
      {"bytes_per_step",
          {{"inside", by_kind<schedule::Traffic>(plan.inside)},
              {"between", by_kind<schedule::Traffic>(plan.between)}}},
      {"busiest_out", busiest(&GroupTraffic::out)},
      {"busiest_in", busiest(&GroupTraffic::in)},
      {"groups", groups},
      {"ticks", {{"total", plan.ticks.total}, {"computing_per_rank", busy}}},
      {"idle",
          {{"share", plan.idle.share()},
              {"step_s", plan.idle.seconds},
              {"share_per_rank", shares}}},
      {"slots", slots},
      {"memory_bytes", {{"worst", ranks[plan.worst]}, {"ranks", ranks}}},
      {"host_bytes", host}};
  if (const auto& fit = plan.device)
    json["device"] = {{"available_bytes", fit->available},
        {"arena_bytes", fit->worst.step},
        {"libraries_estimate_bytes", fit->worst.beside},
        {"fits", fit->fits()},
        {"largest_seq", fit->largest_seq}};
  return json;
}

std::string table_text(const Costs& plans, bool narrow) {
  using P = CaseCost;
  CostColumns columns = {{.title = "case", .value = &P::number},
      {.title = "schedule", .value = [](const P& p) { return p.asked.schedule; }, .width = -1},
      {.title = "ranks", .value = [](const P& p) { return p.asked.ranks; }, .wide = true},
      {.title = "groups",
          .value = [](const P& p) { return groups_text(p.asked.groups); },
          .width = -1,
          .wide = true}};
  for (const std::string& name : varying_settings(list_of(plans, &P::asked)))
    if (name != "schedule" && name != "ranks" && name != "groups")
      columns.push_back(setting_column<P>(name));
  append_bytes(columns,
      plans,
      "/rank",
      true,
      {{"inside", [](const P& p) { return 1.0 * total(p.inside) / p.asked.ranks; }},
          {"between", [](const P& p) { return 1.0 * total(p.between) / p.asked.ranks; }}});
  append_bytes(columns,
      plans,
      "",
      false,
      {{"NIC-out",
           [](const P& p) { return std::ranges::max(p.groups, {}, &GroupTraffic::out).out; }},
          {"NIC-in",
              [](const P& p) { return std::ranges::max(p.groups, {}, &GroupTraffic::in).in; }}});
  std::vector<std::pair<std::string, BytesOf>> memory;
  for (const auto& [kind, name] : schedule::table_of<schedule::Memory>)
    memory.emplace_back(name, [at = index_of(kind)](const P& p) { return p.memory[p.worst][at]; });
  memory.emplace_back("memory", [](const P& p) { return total(p.memory[p.worst]); });
  append_bytes(columns, plans, "", true, memory);
  columns.back().wide = false;
  columns.push_back({.title = "ticks", .value = [](const P& p) { return p.ticks.total; }});
  columns.push_back({.title = "idle",
      .units = "%",
      .value = [](const P& p) { return std::max(0.0, p.idle.share()); },
      .format = as_percent});
  return TextTable<P>(columns, plans, narrow).text(plans);
}

std::string text_of(const CaseCost& plan) {
  const Case& c = plan.asked;
  const double tokens = tokens_of_step(c);
  return fmt::format("case {}: {}, {} in groups {}{}{}, L = {}, H = {}, S = {}, B = {}, M = {}\n"
                     "  model            {} parameters in {}, {}\n"
                     "  step             {:.6g} tokens, {:.4g} TFLOP\n",
             plan.number,
             c.schedule,
             counted(c.ranks, "rank"),
             groups_text(c.groups),
             c.replicas > 1 ? fmt::format(", {} replicas", c.replicas) : "",
             c.shape.shares_sequences() ? fmt::format(", context {}", c.shape.context.count) : "",
             c.shape.layers,
             c.shape.hidden,
             c.shape.seq,
             c.shape.micro_batch,
             c.micro_batches,
             model::parameters(c.shape),
             counted(plan.shards, "shard"),
             name_of(c.shape.dtype),
             tokens,
             tokens * model::flops_per_token(c.shape) * 1e-12) +
         title_line<schedule::Traffic>("bytes per step") + line("inside groups", plan.inside) +
         line("between groups", plan.between) + memory_text(plan) +
         (plan.device ? fit_text(*plan.device) : "");
}

struct PlanOptions {
  DeckOptions deck;
  bool json = false, program = false;
  AssumedMachine machine;  ///< without `device_memory`: the device of this machine, if any
};

constexpr int few = 4;  ///< cases, all told in detail on a terminal

/// Bytes of a device of this machine; nothing if there is none.
std::optional<std::uint64_t> memory_of_device() {
  try {
    const auto devices = topology::visible_devices();
    const bool is_known = !devices.empty() && devices.front().bytes > 0;
    return is_known ? std::optional(devices.front().bytes) : std::nullopt;
  } catch (const InputError&) {
    return std::nullopt;  // planning needs no device
  }
}

/// In the order of the deck.
Costs costs_of(const deck::Deck& deck, AssumedMachine machine) {
  if (!machine.device_memory)
    machine.device_memory = memory_of_device();
  Costs plans;
  Planner planner;
  for (const Case& c : deck.cases)
    plans.push_back(cost_of(*planner.plan(c), std::ssize(plans), machine));
  return plans;
}

/// The program of the only case.
std::string program_text(const deck::Deck& deck) {
  const std::size_t cases = deck.cases.size() + deck.left_out.size();
  if (cases != 1)
    throw InputError("--program: the deck has {} cases, the program of one can be printed; choose "
                     "it with --set",
        cases);
  return schedule::to_text(*plan_of(deck.cases.front())->program);
}

/// The table, and each case in detail; not on a terminal, where there are more than a few.
void print(const deck::Deck& deck, const Costs& plans) {
  const bool narrow = isatty(STDOUT_FILENO) != 0;
  std::string text;
  for (const std::string& note : deck.notes)
    text += fmt::format("# {}\n", note);
  text += table_text(plans, narrow);
  if (narrow && std::ssize(plans) > few)
    text += fmt::format("# choose up to {} cases with --set for details\n", few);
  else
    for (const CaseCost& plan : plans)
      text += "\n" + text_of(plan);
  write_stdout(text);
}

int plan(const Invocation& invocation, const PlanOptions& options) {
  const deck::Deck deck = deck::read_deck(options.deck.path,
      options.deck.overrides,
      {.ranks = 0, .node_sizes = {}, .planning = true, .adapters = options.machine.adapters});
  if (options.program) {
    write_stdout(program_text(deck));
    return 0;
  }
  const Costs plans = costs_of(deck, options.machine);
  const schedule::Device& assumed = options.machine.device;
  if (options.json)
    write_json(invocation,
        {{"notes", deck.notes},
            {"assumed_per_rank",
                {{"flops", assumed.flops}, {"memory_bytes_per_s", assumed.memory}}},
            {"cases", list_of(plans, [](const CaseCost& plan) { return json_of(plan); })}});
  else
    print(deck, plans);
  return 0;
}

class PlanVerb final : public Verb {
public:
  explicit PlanVerb(CLI::App& app)
      : Verb(app,
            "plan",
            "bytes, memory and idle time of every case, without running it; needs no MPI job") {
    add_deck(command_, options_.deck);
    CLI::Option* json = add_json(command_, options_.json);
    command_
        .add_flag(
            "--program", options_.program, "the actions of every rank of the one case that is left")
        ->excludes(json);
    add_memory(command_,
        "--device-memory",
        options_.machine.device_memory,
        "memory of one device, for example 80G: says whether each case fits and the largest S that "
        "does (default: the device of this machine, if there is one)");
    add_flops(command_,
        "--flops",
        options_.machine.device.flops,
        fmt::format("assumed rate of a rank ({:.0f}e12: 40% of an H100 SXM in dense bf16)",
            options_.machine.device.flops * 1e-12));
    command_
        .add_option("--adapters",
            options_.machine.adapters,
            "network adapters of each node: what rails=auto becomes")
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
  }

  int execute(const Invocation& invocation) override { return plan(invocation, options_); }

private:
  PlanOptions options_;
};
}  // namespace

std::unique_ptr<Verb> make_plan(CLI::App& app) {
  return std::make_unique<PlanVerb>(app);
}
}  // namespace minitaw::app
