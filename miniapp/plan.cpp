#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
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

using nlohmann::ordered_json;
using schedule::ByteMatrix;
using schedule::Machine;
using schedule::SlotClass;

// What a case will cost, from its program alone.

/// Bytes by kind; "total" comes last.
using Kinds = std::vector<std::pair<std::string, std::uint64_t>>;

template <class Kind>
Kinds by_kind(int count, const std::function<std::uint64_t(Kind)>& bytes) {
  Kinds kinds;
  std::uint64_t total = 0;
  for (int k = 0; k < count; ++k) {
    const auto kind = static_cast<Kind>(k);
    kinds.emplace_back(schedule::name_of(kind), bytes(kind));
    total += kinds.back().second;
  }
  kinds.emplace_back("total", total);
  return kinds;
}

struct CasePlan {
  deck::Case settings;
  int number = 0;   ///< from 0
  record::Row row;  ///< the settings
  std::shared_ptr<const schedule::Program> program{};
  Kinds inside{}, between{};               ///< bytes of one step
  std::vector<std::uint64_t> out{}, in{};  ///< bytes of one step by group, through its NIC
  schedule::MessageCounts messages{};
  schedule::Ticks ticks{};
  std::vector<Kinds> memory{};  ///< per rank
  int worst = 0;                ///< the rank that needs most
  std::string slots{};          ///< of that rank
  schedule::Idle idle{};        ///< with compute as on the assumed machine and transfers that are free
  std::optional<double>
      nic_s{};  ///< that the busiest NIC needs at least for one step; nothing if its rate is not known
};

std::uint64_t total(const Kinds& kinds) { return kinds.back().second; }

int busiest(const std::vector<std::uint64_t>& groups) {
  return static_cast<int>(std::ranges::max_element(groups) - groups.begin());
}

