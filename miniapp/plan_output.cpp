#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "deck/deck.hpp"
#include "plan_case.hpp"
#include "record/result.hpp"
#include "record/table.hpp"

namespace minitaw::app {

namespace {

using schedule::ByteMatrix;
using schedule::SlotClass;
using schedule::Traffic;

struct Column {
  std::string name, unit;
  std::vector<std::string> cells;
  bool left = false;  ///< aligned
};

double sum(const CasePlan& plan, std::uint64_t (ByteMatrix::*reach)(const topology::Groups&, Traffic) const) {
  double total = 0;
  for (int k = 0; k < schedule::traffic_kinds; ++k)
    total += static_cast<double>((plan.bytes.*reach)(plan.settings.groups, static_cast<Traffic>(k)));
  return total;
}

/// "2+1+3", and "16x8" for many equal ones.
std::string groups_text(const topology::Groups& groups) {
  const auto [least, most] = std::ranges::minmax(groups.sizes());
  return groups.count() > 4 && least == most ? fmt::format("{}x{}", groups.count(), least) : groups.text();
}

/// Four digits.
std::string digits(double value) {
  if (value == 0) return "0";
  const int before = value < 1 ? 1 : static_cast<int>(std::log10(value)) + 1;
  return fmt::format("{:.{}f}", value, std::clamp(4 - before, 0, 3));
}

Column words(const std::string& name, const std::vector<PlanRow>& rows,
             const std::function<std::string(const PlanRow&)>& cell, bool left = false,
             const std::string& unit = "") {
  Column column{name, unit, {}, left};
  for (const PlanRow& row : rows) column.cells.push_back(cell(row));
  return column;
}

using Bytes = std::function<double(const PlanRow&)>;

/// Columns of bytes in the unit that the largest of them asks for.
class ByteColumns {
public:
  explicit ByteColumns(const std::vector<PlanRow>& rows) : rows_(rows) {}

  ByteColumns& add(const std::string& name, const Bytes& bytes) {
    columns_.emplace_back(name, bytes);
    return *this;
  }

