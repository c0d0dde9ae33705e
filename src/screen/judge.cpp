// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <ranges>
#include "case/result.hpp"
#include "screen/screening.hpp"

namespace minitaw::screen {
namespace {
constexpr double none = std::numeric_limits<double>::quiet_NaN();

/// The smallest value that so large a share of them does not exceed; NaN without values.
double ranked(std::vector<double> values, double share) {
  if (values.empty()) return none;
  const auto last = static_cast<double>(values.size() - 1);
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(std::ceil(share * last));
  std::ranges::nth_element(values, at);
  return *at;
}

/// What values of the same kind have in common: their median (of an even number the better one), and how far
/// below it one of them is no chance.
struct Usual {
  double value = none, threshold = none;

  Usual(const std::vector<double>& values, const Rule& rule, double least, bool is_latency)
      : value(ranked(values, 0.5)) {
    std::vector<double> apart = list_of(values, [&](double v) { return std::abs(v / value - 1); });
    std::ranges::sort(apart);
    // Of an even number the smaller one: half of the values may be those that are looked for.
    const double deviation = apart.empty() ? 0 : 1.4826 * apart[(apart.size() - 1) / 2];
    const double by_chance = std::min(rule.sigmas * deviation, is_latency ? 0.9 : 0.5);
    threshold = value * (1 - std::max(least, by_chance));
  }
  [[nodiscard]] bool exceeds(double v) const { return v < threshold; }
};

double score(const Quantity& q, double value) { return q.is_latency ? 1 / (value + latency_floor) : value; }
double unscore(const Quantity& q, double score) { return q.is_latency ? 1 / score - latency_floor : score; }

struct Flow {
  int from = -1, to = -1;
  double score = none;
};

enum class Way : std::uint8_t { own, sends, receives };
struct Port {
  int rank;
  Way way;
  friend auto operator<=>(const Port&, const Port&) = default;
};

using Scores = std::map<Port, std::vector<double>>;
std::map<Port, double> ranked_each(const Scores& scores, double share, std::size_t least = 1) {
  std::map<Port, double> all;
  for (const auto& [port, values] : scores)
    if (values.size() >= least) all[port] = ranked(values, share);
  return all;
}

/// Value and usual, in scores, in each round where something stood out.
using Rounds = std::vector<std::pair<double, double>>;
template <class Key> using Found = std::map<Key, Rounds>;

/// Judges one quantity.
class Judge {
public:
  Judge(const Machine& machine, const Measured& measured, const Rule& rule)
      : machine_(machine), measured_(measured), rule_(rule),
        least_(rule.least > 0 && !quantity().is_latency ? rule.least : quantity().least) {}

  /// Ranks, nodes and adapters.
  [[nodiscard]] std::vector<Culprit> find_parts() const {
    Found<Port> ports;
    std::size_t subjects = 0;
    for (const std::vector<double>& round : measured_.rounds)
      subjects = compare(quantity().partner == Partner::none ? own(round) : reach(flows(round)), ports);
    keep(ports, subjects);
    return quantity().partner == Partner::none ? merge_ranks(ports) : merge_ports(ports);
  }

  /// Links, but for those that end at a rank which accounts for what stands out.
  using Explained = std::function<bool(int rank, const Evidence& evidence)>;
  [[nodiscard]] std::vector<Culprit> find_links(const Explained& explained) const {
    Found<std::pair<int, int>> links;
    std::size_t subjects = 0;
    for (const std::vector<double>& round : measured_.rounds) subjects = judge_flows(flows(round), links);
    std::erase_if(links, [&](const auto& link) {
      const Evidence seen = evidence(link.second);
      return explained(link.first.first, seen) || explained(link.first.second, seen);
    });
    keep(links, subjects);
    std::vector<Culprit> culprits;
    for (const auto& [link, rounds] : links) {
      const auto [from, to] = link;
      const bool both = links.contains({to, from});
      if (!both || from < to) culprits.push_back({{Suspect::link, from, to}, both, {evidence(rounds)}});
    }
    return culprits;
  }
private:
  [[nodiscard]] const Quantity& quantity() const { return measured_.quantity; }

  /// By rank, or by the first rank of a node.
  [[nodiscard]] std::map<Port, double> own(const std::vector<double>& round) const {
    Scores scores;
    for (int r = 0; r < machine_.nodes.ranks(); ++r)
      if (const double s = score(quantity(), round[r]); !std::isnan(s))
        scores[{quantity().of_node ? machine_.nodes.first(machine_.nodes.group_of(r)) : r, Way::own}].push_back(s);
    return ranked_each(scores, 0.5);
  }