/// Of each rank, of a layout that may have another S than the case.
std::vector<Kinds> memory_of(const CasePlan& plan, const model::Layout& layout) {
  std::vector<Kinds> ranks;
  for (const schedule::Footprint& rank :
       schedule::memory(*plan.program, layout, plan.settings.micro_batch_per_rank))
    ranks.push_back(by_kind<schedule::Memory>(schedule::memory_kinds, [&](schedule::Memory kind) {
      return rank.by_kind[static_cast<std::size_t>(kind)];
    }));
  return ranks;
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

/// "3/2/8/0/1": slots for weights, gradients, what F keeps, what B leaves for W and hidden states.
std::string slots_text(const schedule::RankProgram& rank) {
  const auto count = [&](SlotClass cls) { return rank.slots[static_cast<std::size_t>(cls)]; };
  return fmt::format("{}/{}/{}/{}/{}", count(SlotClass::weights),
                     count(SlotClass::gradient) + count(SlotClass::contribution), count(SlotClass::saved),
                     count(SlotClass::deferred), count(SlotClass::hidden));
}

void count_bytes(CasePlan& plan) {
  using schedule::Traffic;
  const topology::Groups& groups = plan.settings.groups;
  const ByteMatrix bytes = schedule::bytes(*plan.program, layout_of(plan, plan.settings.shape.seq));
  plan.inside = by_kind<Traffic>(schedule::traffic_kinds, [&](Traffic k) { return bytes.inside(groups, k); });
  plan.between =
      by_kind<Traffic>(schedule::traffic_kinds, [&](Traffic k) { return bytes.between(groups, k); });
  for (int g = 0; g < groups.count(); ++g) {
    plan.out.push_back(bytes.leaving(groups, g));
    plan.in.push_back(bytes.entering(groups, g));
  }
}

/// What the program of a case depends on.
std::string request_text(const deck::Case& c) {
  return fmt::format("{} {} {} {} {}", c.schedule, c.groups.text(), c.micro_batches, c.shape.layers,
                     c.replicas);
}

/// Builds and validates the program of a case and counts what it asks for. Says on standard error what it
/// does for a program of many ranks, which takes a while.
/// `program`: that of the same request, if there is one already.
CasePlan plan_case(const deck::Deck& deck, std::size_t number, const Machine& machine,
                   std::shared_ptr<const schedule::Program> program = nullptr) {
  const deck::Case& c = deck.cases[number];
  const auto say = [&](const std::string& text) {
    if (c.ranks >= 512) fmt::print(stderr, "{}", text);
  };
  say(fmt::format("planning case {} of {}: {} on {} ranks, {} micro-batches:", number + 1, deck.cases.size(),
                  c.schedule, c.ranks, c.micro_batches));
  if (program == nullptr) {
    say(" building,");
    program = std::make_shared<const schedule::Program>(schedule::build(deck::request_of(c)));
    say(" checking,");
    schedule::require_valid(*program);
  }
  CasePlan plan{c, static_cast<int>(number), record::preview({c}).front()};
  plan.program = std::move(program);
  say(" counting,");
  count_bytes(plan);
  plan.messages = schedule::messages(*plan.program);
  plan.ticks = schedule::ticks(*plan.program);
  plan.memory = memory_of(plan, layout_of(plan, c.shape.seq));
  plan.worst = static_cast<int>(std::ranges::max_element(plan.memory, {}, total) - plan.memory.begin());
  plan.slots = slots_text(plan.program->ranks[static_cast<std::size_t>(plan.worst)]);
  say(" timing\n");
  plan.idle = schedule::idle(
      *plan.program, schedule::simulate(*plan.program, schedule::free_transfers(costs_of(plan, machine))));
  if (machine.nic > 0)
    plan.nic_s =
        static_cast<double>(std::max(std::ranges::max(plan.out), std::ranges::max(plan.in))) / machine.nic;
  return plan;
}

/// Whether a case fits the memory of a device.
struct Fit {
  std::uint64_t available = 0;   ///< bytes of one device
  std::uint64_t arena = 0;       ///< of the worst rank, exact
  std::uint64_t libraries = 0;   ///< estimate of what driver, matrix products and attention take beside it
  std::int64_t largest_seq = 0;  ///< largest multiple of 128 tokens that would fit; 0: none

  [[nodiscard]] bool fits() const { return arena + libraries <= available; }
};

Fit fit(const CasePlan& plan, std::uint64_t available) {
  constexpr std::uint64_t context_bytes = std::uint64_t{1} << 30;  // of the driver, kernels, NCCL
  constexpr std::int64_t seq_step = 128, longest_seq = std::int64_t{1} << 26;
  const auto at = [&](std::int64_t seq) -> Fit {
    const model::Layout layout = layout_of(plan, seq);
    return {available, total(std::ranges::max(memory_of(plan, layout), {}, total)),
            context_bytes + model::library_estimate(layout.shape)};
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
  Fit found = at(plan.settings.shape.seq);
  found.largest_seq = fitting * seq_step;
  return found;
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

/// Four digits.
std::string digits(double value) {
  if (value == 0) return "0";
  const int before = value < 1 ? 1 : static_cast<int>(std::log10(value)) + 1;
  return fmt::format("{:.{}f}", value, std::clamp(4 - before, 0, 3));
}

using Plans = std::vector<CasePlan>;
using Column = record::TextColumn<CasePlan>;
using Bytes = std::function<double(const CasePlan&)>;

/// Columns of bytes in the unit that the largest of them asks for.
void append_bytes(std::vector<Column>& columns, const Plans& plans, const std::string& per,
                  const std::vector<std::pair<std::string, Bytes>>& added) {
  double most = 0;
  for (const auto& [name, bytes] : added)
    for (const CasePlan& plan : plans) most = std::max(most, bytes(plan));
  const ByteUnit unit = byte_unit(most, 10000);
  for (const auto& [name, bytes] : added)
    columns.push_back(
        {name, unit.name + per, 0, [=](const CasePlan& p) { return digits(bytes(p) / unit.bytes); }});
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
    seconds += static_cast<double>(here) * std::max(plan.idle.seconds, plan.nic_s.value_or(0));
  }
  return fmt::format(
      "# all {} cases: {} steps, {} at least at {}\n", plans.size(), steps, duration_text(seconds),
      plans.front().nic_s ? "the assumed rates" : "the assumed FLOP/s, if transfers take no time");
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
  append_bytes(
      columns, plans, "/rank",
      {{"inside", [](const CasePlan& p) { return static_cast<double>(total(p.inside)) / p.settings.ranks; }},
       {"between",
        [](const CasePlan& p) { return static_cast<double>(total(p.between)) / p.settings.ranks; }}});
  append_bytes(columns, plans, "",
               {{"NIC-out", [](const CasePlan& p) { return std::ranges::max(p.out); }},
                {"NIC-in", [](const CasePlan& p) { return std::ranges::max(p.in); }}});
  if (plans.front().nic_s)
    columns.push_back(
        {"NIC-time", "s", 0, [](const CasePlan& p) { return fmt::format("{:.4g}", *p.nic_s); }});
  std::vector<std::pair<std::string, Bytes>> memory;
  for (std::size_t k = 0; k <= schedule::memory_kinds; ++k)
    memory.emplace_back(k < schedule::memory_kinds ? plans.front().memory[0][k].first : "memory",
                        [k](const CasePlan& p) {
                          return static_cast<double>(p.memory[static_cast<std::size_t>(p.worst)][k].second);
                        });
  append_bytes(columns, plans, "", memory);
  columns.push_back({"w/g/a/b/x", "slots", 0, [](const CasePlan& p) { return p.slots; }});
  columns.push_back({"ticks", "", 0, [](const CasePlan& p) { return fmt::to_string(p.ticks.total); }});
  columns.push_back({"idle", "%", 0, [](const CasePlan& p) {
                       return fmt::format("{:.1f}", std::max(0.0, 100 * p.idle.share()));
                     }});
  const record::TextTable<CasePlan> table(columns, plans);
  std::string text = table.header();
  for (const CasePlan& plan : plans) text += table.row(plan);
  return text + sweep_text(plans);
}

// One case for people.

/// A line: name, then what is said of each kind, right-aligned.
std::string line(const std::string& name, const Kinds& kinds, bool titles = false) {
  std::string text = fmt::format("  {:<16}", name);
  for (const auto& [kind, bytes] : kinds) text += fmt::format(" {:>13}", titles ? kind : size_text(bytes));
  return text + "\n";
}

std::string traffic_text(const CasePlan& plan, const Machine& machine) {
  const schedule::MessageCounts& m = plan.messages;
  std::string text = line("bytes per step", plan.inside, true) + line("inside groups", plan.inside) +
                     line("between groups", plan.between);
  if (plan.out.size() > 1)
    text += fmt::format("  busiest NIC      {} out (group {}), {} in (group {})\n",
                        size_text(std::ranges::max(plan.out)), busiest(plan.out),
                        size_text(std::ranges::max(plan.in)), busiest(plan.in));
  if (plan.nic_s)
    text += fmt::format("  NIC time         {:.4g} s at least for a step at {:.4g} MB/s each direction\n",
                        *plan.nic_s, machine.nic * 1e-6);
  return text +
         fmt::format("  messages         weights {} between, {} inside; gradients {} between, {} inside; "
                     "{} broadcasts, {} reduces\n",
                     m.weights_between, m.weights_inside, m.gradients_between, m.gradients_inside,
                     m.broadcasts, m.reduces);
}

std::string time_text(const CasePlan& plan) {
  const auto [fewest, most] = std::ranges::minmax(plan.ticks.busy);
  const auto [least, longest] = std::ranges::minmax_element(plan.idle.busy);
  const auto percent = [&](auto rank) {
    return 100 * plan.idle.share(static_cast<int>(rank - plan.idle.busy.begin()));
  };
  return fmt::format(
      "  ticks            {} per step, of which a rank computes in {} to {}\n"
      "  idle             {:.2f}% of the time if transfers take none ({:.2f} to {:.2f}% per rank)\n",
      plan.ticks.total, fewest, most, 100 * plan.idle.share(), percent(longest), percent(least));
}

/// The rank that needs most, then one line for each run of ranks that need the same.
std::string memory_text(const CasePlan& plan) {
  const std::size_t ranks = plan.memory.size();
  const Kinds& worst = plan.memory[static_cast<std::size_t>(plan.worst)];
  std::string text =
      fmt::format("  slots            {} for weights / gradients / kept by F / left by B / hidden "
                  "states on rank {}\n",
                  plan.slots, plan.worst) +
      line("memory per rank", worst, true) + line(fmt::format("worst: rank {}", plan.worst), worst);
  for (std::size_t first = 0, last = 0; first < ranks; first = ++last) {
    while (last + 1 < ranks && plan.memory[last + 1] == plan.memory[first]) ++last;
    text += line(first == last ? fmt::format("rank {}", first) : fmt::format("ranks {} to {}", first, last),
                 plan.memory[first]);
  }
  return text;
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
                     static_cast<double>(model::parameters(c.shape)), plan.program->shards,
                     name_of(c.shape.dtype), tokens, tokens * (flops.matmul + flops.attention_causal) * 1e-12,
                     tokens * (flops.matmul + flops.attention_full) * 1e-12) +
         traffic_text(plan, machine) + time_text(plan) + memory_text(plan);
}

std::string to_text(const Fit& fit) {
  return fmt::format("  device           {}: worst rank needs {} and about {} for libraries, of {}; {}\n",
                     fit.fits() ? "fits" : "DOES NOT FIT", size_text(fit.arena), size_text(fit.libraries),
                     size_text(fit.available),
                     fit.largest_seq > 0 ? fmt::format("the largest S that fits is {}", fit.largest_seq)
                                         : "no S fits");
}

// One case for programs.

ordered_json to_json(const Kinds& kinds) {
  ordered_json json;
  for (const auto& [kind, bytes] : kinds) json[kind] = bytes;
  return json;
}

ordered_json settings_json(const CasePlan& plan) {
  ordered_json json;
  for (const record::Column& column : plan.row.columns())
    if (column.place == record::Place::settings)
      std::visit([&](const auto& cell) { json[column.name] = cell; }, column.value);
  json["ffn_per_layer"] = plan.settings.shape.ffn;
  ordered_json& sizes = json["micro_batch_per_rank"] = ordered_json::array();
  for (int r = 0; r < plan.settings.ranks; ++r) sizes.push_back(deck::micro_batch_of(plan.settings, r));
  return json;
}

ordered_json to_json(const CasePlan& plan) {
  const schedule::MessageCounts& m = plan.messages;
  const topology::Groups& groups = plan.settings.groups;
  ordered_json json = {
      {"settings", settings_json(plan)},
      {"shards", plan.program->shards},
      {"bytes_per_step", {{"inside", to_json(plan.inside)}, {"between", to_json(plan.between)}}},
      {"busiest_out", {{"group", busiest(plan.out)}, {"bytes", std::ranges::max(plan.out)}}},
      {"busiest_in", {{"group", busiest(plan.in)}, {"bytes", std::ranges::max(plan.in)}}}};
  for (int g = 0; g < groups.count(); ++g)
    json["groups"].push_back({{"group", g},
                              {"ranks", groups.size(g)},
                              {"bytes_out", plan.out[static_cast<std::size_t>(g)]},
                              {"bytes_in", plan.in[static_cast<std::size_t>(g)]}});
  json["messages"] = {{"weights_between", m.weights_between},
                      {"weights_inside", m.weights_inside},
                      {"gradients_between", m.gradients_between},
                      {"gradients_inside", m.gradients_inside},
                      {"broadcasts", m.broadcasts},
                      {"reduces", m.reduces}};
  json["ticks"] = {{"total", plan.ticks.total}, {"computing_per_rank", plan.ticks.busy}};
  json["idle"] = {{"share", plan.idle.share()}, {"step_s", plan.idle.seconds}};
  for (int r = 0; r < groups.ranks(); ++r) json["idle"]["share_per_rank"].push_back(plan.idle.share(r));
  json["slots"]["rank"] = plan.worst;
  for (int c = 0; c < schedule::slot_classes; ++c)
    json["slots"][std::string(1, letter_of(static_cast<SlotClass>(c)))] =
        plan.program->ranks[static_cast<std::size_t>(plan.worst)].slots[static_cast<std::size_t>(c)];
  const auto memory_json = [&](int rank) {
    ordered_json memory = {{"rank", rank}};
    memory.update(to_json(plan.memory[static_cast<std::size_t>(rank)]));
    return memory;
  };
  json["memory_bytes"]["worst"] = memory_json(plan.worst);
  for (int r = 0; r < groups.ranks(); ++r) json["memory_bytes"]["ranks"].push_back(memory_json(r));
  if (plan.nic_s) json["nic_s"] = *plan.nic_s;
  return json;
}

ordered_json to_json(const Fit& fit) {
  return {{"available_bytes", fit.available},
          {"arena_bytes", fit.arena},
          {"libraries_estimate_bytes", fit.libraries},
          {"fits", fit.fits()},
          {"largest_seq", fit.largest_seq}};
}

ordered_json to_json(const Machine& machine) {
  ordered_json json = {{"flops", machine.flops},
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
  std::string device_memory;  ///< as given; empty: that of the device of this machine, if any
  int adapters = 1;
  std::string timeline, timeline_cases, costs;  ///< empty: none; the first; those of the machine
  std::string flops, inside, between, nic;      ///< as given; empty: the default
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
  std::vector<std::size_t> chosen;
  const std::string& list = options.timeline_cases;
  if (list.empty()) return {0};
  for (std::size_t i = 0; list == "all" && i < cases; ++i) chosen.push_back(i);
  for (std::size_t begin = 0; list != "all" && begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    std::size_t number = 0;
    const auto [rest, code] = std::from_chars(list.data() + begin, list.data() + end, number);
    if (code != std::errc() || rest != list.data() + end || number >= cases)
      throw InputError(fmt::format("--case: \"{}\" is none of the deck's cases; they are numbered 0 to {}",
                                   list.substr(begin, end - begin), cases - 1));
    chosen.push_back(number);
    begin = end + 1;
  }
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
                        name_of(c.shape.dtype), step, plan.idle.seconds * 1e3, 100 * plan.idle.share(),
                        machine.flops * 1e-12, machine.inside * 1e-9, machine.between * 1e-9)
          : fmt::format("{}: {}, {}\n{}; every action takes its measured mean; transfers do not slow each "
                        "other down",
                        c.schedule, ranks_text(c), sizes, step);
  return trace::make_timeline(*plan.program, spans, title, false);
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

Machine machine_of(const Options& options) {
  Machine machine;
  const auto set = [](double& rate, const std::string& option, const std::string& text, bool of_link,
                      const char* unit, const char* meant) {
    if (text.empty()) return;
    rate = parse_rate(option, text, of_link);
    if (rate < 1e3)
      throw InputError(fmt::format("{}: {} {} is less than any machine does; did you mean {}{}?", option,
                                   text, unit, text, meant));
  };
  set(machine.flops, "--flops", options.flops, false, "FLOP/s", "T");
  set(machine.inside, "--inside", options.inside, false, "bytes/s", "G");
  set(machine.between, "--between", options.between, false, "bytes/s", "G");
  set(machine.nic, "--nic", options.nic, true, "bytes/s", "mbit");
  return machine;
}

/// Memory of one device; nothing if there is none and none was named.
std::optional<std::uint64_t> device_memory(const Options& options) {
  if (!options.device_memory.empty()) return parse_memory("--device-memory", options.device_memory);
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
  const Machine machine = machine_of(options);
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
  std::map<std::string, std::size_t> place;
  std::vector<std::vector<std::size_t>> alike;
  for (std::size_t i = 0; i < count; ++i) {
    const auto [at, added] = place.try_emplace(request_text(deck.cases[i]), alike.size());
    if (added) alike.emplace_back();
    alike[at->second].push_back(i);
  }
  std::vector<std::optional<CasePlan>> planned(count);
  std::vector<ordered_json> cases(count);
  std::vector<std::string> details(count);
  for (const std::vector<std::size_t>& of_one : alike)
    for (std::shared_ptr<const schedule::Program> program; const std::size_t i : of_one) {
      CasePlan& plan = planned[i].emplace(plan_case(deck, i, machine, std::move(program)));
      const auto fitted = memory ? std::optional(fit(plan, *memory)) : std::nullopt;
      if (options.json) {
        cases[i] = to_json(plan);
        if (fitted) cases[i]["device"] = to_json(*fitted);
      } else {
        details[i] = "\n" + to_text(plan, machine) + (fitted ? to_text(*fitted) : "");
      }
      program = std::move(plan.program);
    }
  if (options.json) {
    const ordered_json all = {
        {"notes", deck.notes}, {"assumed_per_rank", to_json(machine)}, {"cases", cases}};
    fmt::print("{}\n", all.dump(2, ' ', false, ordered_json::error_handler_t::replace));
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
  const Machine machine;
  CLI::App* verb = app.add_subcommand(
      "plan", "bytes, memory and idle time of every case, without running it; needs no MPI job");
  const auto add = [verb](const char* name, std::string& value, const std::string& text, const char* type) {
    verb->add_option(name, value, text)->type_name(type);
  };
  add_deck(*verb, options->deck);
  CLI::Option* json = verb->add_flag("--json", options->json, "JSON on standard output, nothing else");
  verb->add_flag("--program", options->program, "the actions of every rank of the one case that is left")
      ->excludes(json);
  add("--device-memory", options->device_memory,
      "memory of one device, for example 80G: says whether each case fits and the largest S that does "
      "(default: the device of this machine, if there is one)",
      "SIZE");
  add("--timeline", options->timeline, "write when every action of a planned step runs, for scripts/timeline",
      "FILE.json");
  add("--case", options->timeline_cases,
      "what --timeline holds: a number of the table, or 0,2 or all (default: 0)", "N");
  add("--costs", options->costs,
      "measured durations of the actions of --timeline, as scripts/timeline --planned makes them",
      "FILE.json");
  add("--flops", options->flops,
      fmt::format("assumed FLOP/s of a rank ({:.0f}T: 40% of an H100 SXM in dense bf16)",
                  machine.flops * 1e-12),
      "RATE");
  add("--inside", options->inside,
      fmt::format(
          "assumed bytes/s of a rank inside its group, one direction ({:.0f}G: NVLink of an H100 SXM)",
          machine.inside * 1e-9),
      "RATE");
  add("--between", options->between,
      fmt::format("assumed bytes/s of a rank to other groups, one direction ({:.0f}G: an adapter of 400 "
                  "Gbit/s for each rank, as in a DGX H100)",
                  machine.between * 1e-9),
      "RATE");
  add("--nic", options->nic,
      "rate of the adapter that all ranks of a group share, each direction: 12.5M in bytes/s, or 100mbit; "
      "says how long a step takes at least for what passes the busiest one",
      "RATE");
  verb->add_option("--adapters", options->adapters, "network adapters of each node: what rails=auto becomes")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  verb->callback([&invocation, options] { invocation.action = [options] { return plan(*options); }; });
}

}  // namespace minitaw::app