  void append_to(std::vector<Column>& table, const std::string& per) const {
    double most = 0;
    for (const auto& [name, bytes] : columns_)
      for (const PlanRow& row : rows_) most = std::max(most, bytes(row));
    constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double unit = 1;
    int power = 0;
    for (; most / unit >= 10000 && power < 5; ++power) unit *= 1024;
    for (const auto& [name, bytes] : columns_)
      table.push_back(words(
          name, rows_, [&](const PlanRow& row) { return digits(bytes(row) / unit); }, false,
          units[power] + per));
  }

private:
  const std::vector<PlanRow>& rows_;
  std::vector<std::pair<std::string, Bytes>> columns_;
};

bool differ(const std::vector<PlanRow>& rows, const auto& value) {
  return std::ranges::any_of(rows, [&](const PlanRow& row) { return row.*value != rows.front().*value; });
}

std::vector<Column> settings_columns(const std::vector<PlanRow>& rows) {
  std::vector<Column> table;
  table.push_back(words("case", rows, [](const PlanRow& r) { return fmt::to_string(r.number); }));
  table.push_back(words("schedule", rows, [](const PlanRow& r) { return r.schedule; }, true));
  table.push_back(words("ranks", rows, [](const PlanRow& r) { return fmt::to_string(r.ranks); }));
  table.push_back(words("groups", rows, [](const PlanRow& r) { return r.groups; }, true));
  if (differ(rows, &PlanRow::replicas))
    table.push_back(words("replicas", rows, [](const PlanRow& r) { return fmt::to_string(r.replicas); }));
  if (differ(rows, &PlanRow::seq))
    table.push_back(words("seq", rows, [](const PlanRow& r) { return fmt::to_string(r.seq); }));
  if (differ(rows, &PlanRow::micro_batch))
    table.push_back(words("B", rows, [](const PlanRow& r) { return r.micro_batch; }));
  if (differ(rows, &PlanRow::micro_batches))
    table.push_back(words("M", rows, [](const PlanRow& r) { return fmt::to_string(r.micro_batches); }));
  return table;
}

void append_bytes(std::vector<Column>& table, const std::vector<PlanRow>& rows) {
  ByteColumns traffic(rows);
  traffic.add("inside", [](const PlanRow& r) { return r.inside; }).add("between", [](const PlanRow& r) {
    return r.between;
  });
  traffic.append_to(table, "/rank");
  ByteColumns nic(rows);
  nic.add("NIC-out", [](const PlanRow& r) { return static_cast<double>(r.nic_out); })
      .add("NIC-in", [](const PlanRow& r) { return static_cast<double>(r.nic_in); });
  nic.append_to(table, "");
  if (rows.front().nic_s)
    table.push_back(words(
        "NIC-time", rows, [](const PlanRow& r) { return fmt::format("{:.4g}", *r.nic_s); }, false, "s"));
  ByteColumns memory(rows);
  for (int k = 0; k < schedule::memory_kinds; ++k)
    memory.add(schedule::name_of(static_cast<schedule::Memory>(k)),
               [k](const PlanRow& r) { return static_cast<double>(r.memory[static_cast<std::size_t>(k)]); });
  memory.add("memory", [](const PlanRow& r) {
    return static_cast<double>(std::accumulate(r.memory.begin(), r.memory.end(), std::size_t{0}));
  });
  memory.append_to(table, "");
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

}  // namespace

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

PlanRow row_of(const CasePlan& plan, int number) {
  const deck::Case& c = plan.settings;
  const auto worst = static_cast<std::size_t>(plan.worst_rank());
  return {.number = number,
          .schedule = c.schedule,
          .groups = groups_text(c.groups),
          .micro_batch = deck::micro_batch_text(c),
          .slots = slots_text(plan.program.ranks[worst]),
          .ranks = c.ranks,
          .replicas = c.replicas,
          .micro_batches = c.micro_batches,
          .ticks = plan.ticks.total,
          .seq = c.shape.seq,
          .inside = sum(plan, &ByteMatrix::inside) / c.ranks,
          .between = sum(plan, &ByteMatrix::between) / c.ranks,
          .nic_out = plan.busiest(&ByteMatrix::leaving).bytes,
          .nic_in = plan.busiest(&ByteMatrix::entering).bytes,
          .nic_s = plan.nic_seconds(),
          .memory = plan.memory[worst].by_kind,
          .idle = plan.idle.share()};
}

std::string to_text(const std::vector<PlanRow>& rows) {
  if (rows.empty()) return "";
  std::vector<Column> table = settings_columns(rows);
  append_bytes(table, rows);
  table.push_back(words("w/g/a/b/x", rows, [](const PlanRow& r) { return r.slots; }, false, "slots"));
  table.push_back(words("ticks", rows, [](const PlanRow& r) { return fmt::to_string(r.ticks); }));
  table.push_back(words(
      "idle", rows, [](const PlanRow& r) { return fmt::format("{:.1f}", std::max(0.0, 100 * r.idle)); },
      false, "%"));
  std::string text = line(table, "#", [](const Column& c) { return c.name; }) +
                     line(table, "#", [](const Column& c) { return c.unit; });
  for (std::size_t i = 0; i < rows.size(); ++i)
    text += line(table, " ", [i](const Column& c) { return c.cells[i]; });
  return text;
}

namespace {

using schedule::ByteMatrix;
using schedule::Footprint;
using schedule::Memory;
using schedule::Traffic;

/// "1.50 GiB", with a unit that leaves a readable number.
std::string size_text(std::uint64_t bytes) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 5) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, unit == 0 ? 0 : 2, units[unit]);
}

/// A line of a table: name, then right-aligned cells.
std::string line(const std::string& name, const std::vector<std::string>& cells) {
  std::string text = fmt::format("  {:<16}", name);
  for (const std::string& cell : cells) text += fmt::format(" {:>13}", cell);
  return text + "\n";
}

std::string reach_line(const std::string& name, const CasePlan& plan,
                       std::uint64_t (ByteMatrix::*reach)(const topology::Groups&, Traffic) const) {
  std::vector<std::string> cells;
  std::uint64_t total = 0;
  for (int k = 0; k < schedule::traffic_kinds; ++k) {
    const std::uint64_t bytes = (plan.bytes.*reach)(plan.settings.groups, static_cast<Traffic>(k));
    cells.push_back(size_text(bytes));
    total += bytes;
  }
  cells.push_back(size_text(total));
  return line(name, cells);
}

