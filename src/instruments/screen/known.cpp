// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <map>
#include <ranges>
#include <set>
#include "case/result.hpp"
#include "instruments/screen/compare.hpp"

namespace minitaw::screen {
namespace {
constexpr double none = std::numeric_limits<double>::quiet_NaN();
/// Shares of two ends of a link that differ by less than this are the same.
constexpr double alike = 0.05;

/// What is known, and the share of it that was reached; of a latency the other way round.
struct Reached {
  double value = none, known = none, share = none;

  /// Also where one of the two is nothing.
  bool is_above(const Reached& other) const { return !(share <= other.share); }
};

/// Compares a quantity with what is known of it.
class KnownComparison {
public:
  KnownComparison(const Machine& machine, const Measured& measured)
      : machine_(machine),
        measured_(measured) {}

  std::vector<Culprit> ranks() const {
    std::map<int, Reached> low;
    const int ranks = machine_.nodes.ranks();
    for (int rank = 0; rank < ranks; ++rank)
      if (const Reached reached = at(rank, 0, known(rank)); is_low(reached))
        low[rank] = reached;
    if (2 * std::ssize(low) > ranks)
      return {one_of(Part::some_ranks, low)};
    return each_of(Part::rank, low);
  }

  /// An adapter is as good as its best way, out and in. It is slow if the other end of that does
  /// better elsewhere; of two whose best way is the same one, no one can tell which of them is
  /// slow, nor whether the way is.
  std::vector<Culprit> adapters(const std::set<int>& named) const {
    const std::map<Port, Way> best = best_ways();
    std::map<int, Reached> certain, unclear;
    for (const auto& [port, way] : best) {
      const auto& [driver, sends] = port;
      if (!is_low(way.reached) || named.contains(driver))
        continue;
      const Reached& other = best.at({way.other, !sends}).reached;
      const bool other_is_better = other.share > way.reached.share * (1 + alike);
      Reached& worst = (other_is_better ? certain : unclear)[driver];
      if (worst.is_above(way.reached))
        worst = way.reached;
    }
    std::vector<Culprit> all = each_of(Part::adapter, certain);
    std::erase_if(unclear, [&](const auto& entry) { return certain.contains(entry.first); });
    if (!unclear.empty())
      all.push_back(one_of(Part::some_adapters, unclear));
    return all;
  }

private:
  using Port = std::pair<int, bool>;  ///< driver of an adapter, and whether it sends

  struct Way {
    Reached reached{};
    int other = -1;  ///< its other end
  };

  /// Of each adapter, out and in.
  std::map<Port, Way> best_ways() const {
    std::map<Port, Way> best;
    for (int to = 0; to < machine_.nodes.ranks(); ++to)
      for (int node = 0; node < machine_.nodes.count(); ++node) {
        const int from = machine_.rank_of(Partner::node, to, node);
        if (from < 0 || from == to)
          continue;
        const Reached reached = at(to, node, worse(known(from), known(to)));
        if (std::isnan(reached.share))
          continue;
        for (const auto& [port, other] : {std::pair(Port(from, true), to), {{to, false}, from}})
          if (Way& way = best[port]; reached.is_above(way.reached))
            way = {reached, other};
      }
    return best;
  }

  bool is_latency() const { return measured_.quantity.is_latency(); }

  double known(int rank) const { return measured_.known.values[rank]; }

  bool is_low(const Reached& reached) const { return reached.share < measured_.known.least; }

  double worse(double a, double b) const { return is_latency() ? std::max(a, b) : std::min(a, b); }

  /// The median over the rounds.
  Reached at(int rank, int partner, double known) const {
    std::vector<double> values;
    for (const std::vector<double>& round : measured_.rounds)
      if (const double v = round[rank * machine_.partners(measured_.quantity.partner) + partner];
          !std::isnan(v))
        values.push_back(v);
    if (values.empty() || std::isnan(known))
      return {};
    const double value = median(std::move(values));
    return {value,
        known,
        is_latency() ? (known + latency_floor) / (value + latency_floor) : value / known};
  }

  std::vector<Culprit> each_of(Part::Kind kind, const std::map<int, Reached>& low) const {
    return list_of(low, [&](const auto& entry) {
      return Culprit{{kind, {entry.first}}, false, {evidence({entry.second})}};
    });
  }

  /// No one can tell which.
  Culprit one_of(Part::Kind kind, const std::map<int, Reached>& low) const {
    return {{kind, list_of(low | std::views::keys)},
        false,
        {evidence(list_of(low | std::views::values))}};
  }

  /// Of the medians.
  Evidence evidence(const std::vector<Reached>& reached) const {
    return {.quantity = measured_.quantity,
        .value = median(list_of(reached, &Reached::value)),
        .usual = median(list_of(reached, &Reached::known)),
        .rounds = static_cast<int>(measured_.rounds.size()),
        .clear = false,
        .source = measured_.known.source};
  }

  const Machine& machine_;
  const Measured& measured_;
};
}  // namespace

std::vector<Culprit> below_known(
    const Machine& machine, const Measured& measured, const std::vector<Culprit>& named) {
  const Quantity& quantity = measured.quantity;
  if (measured.known.values.empty() || measured.rounds.empty() ||
      quantity.partner == Partner::inside)
    return {};
  std::set<int> already;
  for (const Culprit& c : named)
    for (const Evidence& e : c.evidence)
      if (e.quantity.name == quantity.name && c.part.kind != Part::link)
        already.insert(c.part.ranks.begin(), c.part.ranks.end());
  const KnownComparison comparison(machine, measured);
  if (quantity.between_nodes())
    return comparison.adapters(already);
  std::vector<Culprit> found = comparison.ranks();
  std::erase_if(found, [&](const Culprit& c) {
    return c.part.kind == Part::rank && already.contains(c.part.ranks.front());
  });
  return found;
}
}  // namespace minitaw::screen