  /// Returns how many were compared.
  std::size_t compare(const std::map<Port, double>& scores, Found<Port>& found) const {
    const Usual usual(list_of(scores | std::views::values), rule_, least_, quantity().is_latency);
    for (const auto& [port, value] : scores)
      if (usual.exceeds(value)) found[port].emplace_back(value, usual.value);
    return scores.size();
  }

  [[nodiscard]] std::vector<Flow> flows(const std::vector<double>& round) const {
    const int partners = machine_.partners(quantity().partner);
    std::vector<Flow> all;
    for (int to = 0; to < machine_.nodes.ranks(); ++to)
      for (int p = 0; p < partners; ++p)
        if (const double value = round[to * partners + p]; !std::isnan(value))
          all.push_back({machine_.rank_behind(quantity().partner, to, p), to, score(quantity(), value)});
    return all;
  }

  /// The upper quartile over each port's partners. With one alone nobody knows which of the two it is: that is a link.
  static std::map<Port, double> reach(const std::vector<Flow>& flows, std::size_t least_partners = 2) {
    Scores scores;
    for (const Flow& f : flows) {
      scores[{f.from, Way::sends}].push_back(f.score);
      scores[{f.to, Way::receives}].push_back(f.score);
    }
    return ranked_each(scores, 0.75, least_partners);
  }

  std::size_t judge_flows(const std::vector<Flow>& flows, Found<std::pair<int, int>>& found) const {
    const double most = ranked(list_of(reach(flows, 1) | std::views::values), 0.5);
    const std::map<Port, double> ports = reach(flows);
    const auto cap = [&](Port port) { return ports.contains(port) ? ports.at(port) : most; };
    const auto expected = [&](const Flow& f) {
      return std::min({most, cap({f.from, Way::sends}), cap({f.to, Way::receives})});
    };
    const auto share = [&](const Flow& f) { return f.score / expected(f); };
    const Usual usual(list_of(flows, share), rule_, least_, quantity().is_latency);
    for (const Flow& f : flows)
      if (usual.exceeds(share(f))) found[{f.from, f.to}].emplace_back(f.score, expected(f));
    return flows.size();
  }

  /// Leaves what stood out in rounds enough: `rule_.rounds`, or more where so many of all `subjects` stand out in some
  /// round by chance that one of them would stand out so often. What always stands out counts as no chance.
  template <class Key> void keep(Found<Key>& found, std::size_t subjects) const {
    const auto rounds = std::ssize(measured_.rounds);
    double chances = 0;
    for (const auto& [key, times] : found)
      if (std::ssize(times) < rounds) chances += static_cast<double>(times.size());
    std::erase_if(found, [&](const auto& entry) {
      const auto times = std::ssize(entry.second);
      const double others = chances - (times < rounds ? static_cast<double>(times) : 0);
      const double share = others / static_cast<double>(subjects * measured_.rounds.size());
      return times < rule_.rounds ||
             static_cast<double>(subjects) * ways(rounds, times) * std::pow(share, times) > rule_.false_alarms;
    });
  }

  /// n over k.
  static double ways(std::ptrdiff_t n, std::ptrdiff_t k) {
    double product = 1;
    for (std::ptrdiff_t i = 1; i <= k; ++i) product *= static_cast<double>(n - k + i) / static_cast<double>(i);
    return product;
  }

  [[nodiscard]] Evidence evidence(const Rounds& rounds, const std::string& way = "") const {
    const auto middle = [&](auto scores) { return unscore(quantity(), median(list_of(scores))); };
    return {quantity().name + way, quantity().units, middle(rounds | std::views::keys),
        middle(rounds | std::views::values), static_cast<int>(rounds.size())};
  }

  /// All ranks of a node are the node.
  [[nodiscard]] std::vector<Culprit> merge_ranks(const Found<Port>& found) const {
    std::vector<Culprit> culprits;
    const topology::Groups& nodes = machine_.nodes;
    for (const auto& [port, rounds] : found) {
      const int node = nodes.group_of(port.rank);
      const auto slow =
          std::ranges::count_if(nodes.members(node), [&](int rank) { return found.contains({rank, Way::own}); });
      const bool whole = quantity().of_node || (slow == nodes.size(node) && slow > 1 && nodes.count() > 1);
      const Suspect who = whole ? Suspect{Suspect::node, node} : Suspect{Suspect::rank, port.rank};
      if (culprits.empty() || culprits.back().who != who) culprits.push_back({who, false, {evidence(rounds)}});
    }
    return culprits;
  }

  [[nodiscard]] std::vector<Culprit> merge_ports(const Found<Port>& found) const {
    std::vector<Culprit> culprits;
    for (const auto& [port, rounds] : found) {
      const Suspect who{quantity().partner == Partner::node ? Suspect::adapter : Suspect::rank, port.rank};
      if (culprits.empty() || culprits.back().who != who) culprits.push_back({who, false, {}});
      culprits.back().evidence.push_back(evidence(rounds, port.way == Way::sends ? ", out" : ", in"));
    }
    return culprits;
  }