std::string traffic_text(const CasePlan& plan) {
  std::vector<std::string> names;
  for (int k = 0; k < schedule::traffic_kinds; ++k)
    names.push_back(schedule::name_of(static_cast<Traffic>(k)));
  names.push_back("all");
  const auto out = plan.busiest(&ByteMatrix::leaving);
  const auto in = plan.busiest(&ByteMatrix::entering);
  std::string text = line("bytes per step", names) + reach_line("inside groups", plan, &ByteMatrix::inside) +
                     reach_line("between groups", plan, &ByteMatrix::between);
  if (plan.settings.groups.count() > 1)
    text += fmt::format("  busiest NIC      {} out (group {}), {} in (group {})\n", size_text(out.bytes),
                        out.group, size_text(in.bytes), in.group);
  if (const auto seconds = plan.nic_seconds())
    text += fmt::format("  NIC time         {:.4g} s at least for a step at {:.4g} MB/s each direction\n",
                        *seconds, plan.machine.nic * 1e-6);
  return text;
}

std::string messages_text(const CasePlan& plan) {
  const schedule::MessageCounts& m = plan.messages;
  return fmt::format("  messages         weights {} between, {} inside; gradients {} between, {} inside; {} "
                     "broadcasts, {} reduces\n",
                     m.weights_between, m.weights_inside, m.gradients_between, m.gradients_inside,
                     m.broadcasts, m.reduces);
}

std::string ticks_text(const CasePlan& plan) {
  const auto [least, most] = std::ranges::minmax(plan.ticks.busy);
  return fmt::format("  ticks            {} per step, idle {} to {} per rank, {:.2f}% of all\n",
                     plan.ticks.total, plan.ticks.total - most, plan.ticks.total - least,
                     100 * plan.idle_ticks_share());
}

std::string idle_text(const CasePlan& plan) {
  const auto [least, most] = std::ranges::minmax_element(plan.idle.busy);
  const auto percent = [&](auto rank) {
    return 100 * plan.idle.share(static_cast<int>(rank - plan.idle.busy.begin()));
  };
  return fmt::format("  idle             {:.2f}% of the compute lanes if transfers take no time ({:.2f} to "
                     "{:.2f}% per rank)\n",
                     100 * plan.idle.share(), percent(most), percent(least));
}

std::string slots_line(const CasePlan& plan) {
  const int worst = plan.worst_rank();
  return fmt::format("  slots            {} for weights / gradients / kept by F / left by B / hidden states "
                     "on rank {}\n",
                     slots_text(plan.program.ranks[static_cast<std::size_t>(worst)]), worst);
}

std::vector<std::string> memory_cells(const Footprint& footprint) {
  std::vector<std::string> cells;
  for (const std::size_t bytes : footprint.by_kind) cells.push_back(size_text(bytes));
  cells.push_back(size_text(footprint.total()));
  return cells;
}

