// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include "case/result.hpp"
#include "instruments/screen/screening.hpp"

namespace minitaw::screen {
namespace {
constexpr double none = std::numeric_limits<double>::quiet_NaN();
constexpr double alike = 0.05;  // shares of two ends that differ by less are the same

/// What is known, and the share of it that was reached; of a latency the other way round.
struct Reached {
  double value = none, known = none, share = none;
};

/// Compares a quantity with what is known of it.
class Comparison {
public:
  Comparison(const Machine& machine, const Measured& measured)
      : machine_(machine),
        measured_(measured) {}

  [[nodiscard]] std::vector<Culprit> ranks() const {
    std::vector<Culprit> low;
    const int ranks = machine_.nodes.ranks();
    for (int rank = 0; rank < ranks; ++rank)
      if (const Reached reached = at(rank, 0, known(rank)); is_low(reached.share))
        low.push_back({{Suspect::rank, rank}, false, {evidence({reached})}});
    if (2 * std::ssize(low) <= ranks)
      return low;
    Culprit all{{Suspect::some_ranks, low.front().who.a}};
    for (const Culprit& c : low)
      all.among.push_back(c.who.a);
    all.evidence = {
        evidence(list_of(all.among, [&](int rank) { return at(rank, 0, known(rank)); }))};
    return {all};
  }

  /// An adapter is as good as its best way, out and in. It is slow if the other end of that does
  /// better elsewhere; of two whose best way is the same one, nobody can tell which of them is
  /// slow, nor whether the way is.
  [[nodiscard]] std::vector<Culprit> adapters(const std::set<int>& named) const {
    std::map<std::pair<int, bool>, std::pair<Reached, int>>
        best;  // of a driver and whether it sends; its other end
    for (int to = 0; to < machine_.nodes.ranks(); ++to)
      for (int node = 0; node < machine_.nodes.count(); ++node)
        if (const int from = machine_.rank_behind(Partner::node, to, node); from >= 0 && from != to)
          if (const Reached r = at(to, node, worse(known(from), known(to))); !std::isnan(r.share))
            for (const bool sends : {true, false}) {
              auto& [reached, other] = best[{sends ? from : to, sends}];
              if (!(r.share <= reached.share))
                std::tie(reached, other) = std::tuple(r, sends ? to : from);
            }
    std::map<int, Reached> certain, unclear;
    for (const auto& [port, reach] : best) {
      const auto& [driver, sends] = port;
      const auto& [reached, other] = reach;
      if (!is_low(reached.share) || named.contains(driver))
        continue;
      const bool other_is_better =
          best.at({other, !sends}).first.share > reached.share * (1 + alike);
      Reached& kept = (other_is_better ? certain : unclear)[driver];
      if (!(kept.share <= reached.share))
        kept = reached;
    }
    std::vector<Culprit> all;
    for (const auto& [driver, reached] : certain)
      all.push_back({{Suspect::adapter, driver}, false, {evidence({reached})}});
    std::erase_if(unclear, [&](const auto& entry) { return certain.contains(entry.first); });
    if (unclear.empty())
      return all;
    Culprit some{{Suspect::some_adapters, unclear.begin()->first}};
    std::vector<Reached> values;
    for (const auto& [driver, reached] : unclear) {
      some.among.push_back(driver);
      values.push_back(reached);
    }
    some.evidence = {evidence(values)};
    all.push_back(some);
    return all;
  }

private:
  [[nodiscard]] bool is_latency() const { return measured_.quantity.is_latency; }

  [[nodiscard]] double known(int rank) const { return measured_.known.values[rank]; }

  [[nodiscard]] bool is_low(double share) const { return share < measured_.known.least; }

  [[nodiscard]] double worse(double a, double b) const {
    return is_latency() ? std::max(a, b) : std::min(a, b);
  }

  /// The median over the rounds.
  [[nodiscard]] Reached at(int rank, int partner, double known) const {
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

  /// Of the medians.
  [[nodiscard]] Evidence evidence(const std::vector<Reached>& reached) const {
    return {measured_.quantity,
        "",
        median(list_of(reached, &Reached::value)),
        median(list_of(reached, &Reached::known)),
        static_cast<int>(measured_.rounds.size()),
        false,
        measured_.known.source};
  }

  const Machine& machine_;
  const Measured& measured_;
};
}  // namespace

std::vector<Culprit> below_known(
    const Machine& machine, const Measured& measured, const std::vector<Culprit>& named) {
  const Partner partner = measured.quantity.partner;
  if (measured.known.values.empty() || measured.rounds.empty() || partner == Partner::inside)
    return {};
  std::set<int> ranks, adapters;
  for (const Culprit& c : named)
    for (const Evidence& e : c.evidence) {
      if (e.quantity.name != measured.quantity.name)
        continue;
      if (c.who.kind == Suspect::rank)
        ranks.insert(c.who.a);
      if (c.who.kind == Suspect::adapter)
        adapters.insert(c.who.a);
      if (c.who.kind == Suspect::node)
        for (const int rank : machine.nodes.members(c.who.a))
          ranks.insert(rank);
    }
  const Comparison comparison(machine, measured);
  if (partner == Partner::node)
    return comparison.adapters(adapters);
  std::vector<Culprit> found = comparison.ranks();
  std::erase_if(found,
      [&](const Culprit& c) { return c.who.kind == Suspect::rank && ranks.contains(c.who.a); });
  return found;
}
}  // namespace minitaw::screen
