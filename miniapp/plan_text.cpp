#include <fmt/format.h>

#include <algorithm>

#include "deck/sequences.hpp"
#include "plan_case.hpp"
#include "plan_table.hpp"
#include "record/result.hpp"

namespace minitaw::app {

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
  const double tokens = record::tokens_of(c);
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

}  // namespace minitaw::app