/// One line for each run of ranks that need the same.
std::string memory_text(const CasePlan& plan) {
  std::vector<std::string> names;
  for (int k = 0; k < schedule::memory_kinds; ++k) names.push_back(schedule::name_of(static_cast<Memory>(k)));
  names.push_back("all");
  std::string text = line("memory per rank", names);
  const int ranks = static_cast<int>(plan.memory.size());
  const int worst = plan.worst_rank();
  text +=
      line(fmt::format("worst: rank {}", worst), memory_cells(plan.memory[static_cast<std::size_t>(worst)]));
  for (int first = 0; first < ranks;) {
    const Footprint& here = plan.memory[static_cast<std::size_t>(first)];
    int last = first;
    while (last + 1 < ranks && plan.memory[static_cast<std::size_t>(last) + 1].by_kind == here.by_kind)
      ++last;
    text += line(first == last ? fmt::format("rank {}", first) : fmt::format("ranks {} to {}", first, last),
                 memory_cells(here));
    first = last + 1;
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
  return fmt::format("case {}: {}, {}, S = {}, B = {}, M = {}\n", number, c.schedule, ranks_text(c),
                     c.shape.seq, deck::micro_batch_text(c), c.micro_batches) +
         model_text(plan) + traffic_text(plan) + messages_text(plan) + ticks_text(plan) + idle_text(plan) +
         slots_line(plan) + memory_text(plan);
}

namespace {

using nlohmann::ordered_json;
using schedule::ByteMatrix;
using schedule::Memory;
using schedule::Traffic;

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

ordered_json reach_json(const CasePlan& plan,
                        std::uint64_t (ByteMatrix::*reach)(const topology::Groups&, Traffic) const) {
  ordered_json json;
  std::uint64_t total = 0;
  for (int k = 0; k < schedule::traffic_kinds; ++k) {
    const auto kind = static_cast<Traffic>(k);
    const std::uint64_t bytes = (plan.bytes.*reach)(plan.settings.groups, kind);
    json[schedule::name_of(kind)] = bytes;
    total += bytes;
  }
  json["total"] = total;
  return json;
}

ordered_json groups_json(const CasePlan& plan) {
  ordered_json list = ordered_json::array();
  const topology::Groups& groups = plan.settings.groups;
  for (int g = 0; g < groups.count(); ++g)
    list.push_back({{"group", g},
                    {"ranks", groups.size(g)},
                    {"bytes_out", plan.bytes.leaving(groups, g)},
                    {"bytes_in", plan.bytes.entering(groups, g)}});
  return list;
}

ordered_json footprint_json(const CasePlan& plan, int rank) {
  const schedule::Footprint& footprint = plan.memory[static_cast<std::size_t>(rank)];
  ordered_json json = {{"rank", rank}};
  for (int k = 0; k < schedule::memory_kinds; ++k)
    json[schedule::name_of(static_cast<Memory>(k))] = footprint.by_kind[static_cast<std::size_t>(k)];
  json["total"] = footprint.total();
  return json;
}

ordered_json memory_json(const CasePlan& plan) {
  ordered_json ranks = ordered_json::array();
  for (int r = 0; r < plan.settings.ranks; ++r) ranks.push_back(footprint_json(plan, r));
  return {{"worst", footprint_json(plan, plan.worst_rank())}, {"ranks", ranks}};
}

ordered_json ticks_json(const CasePlan& plan) {
  std::vector<int> idle;
  for (int r = 0; r < plan.settings.ranks; ++r) idle.push_back(plan.ticks.idle(r));
  return {{"total", plan.ticks.total}, {"idle_per_rank", idle}, {"idle_share", plan.idle_ticks_share()}};
}

ordered_json idle_json(const CasePlan& plan) {
  std::vector<double> ranks;
  for (int r = 0; r < plan.settings.ranks; ++r) ranks.push_back(plan.idle.share(r));
  return {{"share", plan.idle.share()}, {"step_s", plan.idle.seconds}, {"share_per_rank", ranks}};
}

/// Of the rank that needs most memory.
ordered_json slots_json(const CasePlan& plan) {
  const int worst = plan.worst_rank();
  ordered_json json = {{"rank", worst}};
  for (int c = 0; c < schedule::slot_classes; ++c)
    json[std::string(1, letter_of(static_cast<schedule::SlotClass>(c)))] =
        plan.program.ranks[static_cast<std::size_t>(worst)].slots[static_cast<std::size_t>(c)];
  return json;
}

ordered_json busiest_json(const CasePlan& plan,
                          std::uint64_t (ByteMatrix::*direction)(const topology::Groups&, int) const) {
  const auto found = plan.busiest(direction);
  return {{"group", found.group}, {"bytes", found.bytes}};
}

ordered_json known_json(const CasePlan& plan) {
  const schedule::MessageCounts& m = plan.messages;
  return {{"settings", settings_json(plan)},
          {"shards", plan.program.shards},
          {"bytes_per_step",
           {{"inside", reach_json(plan, &ByteMatrix::inside)},
            {"between", reach_json(plan, &ByteMatrix::between)}}},
          {"busiest_out", busiest_json(plan, &ByteMatrix::leaving)},
          {"busiest_in", busiest_json(plan, &ByteMatrix::entering)},
          {"groups", groups_json(plan)},
          {"messages",
           {{"weights_between", m.weights_between},
            {"weights_inside", m.weights_inside},
            {"gradients_between", m.gradients_between},
            {"gradients_inside", m.gradients_inside},
            {"broadcasts", m.broadcasts},
            {"reduces", m.reduces}}},
          {"ticks", ticks_json(plan)},
          {"idle_free_transfers", idle_json(plan)},
          {"slots", slots_json(plan)},
          {"memory_bytes", memory_json(plan)}};
}

}  // namespace

ordered_json to_json(const CasePlan& plan) {
  ordered_json json = known_json(plan);
  if (const auto seconds = plan.nic_seconds()) json["nic_s"] = *seconds;
  return json;
}

nlohmann::ordered_json to_json(const schedule::Machine& machine) {
  ordered_json json = {{"flops", machine.flops},
                       {"inside_bytes_per_s", machine.inside},
                       {"between_bytes_per_s", machine.between},
                       {"memory_bytes_per_s", machine.memory}};
  if (machine.nic > 0) json["nic_bytes_per_s"] = machine.nic;
  return json;
}

}  // namespace minitaw::app
