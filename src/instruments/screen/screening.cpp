// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/screen/screening.hpp"
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

/// Of more ranks, JSON has the values of nodes.
constexpr int most_ranks = 64;

bool has_ranks(const Wiring& wiring) {
  return wiring.nodes.ranks() <= most_ranks;
}

/// The lowest, median and highest value of those that are known.
std::array<double, 3> spread_of(std::vector<double> all) {
  std::erase_if(all, [](double v) { return std::isnan(v); });
  std::ranges::sort(all);
  return {quantile(all, 0), quantile(all, 0.5), quantile(all, 1)};
}

/// Of all rounds.
std::array<double, 3> spread_of(const Measurement& m) {
  return spread_of(list_of(m.rounds | std::views::join));
}

/// Medians over the rounds: [part], or of pairs of parts [from][to]. A part is a rank, or a node:
/// the slowest of its ranks and of the pairs inside, or of the pairs between two nodes.
Json values_of(const Wiring& wiring, const Measurement& m) {
  const topology::Groups& nodes = wiring.nodes;
  const Partner kind = m.quantity.partner;
  const int parts = has_ranks(wiring) ? nodes.ranks() : nodes.count();
  const int partners = wiring.partners(kind);
  const auto part_of = [&](int rank) { return has_ranks(wiring) ? rank : nodes.group_of(rank); };
  std::vector<Values> found(parts, Values(parts, nothing));
  for (int i = 0; i < nodes.ranks() * partners; ++i) {
    const int to = i / partners, from = wiring.rank_of(kind, to, i % partners);
    if (from < 0)
      continue;
    const double value = spread_of(list_of(m.rounds, [&](const Values& v) { return v[i]; }))[1];
    double& slowest = found[part_of(from)][part_of(to)];
    slowest = m.quantity.is_latency() ? std::fmax(slowest, value) : std::fmin(slowest, value);
  }
  if (kind == Partner::node || (kind == Partner::inside && has_ranks(wiring)))
    return found;
  return list_of(indices(found), [&](int part) { return found[part][part]; });
}

Json to_json(const Screening& s, const Culprit& c) {
  constexpr const char* kinds[] = {"rank", "node", "adapter", "link"};
  const auto evidence = [](const Evidence& e) -> Json {
    return {{"text", text_of(e)},
        {"quantity", e.quantity.name + e.way},
        {"units", e.quantity.units},
        {"value", e.value},
        {e.expected ? "expected" : "usual", e.usual},
        {"rounds", e.rounds}};
  };
  return {{"kind", kinds[c.suspect.kind]},
      {"ranks", c.suspect.ranks},
      {"nodes", list_of(nodes_of(c.suspect, s.wiring), [&](int node) { return s.nodes[node]; })},
      {"text", name_of(c.suspect, s.wiring, s.nodes)},
      {"evidence", list_of(c.evidence, evidence)}};
}
}  // namespace

int Wiring::adapter_of(int rank) const {
  return nodes.local(rank) * adapters / nodes.size(nodes.group_of(rank));
}

int Wiring::driver(int node, int adapter) const {
  for (const int rank : nodes.members(node))
    if (adapter_of(rank) == adapter)
      return rank;
  return -1;
}

int Wiring::partners(Partner partner) const {
  if (partner == Partner::inside)
    return std::ranges::max(nodes.sizes());
  return partner == Partner::node ? nodes.count() : 1;
}

