// SPDX-License-Identifier: BSD-3-Clause
#include "screen/screening.hpp"
#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <set>
#include "base/error.hpp"

namespace minitaw::screen {
int Machine::adapter_of(int rank) const { return nodes.local(rank) * adapters / nodes.size(nodes.group_of(rank)); }

int Machine::driver(int node, int adapter) const {
  for (const int rank : nodes.members(node))
    if (adapter_of(rank) == adapter) return rank;
  return -1;
}

int Machine::partners(Partner partner) const {
  if (partner == Partner::none) return 1;
  return partner == Partner::node ? nodes.count() : std::ranges::max(nodes.sizes());
}

int Machine::rank_behind(Partner kind, int rank, int partner) const {
  if (kind == Partner::none) return rank;
  if (kind == Partner::node) return driver(partner, adapter_of(rank));
  const int node = nodes.group_of(rank);
  return partner < nodes.size(node) ? nodes.rank(node, partner) : -1;
}

namespace {
/// "rank 2 (node17)"
std::string rank_text(int rank, const Machine& machine, const std::vector<std::string>& names) {
  return fmt::format("rank {} ({})", rank, names[machine.nodes.group_of(rank)]);
}
}  // namespace

std::string readable(double value, const std::string& units) {
  if (units == "s") return fmt::format("{:.1f} us", 1e6 * value);
  const bool bytes = units == "B/s";
  if (bytes) value *= 8;
  constexpr std::array prefixes = {"", "k", "M", "G", "T", "P"};
  std::size_t p = 0;
  for (; p + 1 < prefixes.size() && value >= 999.5; ++p) value /= 1000;
  return fmt::format("{:.3g} {}{}", value, prefixes[p], bytes ? "bit/s" : units);
}

std::string name_of(const Suspect& who, const Machine& machine, const std::vector<std::string>& names, bool both_ways) {
  switch (who.kind) {
  case Suspect::rank: return rank_text(who.a, machine, names);
  case Suspect::node: return names[who.a];
  case Suspect::adapter:
    return fmt::format("adapter {}of {} (rank {})",
        machine.adapters > 1 ? fmt::format("{} ", machine.adapter_of(who.a)) : "", names[machine.nodes.group_of(who.a)],
        who.a);
  case Suspect::link: break;
  }
  return fmt::format("link {} {} {} {}", both_ways ? "between" : "from", rank_text(who.a, machine, names),
      both_ways ? "and" : "to", rank_text(who.b, machine, names));
}

std::string text_of(const Evidence& e) {
  const bool latency = e.units == "s";
  return fmt::format("{}: {} where {} is usual ({}) in {}", e.quantity, readable(e.value, e.units),
      readable(e.usual, e.units),
      latency ? fmt::format("{:.1f} times", e.value / e.usual)
              : fmt::format("{:.0f} % less", 100 * (1 - e.value / e.usual)),
      counted(e.rounds, "round"));
}

std::vector<int> nodes_of(const Culprit& culprit, const Machine& machine) {
  const auto [kind, a, b] = culprit.who;
  if (kind == Suspect::node) return {a};
  std::set<int> nodes = {machine.nodes.group_of(a)};
  if (kind == Suspect::link) nodes.insert(machine.nodes.group_of(b));
  return {nodes.begin(), nodes.end()};
}
}  // namespace minitaw::screen
