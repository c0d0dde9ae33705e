// SPDX-License-Identifier: BSD-3-Clause
#include "screen_report.hpp"
#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include "base/error.hpp"

namespace minitaw::app {
namespace {
using record::entry, screen::Culprit, screen::Evidence, screen::Measured, screen::Quantity;
namespace h5 = record::h5;

/// "rate_inside_the_node"
std::string dataset_of(const Quantity& quantity) {
  std::string name = quantity.name;
  std::erase(name, ',');
  std::ranges::replace(name, ' ', '_');
  std::ranges::replace(name, '-', '_');
  return name;
}

/// The lowest, median and highest value of all rounds.
std::array<double, 3> spread_of(const Measured& m) {
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
Json to_json(const Measured& m, const screen::Smallest& smallest) {
  const auto [lowest, median, highest] = spread_of(m);
  return {{"name", m.quantity.name},
      {"units", m.quantity.units},
      {"lowest", lowest},
      {"median", median},
      {"highest", highest},
      {"expected", m.expected},
      {"detectable", {{"part", smallest.part}, {"link", smallest.link}}}};
}

Dataset dataset(const Measured& m, const screen::Machine& machine) {
  constexpr const char* axes[] = {"one", "rank of its node", "node"};
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

void read_rounds(const record::Recorder& file, const std::string& path, Screening& screening) {
  if (H5Lexists(file.file(), "screen", H5P_DEFAULT) <= 0)
    return;
  const std::string before = h5::read<std::string>(file.file(), "screen/settings", 0).values.at(0);
  if (before != screening.settings)
    throw InputError(
        fmt::format("{} was measured with other settings ({}); choose another file", path, before));
  for (Measured& m : screening.measured) {
    const auto found = h5::read<double>(file.file(), "screen/" + dataset_of(m.quantity), 3);
    const auto size = static_cast<std::ptrdiff_t>(found.shape[1] * found.shape[2]);
    for (auto at = found.values.begin(); at != found.values.end(); at += size)
      m.rounds.emplace_back(at, at + size);
  }
}

void write(record::Recorder& file, const Screening& s) {
  const auto ranks = static_cast<std::size_t>(s.machine.nodes.ranks());
  std::vector<std::int64_t> node_of_rank;
  for (int node = 0; node < s.machine.nodes.count(); ++node)
    node_of_rank.insert(node_of_rank.end(), s.machine.nodes.size(node), node);
  const auto text = [&](const Culprit& c) { return sentence(s, c); };
  std::vector<Dataset> all = {entry("settings", s.settings),
      entry("verdict", s.verdict.text),
      entry("culprits", "culprit", list_of(s.judgement.culprits, text)),
      {"node_of_rank", "1", "rank", node_of_rank, {ranks}}};
  for (const Measured& m : s.measured)
    all.push_back(dataset(m, s.machine));
  file.put("screen", std::move(all));
}

std::string table_text(const Screening& s) {
  constexpr const char* line = "{} {:<40} {:>12} {:>12} {:>12} {:>14} {:>12}";
  std::string text =
      fmt::format(line, "#", "", "lowest", "median", "highest", "detectable", "expected") + "\n";
  for (std::size_t q = 0; q < s.measured.size(); ++q) {
    const Measured& m = s.measured[q];
    const auto [lowest, median, highest] = spread_of(m);
    const auto& [part, link] = s.judgement.smallest[q];
    text += fmt::format(line,
        " ",
        m.quantity.name,
        readable(lowest, m.quantity),
        readable(median, m.quantity),
        readable(highest, m.quantity),
        m.quantity.is_load() ? "" : text_of(std::isnan(part) ? link : part, m.quantity),
        std::isnan(m.expected) ? "" : readable(m.expected, m.quantity));
    text.erase(text.find_last_not_of(' ') + 1);
    text += "\n";
  }
  return text;
}

std::string findings_text(const Screening& s, const MpiJob& mpi) {
  std::string text;
  for (const Culprit& c : s.judgement.culprits) {
    text += fmt::format("CULPRIT: {}\n", name_of(c, s.machine, s.nodes));
    for (const Evidence& e : c.evidence)
      text += fmt::format("  {}\n", text_of(e));
    const topology::RankPlace& first = mpi.ranks[c.part.ranks.front()];
    if (c.part.kind == screen::Part::rank && !first.uuid.empty())
      text += fmt::format("  {}, {}\n", first.unit, first.uuid);
  }
  return text + fmt::format("VERDICT: {}\n", s.verdict.text);
}

Json to_json(const Screening& s) {
  Json quantities = Json::array();
  for (std::size_t q = 0; q < s.measured.size(); ++q)
    if (!s.measured[q].quantity.is_load())
      quantities.push_back(to_json(s.measured[q], s.judgement.smallest[q]));
  return {{"verdict", s.verdict.text},
      {"rounds", s.rounds()},
      {"nodes", s.machine.nodes.sizes()},
      {"adapters", s.machine.adapters},
      {"load", s.judgement.load},
      {"loaded_ranks", s.judgement.loaded},
      {"culprits", list_of(s.judgement.culprits, [&](const Culprit& c) { return to_json(s, c); })},
      {"quantities", quantities},
      {"settings", s.settings}};
}
}  // namespace minitaw::app
