#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "deck/deck.hpp"
#include "plan_case.hpp"

namespace minitaw::app {

using nlohmann::ordered_json;
using schedule::ByteMatrix;
using schedule::Footprint;
using schedule::Memory;
using schedule::SlotClass;
using schedule::Traffic;

namespace {

constexpr const char* byte_units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};

/// The power of 1024 that leaves a number below `most`.
int power_of(double bytes, double most) {
  int power = 0;
  for (; bytes >= most && power < 5; ++power) bytes /= 1024;
  return power;
}

/// Four digits.
std::string digits(double value) {
  if (value == 0) return "0";
  const int before = value < 1 ? 1 : static_cast<int>(std::log10(value)) + 1;
  return fmt::format("{:.{}f}", value, std::clamp(4 - before, 0, 3));
}

/// "2+1+3", and "16x8" for many equal ones.
std::string groups_text(const topology::Groups& groups) {
  const auto [least, most] = std::ranges::minmax(groups.sizes());
  return groups.count() > 4 && least == most ? fmt::format("{}x{}", groups.count(), least) : groups.text();
}

using Reach = std::uint64_t (ByteMatrix::*)(const topology::Groups&, Traffic) const;

/// Bytes of a step by kind, and in total.
std::vector<std::pair<std::string, std::uint64_t>> by_kind(const CasePlan& plan, Reach reach) {
  std::vector<std::pair<std::string, std::uint64_t>> kinds;
  std::uint64_t total = 0;
  for (int k = 0; k < schedule::traffic_kinds; ++k) {
    const auto kind = static_cast<Traffic>(k);
    kinds.emplace_back(schedule::name_of(kind), (plan.bytes.*reach)(plan.settings.groups, kind));
    total += kinds.back().second;
  }
  kinds.emplace_back("total", total);
  return kinds;
}

std::vector<std::pair<std::string, std::uint64_t>> by_kind(const Footprint& footprint) {
  std::vector<std::pair<std::string, std::uint64_t>> kinds;
  for (int k = 0; k < schedule::memory_kinds; ++k)
    kinds.emplace_back(schedule::name_of(static_cast<Memory>(k)),
                       footprint.by_kind[static_cast<std::size_t>(k)]);
  kinds.emplace_back("total", footprint.total());
  return kinds;
}

}  // namespace

std::string size_text(double bytes) {
  const int power = power_of(bytes, 1024);
  return fmt::format("{:.{}f} {}", bytes / std::pow(1024, power), power == 0 ? 0 : 2, byte_units[power]);
}

std::string ranks_text(const deck::Case& c) {
  return fmt::format("{} ranks in groups {}{}", c.ranks, groups_text(c.groups),
                     c.replicas > 1 ? fmt::format(", {} replicas", c.replicas) : "");
}

std::string slots_text(const schedule::RankProgram& rank) {
  const auto count = [&](SlotClass cls) { return rank.slots[static_cast<std::size_t>(cls)]; };
  return fmt::format("{}/{}/{}/{}/{}", count(SlotClass::weights),
                     count(SlotClass::gradient) + count(SlotClass::contribution), count(SlotClass::saved),
                     count(SlotClass::deferred), count(SlotClass::hidden));
}

// The table over all cases.

