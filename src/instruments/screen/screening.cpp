// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/screen/screening.hpp"
#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <set>
#include "base/error.hpp"
#include "base/range.hpp"
#include "base/statistics.hpp"
#include "topology/system.hpp"

namespace minitaw::screen {
namespace {
using Json = nlohmann::ordered_json;

/// The lowest, median and highest value of all rounds.
std::array<double, 3> spread_of(const Measured& m) {
  std::vector<double> all;
  for (const std::vector<double>& round : m.rounds)
    std::ranges::copy_if(round, std::back_inserter(all), [](double v) { return !std::isnan(v); });
  std::ranges::sort(all);
  return {quantile(all, 0), quantile(all, 0.5), quantile(all, 1)};
}

Json to_json(const Screening& s, const Culprit& c) {
  constexpr const char* kinds[] = {"rank", "node", "adapter", "link"};
  Json evidence = Json::array();
  for (const Evidence& e : c.evidence)
    evidence.push_back({{"quantity", e.quantity.name + e.way},
        {"units", e.quantity.units},
        {"value", e.value},
        {e.expected ? "expected" : "usual", e.usual},
        {"rounds", e.rounds}});
  return {{"kind", kinds[c.part.kind]},
      {"ranks", c.part.ranks},
      {"nodes", list_of(nodes_of(c.part, s.machine), [&](int node) { return s.nodes[node]; })},
      {"text", name_of(c, s.machine, s.nodes)},
      {"evidence", evidence}};
}

/// A number that is not known is null.
Json to_json(const Measured& m, double smallest) {
  const auto [lowest, median, highest] = spread_of(m);
  return {{"name", m.quantity.name},
      {"units", m.quantity.units},
      {"lowest", lowest},
      {"median", median},
      {"highest", highest},
      {"expected", m.expected},
      {"detectable", smallest}};
}
}  // namespace

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
  const auto node = [&](int rank) { return names[machine.nodes.group_of(rank)]; };
  const auto one = [&](int rank) { return fmt::format("rank {} ({})", rank, node(rank)); };
  const std::string several = "ranks " + topology::ranges_text(ranks);
  switch (kind) {
  case Part::rank: return ranks.size() > 1 ? several : one(first);
  case Part::node: return node(first);
  case Part::adapter:
    if (ranks.size() > 1)
      return fmt::format("an adapter of {}, or the network between them", several);
    return fmt::format("adapter {}of {} (rank {})",
        machine.adapters > 1 ? fmt::format("{} ", machine.adapter_of(first)) : "",
        node(first),
        first);
  case Part::link: break;
  }
  const bool inside = machine.nodes.together(first, last);
  const int peers =
      inside ? machine.nodes.size(machine.nodes.group_of(first)) : machine.nodes.count();
  return fmt::format("link between {} and {}{}",
      one(first),
      one(last),
      peers > 2 ? ""
      : inside  ? ", or one of the two"
                : ", or the adapter at one of its ends");
}

std::string text_of(const Evidence& e) {
  return fmt::format("{}{}: {} where {} is {} ({}) in {}",
      e.quantity.name,
      e.way,
      readable(e.value, e.quantity),
      readable(e.usual, e.quantity),
      e.expected ? "expected" : "usual",
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

Verdict verdict_of(const Screening& s) {
  const Judgement& judgement = s.judgement;
  const std::string in_rounds = "in " + counted(std::ssize(s.measured.front().rounds), "round");
  const std::size_t culprits = judgement.culprits.size(), loaded = judgement.loaded.size();
  const std::string load = fmt::format("other programs took up to {:.0f} % of the cores of {}",
      100 * judgement.load,
      counted(loaded, "rank"));
  if (culprits > 0)
    return {fmt::format("FOUND: {} {}{}",
                counted(culprits, "culprit"),
                in_rounds,
                loaded > 0 ? "; " + load : ""),
        1};
  if (loaded > 0)
    return {fmt::format("INCONCLUSIVE: {} {}", load, in_rounds), 3};
  const bool has_expected =
      std::ranges::any_of(s.measured, [](const Measured& m) { return !std::isnan(m.expected); });
  return {fmt::format("CLEAN: no part is slower than {} {}",
              has_expected ? "its peers or than expected" : "its peers",
              in_rounds),
      0};
}

std::string table_text(const Screening& s) {
  constexpr const char* line = "{} {:<40} {:>12} {:>12} {:>12} {:>14} {:>12}";
  std::string text =
      fmt::format(line, "#", "", "lowest", "median", "highest", "detectable", "expected") + "\n";
  for (std::size_t q = 0; q < s.measured.size(); ++q) {
    const Measured& m = s.measured[q];
    const auto [lowest, median, highest] = spread_of(m);
    text += fmt::format(line,
        " ",
        m.quantity.name,
        readable(lowest, m.quantity),
        readable(median, m.quantity),
        readable(highest, m.quantity),
        m.quantity.is_load() ? "" : text_of(s.judgement.smallest[q], m.quantity),
        std::isnan(m.expected) ? "" : readable(m.expected, m.quantity));
    text.erase(text.find_last_not_of(' ') + 1);
    text += "\n";
  }
  return text;
}

std::string findings_text(const Screening& s, std::span<const topology::RankPlace> ranks) {
  std::string text;
  for (const Culprit& c : s.judgement.culprits) {
    text += fmt::format("CULPRIT: {}\n", name_of(c, s.machine, s.nodes));
    for (const Evidence& e : c.evidence)
      text += fmt::format("  {}\n", text_of(e));
    const topology::RankPlace& first = ranks[c.part.ranks.front()];
    if (c.part.kind == Part::rank && !first.uuid.empty())
      text += fmt::format("  {}, {}\n", first.unit, first.uuid);
  }
  return text + fmt::format("VERDICT: {}\n", verdict_of(s).text);
}

nlohmann::ordered_json to_json(const Screening& s) {
  Json quantities = Json::array();
  for (std::size_t q = 0; q < s.measured.size(); ++q)
    if (!s.measured[q].quantity.is_load())
      quantities.push_back(to_json(s.measured[q], s.judgement.smallest[q]));
  return {{"verdict", verdict_of(s).text},
      {"rounds", s.measured.front().rounds.size()},
      {"nodes", s.machine.nodes.sizes()},
      {"adapters", s.machine.adapters},
      {"load", s.judgement.load},
      {"loaded_ranks", s.judgement.loaded},
      {"culprits", list_of(s.judgement.culprits, [&](const Culprit& c) { return to_json(s, c); })},
      {"quantities", quantities}};
}
}  // namespace minitaw::screen
