// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/screen/screening.hpp"
#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/ranges.h>
#include <set>
#include "base/error.hpp"
#include "base/range.hpp"
#include "base/statistics.hpp"
#include "topology/system.hpp"

namespace minitaw::screen {
int Machine::adapter_of(int rank) const {
  return nodes.local(rank) * adapters / nodes.size(nodes.group_of(rank));
}

int Machine::driver(int node, int adapter) const {
  for (const int rank : nodes.members(node))
    if (adapter_of(rank) == adapter)
      return rank;
  return -1;
}

int Machine::partners(Partner partner) const {
  if (partner == Partner::inside)
    return std::ranges::max(nodes.sizes());
  return partner == Partner::node ? nodes.count() : 1;
}

int Machine::rank_of(Partner kind, int rank, int partner) const {
  if (kind == Partner::node)
    return driver(partner, adapter_of(rank));
  if (kind != Partner::inside)
    return rank;
  const int node = nodes.group_of(rank);
  return partner < nodes.size(node) ? nodes.rank(node, partner) : -1;
}

double Known::median_value() const {
  std::vector<double> there = values;
  std::erase_if(there, [](double v) { return std::isnan(v); });
  return median(std::move(there));
}

namespace {
/// "rank 2 (node17)"
std::string rank_text(int rank, const Machine& machine, const std::vector<std::string>& names) {
  return fmt::format("rank {} ({})", rank, names[machine.nodes.group_of(rank)]);
}

/// "all 6 ranks", "4 of 6 ranks: 0,2-3,5"
std::string ranks_text(const std::vector<int>& ranks, const Machine& machine) {
  if (std::ssize(ranks) == machine.nodes.ranks())
    return fmt::format("all {}", counted(std::ssize(ranks), "rank"));
  return fmt::format("{} of {}: {}",
      ranks.size(),
      counted(machine.nodes.ranks(), "rank"),
      topology::ranges_text(ranks));
}
}  // namespace

std::string readable(double value, const Quantity& q) {
  if (q.is_latency())
    return value < 999.95e-6 ? fmt::format("{:.1f} us", 1e6 * value)
                             : fmt::format("{:.3g} ms", 1e3 * value);
  if (q.is_load())
    return fmt::format("{:.0f} %", 100 * value);
  if (q.between_nodes())
    value *= 8;
  constexpr std::array prefixes = {"", "k", "M", "G", "T", "P"};
  std::size_t p = 0;
  for (; p + 1 < prefixes.size() && value >= 999.5; ++p)
    value /= 1000;
  return fmt::format("{:.3g} {}{}", value, prefixes[p], q.between_nodes() ? "bit/s" : q.units);
}

std::string name_of(
    const Culprit& culprit, const Machine& machine, const std::vector<std::string>& names) {
  const auto& [kind, ranks] = culprit.part;
  const int first = ranks.front(), last = ranks.back();
  const int node = machine.nodes.group_of(first), other = machine.nodes.group_of(last);
  const auto adapter = [&](int driver) {
    return fmt::format("adapter {}of {} (rank {})",
        machine.adapters > 1 ? fmt::format("{} ", machine.adapter_of(driver)) : "",
        names[machine.nodes.group_of(driver)],
        driver);
  };
  switch (kind) {
  case Part::rank: return rank_text(first, machine, names);
  case Part::node: return names[node];
  case Part::adapter: return adapter(first);
  case Part::some_ranks: return ranks_text(ranks, machine);
  case Part::some_adapters:
    if (std::ssize(ranks) == machine.nodes.count() * machine.adapters && machine.nodes.count() > 2)
      return "adapters of all nodes, or the network between them";
    return fmt::format("at least one of {}{}",
        fmt::join(list_of(ranks, adapter), ", "),
        ranks.size() == 2 ? ", the link between them" : "");
  case Part::link: break;
  }
  const bool both = culprit.both_ways;
  const int peers = node == other ? machine.nodes.size(node) : machine.nodes.count();
  return fmt::format("link {} {} {} {}{}",
      both ? "between" : "from",
      rank_text(first, machine, names),
      both ? "and" : "to",
      rank_text(last, machine, names),
      peers > 2       ? ""
      : node == other ? ", or one of the two"
                      : ", or the adapter at one of its ends");
}

std::string text_of(const Evidence& e) {
  return fmt::format("{}{}: {} where {} is {} ({}) in {}",
      e.quantity.name,
      e.way,
      readable(e.value, e.quantity),
      readable(e.usual, e.quantity),
      e.source.empty() ? "usual" : fmt::format("known ({})", e.source),
      e.quantity.is_latency() ? fmt::format("{:.1f} times", e.value / e.usual)
                              : fmt::format("{:.0f} % less", 100 * (1 - e.value / e.usual)),
      counted(e.rounds, "round"));
}

std::string text_of(double smallest, const Quantity& quantity) {
  if (std::isnan(smallest))
    return "none";
  if (quantity.is_latency())
    return readable(smallest, quantity) + " more";
  return fmt::format("{:.0f} % less", std::ceil(100 * smallest - 1e-6));
}

std::vector<int> nodes_of(const Part& part, const Machine& machine) {
  std::set<int> nodes;
  for (const int rank : part.ranks)
    nodes.insert(machine.nodes.group_of(rank));
  return {nodes.begin(), nodes.end()};
}

std::vector<std::vector<std::pair<int, int>>> tournament(int n) {
  if (n < 2)
    return {};
  const int seats = n + n % 2;  // an odd one out has a pause
  std::vector<std::vector<std::pair<int, int>>> steps;
  for (int step = 0; step + 1 < seats; ++step) {
    std::vector<std::pair<int, int>>& pairs = steps.emplace_back();
    // All but the last one sit in a circle, which turns by one seat from step to step.
    for (int i = 0; i < seats / 2; ++i) {
      const int a = i == 0 ? seats - 1 : (step + i) % (seats - 1);
      const int b = i == 0 ? step : (step + seats - 1 - i) % (seats - 1);
      if (a < n && b < n)
        pairs.emplace_back(std::min(a, b), std::max(a, b));
    }
  }
  return steps;
}
}  // namespace minitaw::screen