namespace {

struct Column {
  std::string name, unit;
  std::vector<std::string> cells;
  bool left = false;  ///< aligned
};

using Rows = std::vector<PlanRow>;
using Bytes = std::function<double(const PlanRow&)>;

Column column(const Rows& rows, const std::string& name,
              const std::function<std::string(const PlanRow&)>& cell, bool left = false,
              const std::string& unit = "") {
  Column made{name, unit, {}, left};
  for (const PlanRow& row : rows) made.cells.push_back(cell(row));
  return made;
}

/// Columns of bytes in the unit that the largest of them asks for.
void append_bytes(std::vector<Column>& table, const Rows& rows, const std::string& per,
                  const std::vector<std::pair<std::string, Bytes>>& columns) {
  double most = 0;
  for (const auto& [name, bytes] : columns)
    for (const PlanRow& row : rows) most = std::max(most, bytes(row));
  const int power = power_of(most, 10000);
  for (const auto& [name, bytes] : columns)
    table.push_back(column(
        rows, name, [&](const PlanRow& r) { return digits(bytes(r) / std::pow(1024, power)); }, false,
        byte_units[power] + per));
}

std::vector<Column> settings_columns(const Rows& rows) {
  std::vector<Column> table = {
      column(rows, "case", [](const PlanRow& r) { return fmt::to_string(r.number); }),
      column(
          rows, "schedule", [](const PlanRow& r) { return r.settings.text("schedule"); }, true),
      column(rows, "ranks", [](const PlanRow& r) { return r.settings.column("ranks").text(); }),
      column(rows, "groups", [](const PlanRow& r) { return r.groups; }, true)};
  std::vector<record::Row> settings;
  for (const PlanRow& row : rows) settings.push_back(row.settings);
  for (const std::string_view name : record::varying_settings(settings)) {
    if (name == "schedule" || name == "ranks" || name == "groups") continue;
    const std::string title = name == "micro_batch" ? "B" : name == "micro_batches" ? "M" : std::string(name);
    table.push_back(column(rows, title, [&](const PlanRow& r) { return r.settings.column(name).text(); }));
  }
  return table;
}

std::string line(const std::vector<Column>& table, const char* start, const auto& cell) {
  std::string text = start;
  for (const Column& column : table) {
    std::size_t width = std::max(column.name.size(), column.unit.size());
    for (const std::string& c : column.cells) width = std::max(width, c.size());
    text += column.left ? fmt::format(" {:<{}}", cell(column), width)
                        : fmt::format(" {:>{}}", cell(column), width);
  }
  text.erase(text.find_last_not_of(' ') + 1);
  return text + "\n";
}

/// "1:05:00", "12 s", "3.4 ms".
std::string duration_text(double seconds) {
  if (seconds < 1) return fmt::format("{:.3g} ms", 1e3 * seconds);
  if (seconds < 120) return fmt::format("{:.3g} s", seconds);
  const auto whole = static_cast<std::int64_t>(seconds);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

/// All timed and warm-up steps of the deck, at the assumed rates.
std::string sweep_text(const Rows& rows) {
  double seconds = 0;
  std::int64_t steps = 0;
  for (const PlanRow& row : rows) {
    const std::int64_t here =
        row.settings.integer("repeats") * (row.settings.integer("steps") + row.settings.integer("warmup"));
    steps += here;
    seconds += static_cast<double>(here) * std::max(row.step_s, row.nic_s.value_or(0));
  }
  return fmt::format(
      "# all {} cases: {} steps, {} at least at {}\n", rows.size(), steps, duration_text(seconds),
      rows.front().nic_s ? "the assumed rates" : "the assumed FLOP/s, if transfers take no time");
}

}  // namespace

PlanRow row_of(const CasePlan& plan, int number) {
  const deck::Case& c = plan.settings;
  const auto worst = static_cast<std::size_t>(plan.worst_rank());
  const auto mean = [&](Reach reach) {
    return static_cast<double>(by_kind(plan, reach).back().second) / c.ranks;
  };
  return {.number = number,
          .settings = record::preview({c}).front(),
          .groups = groups_text(c.groups),
          .slots = slots_text(plan.program.ranks[worst]),
          .ticks = plan.ticks.total,
          .inside = mean(&ByteMatrix::inside),
          .between = mean(&ByteMatrix::between),
          .nic_out = plan.busiest(&ByteMatrix::leaving).bytes,
          .nic_in = plan.busiest(&ByteMatrix::entering).bytes,
          .nic_s = plan.nic_seconds(),
          .memory = plan.memory[worst],
          .step_s = plan.idle.seconds,
          .idle = plan.idle.share()};
}

std::string to_text(const std::vector<PlanRow>& rows) {
  if (rows.empty()) return "";
  std::vector<Column> table = settings_columns(rows);
  append_bytes(table, rows, "/rank",
               {{"inside", [](const PlanRow& r) { return r.inside; }},
                {"between", [](const PlanRow& r) { return r.between; }}});
  append_bytes(table, rows, "",
               {{"NIC-out", [](const PlanRow& r) { return static_cast<double>(r.nic_out); }},
                {"NIC-in", [](const PlanRow& r) { return static_cast<double>(r.nic_in); }}});
  if (rows.front().nic_s)
    table.push_back(column(
        rows, "NIC-time", [](const PlanRow& r) { return fmt::format("{:.4g}", *r.nic_s); }, false, "s"));
  std::vector<std::pair<std::string, Bytes>> memory;
  for (std::size_t k = 0; k <= schedule::memory_kinds; ++k)
    memory.emplace_back(k < schedule::memory_kinds ? schedule::name_of(static_cast<Memory>(k)) : "memory",
                        [k](const PlanRow& r) { return static_cast<double>(by_kind(r.memory)[k].second); });
  append_bytes(table, rows, "", memory);
  table.push_back(column(rows, "w/g/a/b/x", [](const PlanRow& r) { return r.slots; }, false, "slots"));
  table.push_back(column(rows, "ticks", [](const PlanRow& r) { return fmt::to_string(r.ticks); }));
  table.push_back(column(
      rows, "idle", [](const PlanRow& r) { return fmt::format("{:.1f}", std::max(0.0, 100 * r.idle)); },
      false, "%"));
  std::string text = line(table, "#", [](const Column& c) { return c.name; }) +
                     line(table, "#", [](const Column& c) { return c.unit; });
  for (std::size_t i = 0; i < rows.size(); ++i)
    text += line(table, " ", [i](const Column& c) { return c.cells[i]; });
  return text + sweep_text(rows);
}

// One case for people.

namespace {

/// A line of a table: name, then right-aligned cells.
std::string line(const std::string& name, const std::vector<std::string>& cells) {
  std::string text = fmt::format("  {:<16}", name);
  for (const std::string& cell : cells) text += fmt::format(" {:>13}", cell);
  return text + "\n";
}

std::string line(const std::string& name, const std::vector<std::pair<std::string, std::uint64_t>>& kinds) {
  std::vector<std::string> cells;
  for (const auto& [kind, bytes] : kinds) cells.push_back(size_text(static_cast<double>(bytes)));
  return line(name, cells);
}

std::string header(const std::string& name, const std::vector<std::pair<std::string, std::uint64_t>>& kinds) {
  std::vector<std::string> cells;
  for (const auto& [kind, bytes] : kinds) cells.push_back(kind);
  return line(name, cells);
}

std::string traffic_text(const CasePlan& plan) {
  const auto inside = by_kind(plan, &ByteMatrix::inside), between = by_kind(plan, &ByteMatrix::between);
  const auto out = plan.busiest(&ByteMatrix::leaving), in = plan.busiest(&ByteMatrix::entering);
  const schedule::MessageCounts& m = plan.messages;
  std::string text =
      header("bytes per step", inside) + line("inside groups", inside) + line("between groups", between);
  if (plan.settings.groups.count() > 1)
    text += fmt::format("  busiest NIC      {} out (group {}), {} in (group {})\n",
                        size_text(static_cast<double>(out.bytes)), out.group,
                        size_text(static_cast<double>(in.bytes)), in.group);
  if (const auto seconds = plan.nic_seconds())
    text += fmt::format("  NIC time         {:.4g} s at least for a step at {:.4g} MB/s each direction\n",
                        *seconds, plan.machine.nic * 1e-6);
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
  const int ranks = static_cast<int>(plan.memory.size()), worst = plan.worst_rank();
  const auto of = [&](int rank) -> const Footprint& { return plan.memory[static_cast<std::size_t>(rank)]; };
  std::string text =
      fmt::format("  slots            {} for weights / gradients / kept by F / left by B / hidden "
                  "states on rank {}\n",
                  slots_text(plan.program.ranks[static_cast<std::size_t>(worst)]), worst) +
      header("memory per rank", by_kind(of(worst))) +
      line(fmt::format("worst: rank {}", worst), by_kind(of(worst)));
  for (int first = 0, last = 0; first < ranks; first = ++last) {
    while (last + 1 < ranks && of(last + 1).by_kind == of(first).by_kind) ++last;
    text += line(first == last ? fmt::format("rank {}", first) : fmt::format("ranks {} to {}", first, last),
                 by_kind(of(first)));
  }
  return text;
}

std::string model_text(const CasePlan& plan) {
  const deck::Case& c = plan.settings;
  const model::Flops flops = model::flops_per_token(c.shape);
  const double tokens = deck::tokens_of_step(c);
  return fmt::format(
      "  model            {:.4g} parameters in {} shards, {}\n"
      "  step             {:.6g} tokens, {:.4g} TFLOP with causal attention ({:.4g} with full attention)\n",
      static_cast<double>(model::parameters(c.shape)), plan.program.shards, name_of(c.shape.dtype), tokens,
      tokens * (flops.matmul + flops.attention_causal) * 1e-12,
      tokens * (flops.matmul + flops.attention_full) * 1e-12);
}

}  // namespace

std::string to_text(const CasePlan& plan, int number) {
  const deck::Case& c = plan.settings;
  return fmt::format("case {}: {}, {}, L = {}, H = {}, S = {}, B = {}, M = {}\n", number, c.schedule,
                     ranks_text(c), c.shape.layers, c.shape.hidden, c.shape.seq, deck::micro_batch_text(c),
                     c.micro_batches) +
         model_text(plan) + traffic_text(plan) + time_text(plan) + memory_text(plan);
}

// One case for programs.

namespace {

ordered_json settings_json(const CasePlan& plan) {
  ordered_json json;
  const record::Row row = record::preview({plan.settings}).front();
  for (const record::Column& column : row.columns())
    if (column.place == record::Place::settings)
      std::visit([&](const auto& cell) { json[column.name] = cell; }, column.value);
  json["ffn_per_layer"] = plan.settings.shape.ffn;
  ordered_json& sizes = json["micro_batch_per_rank"] = ordered_json::array();
  for (int r = 0; r < plan.settings.ranks; ++r) sizes.push_back(deck::micro_batch_of(plan.settings, r));
  return json;
}

ordered_json object(const std::vector<std::pair<std::string, std::uint64_t>>& kinds) {
  ordered_json json;
  for (const auto& [kind, bytes] : kinds) json[kind] = bytes;
  return json;
}

/// Bytes of all groups, and the busiest of them either way.
void append_groups(ordered_json& json, const CasePlan& plan) {
  const auto busiest = [&](auto direction) -> ordered_json {
    const auto found = plan.busiest(direction);
    return {{"group", found.group}, {"bytes", found.bytes}};
  };
  json["busiest_out"] = busiest(&ByteMatrix::leaving);
  json["busiest_in"] = busiest(&ByteMatrix::entering);
  const topology::Groups& groups = plan.settings.groups;
  for (int g = 0; g < groups.count(); ++g)
    json["groups"].push_back({{"group", g},
                              {"ranks", groups.size(g)},
                              {"bytes_out", plan.bytes.leaving(groups, g)},
                              {"bytes_in", plan.bytes.entering(groups, g)}});
}

ordered_json footprint_json(const CasePlan& plan, int rank) {
  ordered_json json = {{"rank", rank}};
  json.update(object(by_kind(plan.memory[static_cast<std::size_t>(rank)])));
  return json;
}

}  // namespace

ordered_json to_json(const CasePlan& plan) {
  const schedule::MessageCounts& m = plan.messages;
  const int ranks = plan.settings.ranks, worst = plan.worst_rank();
  ordered_json json = {{"settings", settings_json(plan)},
                       {"shards", plan.program.shards},
                       {"bytes_per_step",
                        {{"inside", object(by_kind(plan, &ByteMatrix::inside))},
                         {"between", object(by_kind(plan, &ByteMatrix::between))}}}};
  append_groups(json, plan);
  json["messages"] = {{"weights_between", m.weights_between},
                      {"weights_inside", m.weights_inside},
                      {"gradients_between", m.gradients_between},
                      {"gradients_inside", m.gradients_inside},
                      {"broadcasts", m.broadcasts},
                      {"reduces", m.reduces}};
  json["ticks"] = {{"total", plan.ticks.total}, {"computing_per_rank", plan.ticks.busy}};
  json["idle"] = {{"share", plan.idle.share()}, {"step_s", plan.idle.seconds}};
  for (int r = 0; r < ranks; ++r) json["idle"]["share_per_rank"].push_back(plan.idle.share(r));
  json["slots"]["rank"] = worst;
  for (int c = 0; c < schedule::slot_classes; ++c)
    json["slots"][std::string(1, letter_of(static_cast<SlotClass>(c)))] =
        plan.program.ranks[static_cast<std::size_t>(worst)].slots[static_cast<std::size_t>(c)];
  json["memory_bytes"]["worst"] = footprint_json(plan, worst);
  for (int r = 0; r < ranks; ++r) json["memory_bytes"]["ranks"].push_back(footprint_json(plan, r));
  if (const auto seconds = plan.nic_seconds()) json["nic_s"] = *seconds;
  return json;
}

ordered_json to_json(const schedule::Machine& machine) {
  ordered_json json = {{"flops", machine.flops},
                       {"inside_bytes_per_s", machine.inside},
                       {"between_bytes_per_s", machine.between},
                       {"memory_bytes_per_s", machine.memory}};
  if (machine.nic > 0) json["nic_bytes_per_s"] = machine.nic;
  return json;
}

}  // namespace minitaw::app