  const Machine& machine_;
  const Measured& measured_;
  const Rule& rule_;
  double least_;
};

/// Returns whether a culprit accounts for what is slow at this rank: an adapter only for what passes it.
bool explains(const Culprit& culprit, int rank, const Quantity& quantity, const Machine& machine) {
  switch (culprit.who.kind) {
  case Suspect::node: return machine.nodes.group_of(rank) == culprit.who.a;
  case Suspect::rank: return rank == culprit.who.a;
  case Suspect::adapter: return rank == culprit.who.a && quantity.partner == Partner::node;
  case Suspect::link: break;
  }
  return false;
}

/// Returns whether a culprit accounts for a link that is slow at this rank. One whose kernels are slow by a tenth
/// does not send at a third of the rate, nor in rounds in which they are not slow; its latencies may be of any length.
bool explains_link(
    const Culprit& culprit, int rank, const Evidence& evidence, const Quantity& quantity, const Machine& machine) {
  if (!explains(culprit, rank, quantity, machine)) return false;
  if (culprit.who.kind == Suspect::adapter || quantity.is_latency) return true;
  double most = 1;
  int rounds = 0;
  for (const Evidence& e : culprit.evidence) {
    most = std::max(most, e.usual / e.value);  // times as slow
    rounds = std::max(rounds, e.rounds);
  }
  return evidence.usual / evidence.value <= most * most * most && evidence.rounds <= rounds;
}

/// Returns whether culprits account for this one; a node is slow together if one of its ranks is.
bool is_explained(const Culprit& c, const Quantity& quantity, const std::vector<Culprit>& all, const Machine& machine) {
  return std::ranges::any_of(all, [&](const Culprit& known) {
    if (known.who == c.who) return false;
    if (c.who.kind != Suspect::node) return explains(known, c.who.a, quantity, machine);
    return quantity.of_node && known.who.kind == Suspect::rank && machine.nodes.group_of(known.who.a) == c.who.a;
  });
}

/// Adds a culprit, or what more is known of it; the other direction of a link is the same one.
void add(std::vector<Culprit>& culprits, const Culprit& more) {
  Suspect other_way = more.who;
  if (more.who.kind == Suspect::link) std::swap(other_way.a, other_way.b);
  const auto known =
      std::ranges::find_if(culprits, [&](const Culprit& c) { return c.who == more.who || c.who == other_way; });
  if (known == culprits.end()) return culprits.push_back(more);
  known->both_ways |= more.both_ways || known->who != more.who;
  known->evidence.insert(known->evidence.end(), more.evidence.begin(), more.evidence.end());
}
}  // namespace

std::vector<Culprit> judge(const Machine& machine, const std::vector<Measured>& measured, const Rule& rule) {
  std::vector<Culprit> culprits;
  for (const bool of_node : {false, true})
    for (const Partner partner : {Partner::none, Partner::node, Partner::inside})
      for (const Measured& m : measured) {
        if (m.quantity.partner != partner || m.quantity.of_node != of_node) continue;
        for (const Culprit& found : Judge(machine, m, rule).find_parts())
          if (!is_explained(found, m.quantity, culprits, machine)) add(culprits, found);
      }
  std::vector<Culprit> links;
  for (const Measured& m : measured) {
    if (m.quantity.partner == Partner::none) continue;
    const auto explained = [&](int rank, const Evidence& evidence) {
      return std::ranges::any_of(
          culprits, [&](const Culprit& c) { return explains_link(c, rank, evidence, m.quantity, machine); });
    };
    for (const Culprit& found : Judge(machine, m, rule).find_links(explained)) add(links, found);
  }
  culprits.insert(culprits.end(), links.begin(), links.end());
  return culprits;
}

std::vector<std::vector<std::pair<int, int>>> tournament(int n) {
  if (n < 2) return {};
  const int seats = n + n % 2;  // an odd one out has a pause
  std::vector<std::vector<std::pair<int, int>>> rounds;
  for (int round = 0; round + 1 < seats; ++round) {
    std::vector<std::pair<int, int>>& pairs = rounds.emplace_back();
    // All but the last one sit in a circle, which turns by one place from round to round.
    for (int i = 0; i < seats / 2; ++i) {
      const int a = i == 0 ? seats - 1 : (round + i) % (seats - 1);
      const int b = i == 0 ? round : (round + seats - 1 - i) % (seats - 1);
      if (a < n && b < n) pairs.emplace_back(std::min(a, b), std::max(a, b));
    }
  }
  return rounds;
}
}  // namespace minitaw::screen
