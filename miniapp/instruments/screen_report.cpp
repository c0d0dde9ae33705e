// SPDX-License-Identifier: BSD-3-Clause
#include "screen_report.hpp"
#include <algorithm>
#include <cmath>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <set>
#include "base/error.hpp"

namespace minitaw::app {
namespace {
using record::entry, screen::Culprit, screen::Evidence, screen::Measured, screen::Quantity,
    screen::Words;
namespace h5 = record::h5;

/// "rate_inside_the_node"
std::string dataset_of(const Quantity& quantity) {
  std::string name = quantity.name;
  std::erase(name, ',');
  std::ranges::replace(name, ' ', '_');
  std::ranges::replace(name, '-', '_');
  return name;
}

/// Of all rounds.
struct Spread {
  double lowest, median, highest;
};

Spread spread_of(const Measured& m) {
  std::vector<double> all;
  for (const std::vector<double>& round : m.rounds)
    std::ranges::copy_if(round, std::back_inserter(all), [](double v) { return !std::isnan(v); });
  std::ranges::sort(all);
  return {quantile(all, 0), quantile(all, 0.5), quantile(all, 1)};
}

std::string sentence(const Screening& s, const Culprit& c) {
  const auto text = [](const Evidence& e) { return text_of(e); };
  return fmt::format(
      "{}; {}", name_of(c, s.machine, s.nodes), fmt::join(list_of(c.evidence, text), "; "));
}

/// "62 % of 100 Mbit/s (shaped links; at least 80 %)"
std::string known_text(const Measured& m, double reached) {
  const screen::Known& known = m.known;
  const double value = known.median_value();
  if (std::isnan(value))
    return "";
  const std::string text = readable(value, m.quantity);
  if (m.quantity.is_latency())
    return fmt::format("{} ({}; at most {:.1f} times)", text, known.source, 1 / known.least);
  return fmt::format("{:.0f} % of {} ({}; at least {:.0f} %)",
      100 * reached / value,
      text,
      known.source,
      100 * known.least);
}

Json to_json(const Screening& s, const Culprit& c) {
  constexpr const char* kinds[] = {"rank", "node", "adapter", "link", "ranks", "adapters"};
  Json evidence = Json::array();
  for (const Evidence& e : c.evidence)
    evidence.push_back({{"quantity", e.quantity.name + e.way},
        {"units", e.quantity.units},
        {"value", e.value},
        {e.source.empty() ? "usual" : "known", e.usual},
        {"rounds", e.rounds}});
  return {{"kind", kinds[c.part.kind]},
      {"ranks", c.part.ranks},
      {"nodes", list_of(nodes_of(c.part, s.machine), [&](int node) { return s.nodes[node]; })},
      {"text", name_of(c, s.machine, s.nodes)},
      {"evidence", evidence}};
}

/// A number that is not known is null.
Json to_json(const Measured& m, const screen::Smallest& smallest) {
  const Spread spread = spread_of(m);
  return {{"name", m.quantity.name},
      {"units", m.quantity.units},
      {"lowest", spread.lowest},
      {"median", spread.median},
      {"highest", spread.highest},
      {"known", m.known.median_value()},
      {"known_from", m.known.source},
      {"detectable", {{"part", smallest.part}, {"link", smallest.link}}}};
}

Dataset dataset(const Measured& m, const screen::Machine& machine) {
  constexpr const char* axes[] = {"one", "one", "rank of its node", "node"};
  std::vector<double> values;
  for (const std::vector<double>& round : m.rounds)
    values.insert(values.end(), round.begin(), round.end());
  const Quantity& quantity = m.quantity;
  return {dataset_of(quantity),
      quantity.units,
      fmt::format("round, rank, {}", axes[static_cast<int>(quantity.partner)]),
      std::move(values),
      {m.rounds.size(),
          static_cast<std::size_t>(machine.nodes.ranks()),
          static_cast<std::size_t>(machine.partners(quantity.partner))}};
}
}  // namespace

void ScreenFile::read(Screening& screening) {
  if (H5Lexists(recorder_.file(), "screen", H5P_DEFAULT) <= 0)
    return;
  const std::string before =
      h5::read<std::string>(recorder_.file(), "screen/settings", 0).values.at(0);
  if (before != screening.settings)
    throw InputError(fmt::format(
        "{} was measured with other settings ({}); choose another file", path_, before));
  for (Measured& m : screening.measured) {
    const auto found = h5::read<double>(recorder_.file(), "screen/" + dataset_of(m.quantity), 3);
    const auto size = static_cast<std::ptrdiff_t>(found.shape[1] * found.shape[2]);
    for (auto at = found.values.begin(); at != found.values.end(); at += size)
      m.rounds.emplace_back(at, at + size);
  }
}

void ScreenFile::write(const Screening& s) {
  const Words& words = s.words;
  const auto ranks = static_cast<std::size_t>(s.machine.nodes.ranks());
  std::vector<std::int64_t> node_of_rank;
  for (int node = 0; node < s.machine.nodes.count(); ++node)
    node_of_rank.insert(node_of_rank.end(), s.machine.nodes.size(node), node);
  std::vector<double> smallest;
  for (const auto& [part, link] : s.judgement.smallest)
    smallest.insert(smallest.end(), {part, link});
  const auto name = [](const Measured& m) { return m.quantity.name; };
  const auto text = [&](const Culprit& c) { return sentence(s, c); };
  std::vector<Dataset> all = {entry("settings", s.settings),
      entry("verdict", words.verdict),
      entry("judged", words.judged),
      entry("sure", words.sure),
      entry("not_seen", words.not_seen),
      entry("next", words.next),
      entry("culprits", "culprit", list_of(s.judgement.culprits, text)),
      entry("quantities", "quantity", list_of(s.measured, name)),
      {"detectable",
          "share of the rate, or s",
          "quantity, part or link",
          smallest,
          {s.measured.size(), 2}},
      {"node_of_rank", "1", "rank", node_of_rank, {ranks}}};
  for (const Measured& m : s.measured)
    all.push_back(dataset(m, s.machine));
  recorder_.put("screen", std::move(all));
}

std::string table_text(const Screening& s) {
  constexpr const char* line = "{} {:<40} {:>12} {:>12} {:>12} {:>14}  {}";
  std::string text =
      fmt::format(line, "#", "", "lowest", "median", "highest", "detectable", "known\n");
  for (std::size_t q = 0; q < s.measured.size(); ++q) {
    const Measured& m = s.measured[q];
    const Spread spread = spread_of(m);
    const auto& [part, link] = s.judgement.smallest[q];
    text += fmt::format(line,
        " ",
        m.quantity.name,
        readable(spread.lowest, m.quantity),
        readable(spread.median, m.quantity),
        readable(spread.highest, m.quantity),
        m.quantity.is_load() ? "" : text_of(std::isnan(part) ? link : part, m.quantity),
        known_text(m, spread.median));
    text.erase(text.find_last_not_of(' ') + 1);
    text += "\n";
  }
  return text;
}

std::string findings_text(const Screening& s, const MpiJob& mpi) {
  const Words& words = s.words;
  std::string text;
  std::set<std::string> hosts;
  for (const Culprit& c : s.judgement.culprits) {
    text += fmt::format("CULPRIT: {}\n", name_of(c, s.machine, s.nodes));
    for (const Evidence& e : c.evidence)
      text += fmt::format("  {}\n", text_of(e));
    const topology::RankPlace& first = mpi.ranks[c.part.ranks.front()];
    if (c.part.kind == screen::Part::rank && !first.uuid.empty())
      text += fmt::format("  {}, {}\n", first.unit, first.uuid);
    for (const int node : nodes_of(c.part, s.machine))
      hosts.insert(s.nodes[node]);
  }
  if (!hosts.empty() && mpi.hosts.shown())
    text += fmt::format("# scontrol update nodename={} state=drain reason=\"minitaw screen\"\n",
        fmt::join(hosts, ","));
  return text + fmt::format(
                    "# judged:   {}\n# sure:     {}\n# not seen: {}\n# next:     {}\nVERDICT: {}\n",
                    words.judged,
                    words.sure,
                    words.not_seen,
                    words.next,
                    words.verdict);
}

Json to_json(const Screening& s) {
  Json quantities = Json::array();
  for (std::size_t q = 0; q < s.measured.size(); ++q)
    if (!s.measured[q].quantity.is_load())
      quantities.push_back(to_json(s.measured[q], s.judgement.smallest[q]));
  return {{"verdict", s.words.verdict},
      {"judged", s.words.judged},
      {"sure", s.words.sure},
      {"not_seen", s.words.not_seen},
      {"next", s.words.next},
      {"rounds", s.rounds()},
      {"load", s.judgement.load},
      {"loaded_ranks", s.judgement.loaded},
      {"culprits", list_of(s.judgement.culprits, [&](const Culprit& c) { return to_json(s, c); })},
      {"quantities", quantities},
      {"settings", s.settings}};
}
}  // namespace minitaw::app
