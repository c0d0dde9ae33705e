#include "plan_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "deck/sequences.hpp"

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

}  // namespace minitaw::app