int Wiring::rank_of(Partner kind, int rank, int partner) const {
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
    const Suspect& suspect, const Wiring& wiring, const std::vector<std::string>& names) {
  const auto& [kind, ranks] = suspect;
  const topology::Groups& nodes = wiring.nodes;
  const int first = ranks.front(), last = ranks.back();
  const auto node = [&](int rank) { return names[nodes.group_of(rank)]; };
  const auto one = [&](int rank) { return fmt::format("rank {} ({})", rank, node(rank)); };
  const std::string several = "ranks " + topology::ranges_text(ranks);
  switch (kind) {
  case Suspect::rank: return ranks.size() > 1 ? several : one(first);
  case Suspect::node: return node(first);
  case Suspect::adapter:
    if (ranks.size() > 1)
      return fmt::format("an adapter of {}, or the network between them", several);
    return fmt::format("adapter {}of {} (rank {})",
        wiring.adapters > 1 ? fmt::format("{} ", wiring.adapter_of(first)) : "",
        node(first),
        first);
  case Suspect::link: break;
  }
  const std::string link = fmt::format("link between {} and {}", one(first), one(last));
  if (nodes.together(first, last))
    return link + (nodes.size(nodes.group_of(first)) > 2 ? "" : ", or one of the two");
  return link + (nodes.count() > 2 ? "" : ", or the adapter at one of its ends");
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

std::vector<int> nodes_of(const Suspect& suspect, const Wiring& wiring) {
  std::set<int> nodes;
  for (const int rank : suspect.ranks)
    nodes.insert(wiring.nodes.group_of(rank));
  return {nodes.begin(), nodes.end()};
}

Verdict verdict_of(const Screening& s) {
  const Judgement& judgement = s.judgement;
  const std::string in_rounds = " in " + counted(std::ssize(s.measured.front().rounds), "round");
  const std::string load = fmt::format("{} took up to {:.0f} % of the cores of {}",
      s.load_by,
      100 * judgement.load,
      counted(std::ssize(judgement.loaded), "rank"));
  if (const auto culprits = std::ssize(judgement.culprits); culprits > 0) {
    const std::string beside = judgement.loaded.empty() ? "" : "; " + load;
    return {"FOUND: " + counted(culprits, "culprit") + in_rounds + beside, 1};
  }
  if (!judgement.loaded.empty())
    return {"INCONCLUSIVE: " + load + in_rounds, 3};
  const bool has_expected =
      std::ranges::any_of(s.measured, [](const Measurement& m) { return !std::isnan(m.expected); });
  const std::string than = has_expected ? "its peers or than expected" : "its peers";
  return {"CLEAN: no part is slower than " + than + in_rounds, 0};
}

std::string table_text(const Screening& s) {
  constexpr const char* line = "{} {:<40} {:>12} {:>12} {:>12} {:>14} {:>12}";
  std::string text =
      fmt::format(line, "#", "", "lowest", "median", "highest", "detectable", "expected") + "\n";
  for (const int q : indices(s.measured)) {
    const auto& [quantity, rounds, expected] = s.measured[q];
    const auto [lowest, median, highest] = spread_of(s.measured[q]);
    text += fmt::format(line,
        " ",
        quantity.name,
        readable(lowest, quantity),
        readable(median, quantity),
        readable(highest, quantity),
        quantity.is_load() ? "" : text_of(s.judgement.smallest[q], quantity),
        std::isnan(expected) ? "" : readable(expected, quantity));
    text.erase(text.find_last_not_of(' ') + 1);
    text += "\n";
  }
  return text;
}

std::string findings_text(const Screening& s, std::span<const topology::RankPlace> ranks) {
  std::string text;
  for (const auto& [suspect, evidence] : s.judgement.culprits) {
    text += fmt::format("CULPRIT: {}\n", name_of(suspect, s.wiring, s.nodes));
    for (const Evidence& e : evidence)
      text += fmt::format("  {}\n", text_of(e));
    const topology::RankPlace& first = ranks[suspect.ranks.front()];
    if (suspect.kind == Suspect::rank && !first.uuid.empty())
      text += fmt::format("  {}, {}\n", first.unit, first.uuid);
  }
  return text + fmt::format("VERDICT: {}\n", verdict_of(s).text);
}

/// A number that is not known is null.
nlohmann::ordered_json to_json(const Screening& s) {
  constexpr const char* kinds[] = {"each", "pairs in a node", "pairs of nodes"};
  Json quantities = Json::array();
  for (const int q : indices(s.measured)) {
    const auto& [quantity, rounds, expected] = s.measured[q];
    const auto [lowest, median, highest] = spread_of(s.measured[q]);
    if (!quantity.is_load())
      quantities.push_back({{"name", quantity.name},
          {"units", quantity.units},
          {"lowest", lowest},
          {"median", median},
          {"highest", highest},
          {"expected", expected},
          {"detectable", s.judgement.smallest[q]},
          {"of", kinds[static_cast<int>(quantity.partner)]},
          {"values", values_of(s.wiring, s.measured[q])}});
  }
  return {{"verdict", verdict_of(s).text},
      {"rounds", s.measured.front().rounds.size()},
      {"nodes", s.wiring.nodes.sizes()},
      {"adapters", s.wiring.adapters},
      {"load", s.judgement.load},
      {"load_by", s.load_by},
      {"loaded_ranks", s.judgement.loaded},
      {"part", has_ranks(s.wiring) ? "rank" : "node"},
      {"culprits", list_of(s.judgement.culprits, [&](const Culprit& c) { return to_json(s, c); })},
      {"quantities", quantities}};
}
}  // namespace minitaw::screen
