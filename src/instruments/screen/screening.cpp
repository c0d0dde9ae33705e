// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/screen/screening.hpp"
#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/ranges.h>
#include <set>
#include "base/error.hpp"
#include "base/range.hpp"
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
  if (partner == Partner::none)
    return 1;
  return partner == Partner::node ? nodes.count() : std::ranges::max(nodes.sizes());
}

int Machine::rank_behind(Partner kind, int rank, int partner) const {
  if (kind == Partner::none)
    return rank;
  if (kind == Partner::node)
    return driver(partner, adapter_of(rank));
  const int node = nodes.group_of(rank);
  return partner < nodes.size(node) ? nodes.rank(node, partner) : -1;
}

namespace {
/// "rank 2 (node17)"
std::string rank_text(int rank, const Machine& machine, const std::vector<std::string>& names) {
  return fmt::format("rank {} ({})", rank, names[machine.nodes.group_of(rank)]);
}

/// "all 6 ranks", "rank 1, rank 3 and 2 more"
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
  if (q.units == "s")
    return value < 999.95e-6 ? fmt::format("{:.1f} us", 1e6 * value)
                             : fmt::format("{:.3g} ms", 1e3 * value);
  if (q.units == "1")
    return fmt::format("{:.0f} %", 100 * value);
  if (q.in_bits)
    value *= 8;
  constexpr std::array prefixes = {"", "k", "M", "G", "T", "P"};
  std::size_t p = 0;
  for (; p + 1 < prefixes.size() && value >= 999.5; ++p)
    value /= 1000;
  return fmt::format("{:.3g} {}{}", value, prefixes[p], q.in_bits ? "bit/s" : q.units);
}

std::string name_of(
    const Culprit& culprit, const Machine& machine, const std::vector<std::string>& names) {
  const Suspect& who = culprit.who;
  const auto adapter = [&](int driver) {
    return fmt::format("adapter {}of {} (rank {})",
        machine.adapters > 1 ? fmt::format("{} ", machine.adapter_of(driver)) : "",
        names[machine.nodes.group_of(driver)],
        driver);
  };
  switch (who.kind) {
  case Suspect::rank: return rank_text(who.a, machine, names);
  case Suspect::node: return names[who.a];
  case Suspect::adapter: return adapter(who.a);
  case Suspect::some_ranks: return ranks_text(culprit.among, machine);
  case Suspect::some_adapters:
    if (std::ssize(culprit.among) == machine.nodes.count() * machine.adapters &&
        machine.nodes.count() > 2)
      return "adapters of all nodes, or the network between them";
    return fmt::format("at least one of {}{}",
        fmt::join(list_of(culprit.among, adapter), ", "),
        culprit.among.size() == 2 ? ", the link between them" : "");
  case Suspect::link: break;
  }
  const bool both = culprit.both_ways;
  const int node = machine.nodes.group_of(who.a), other = machine.nodes.group_of(who.b);
  const int peers = node == other ? machine.nodes.size(node) : machine.nodes.count();
  return fmt::format("link {} {} {} {}{}",
      both ? "between" : "from",
      rank_text(who.a, machine, names),
      both ? "and" : "to",
      rank_text(who.b, machine, names),
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
      e.quantity.is_latency ? fmt::format("{:.1f} times", e.value / e.usual)
                            : fmt::format("{:.0f} % less", 100 * (1 - e.value / e.usual)),
      counted(e.rounds, "round"));
}

std::string text_of(double smallest, const Quantity& quantity) {
  if (std::isnan(smallest))
    return "nothing";
  if (quantity.is_latency)
    return readable(smallest, quantity) + " more";
  return fmt::format("{:.0f} % less", std::ceil(100 * smallest - 1e-6));
}

std::vector<int> nodes_of(const Culprit& culprit, const Machine& machine) {
  const auto [kind, a, b] = culprit.who;
  if (kind == Suspect::node)
    return {a};
  if (!culprit.among.empty()) {
    std::set<int> all;
    for (const int rank : culprit.among)
      all.insert(machine.nodes.group_of(rank));
    return {all.begin(), all.end()};
  }
  std::set<int> nodes = {machine.nodes.group_of(a)};
  if (kind == Suspect::link)
    nodes.insert(machine.nodes.group_of(b));
  return {nodes.begin(), nodes.end()};
}
}  // namespace minitaw::screen
