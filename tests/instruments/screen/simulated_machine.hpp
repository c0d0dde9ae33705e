// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>
#include "instruments/screen/screening.hpp"

namespace minitaw::screen {
/// A fault of a simulated machine: what it does to a rate (a factor), or to a latency (seconds
/// more).
struct Fault {
  Suspect suspect;
  double factor = 1, delay = 0;
};

/// A ratio around 1: 1.5 % of noise, and now and then a moment in which something else ran.
inline double noise_of(std::mt19937& bits, std::normal_distribution<double>& normal) {
  const double usual = std::exp(0.015 * normal(bits));
  return bits() % 400 == 0 ? 0.6 * usual : usual;
}

/// Draws what a screening would measure. `noise` gives the ratio of a value to what is usual,
/// `load` the share of a rank's cores that others take.
class SimulatedMachine {
public:
  SimulatedMachine(Wiring machine,
      std::vector<Fault> faults,
      std::function<double(const Quantity&)> noise,
      std::function<double(int round, int rank)> load = nullptr)
      : machine_(std::move(machine)),
        faults_(std::move(faults)),
        noise_(std::move(noise)),
        load_(std::move(load)) {}

  [[nodiscard]] std::vector<Measurement> measure(int rounds) const {
    std::vector<Measurement> all = {{{"matrix product", "FLOP/s"}},
        {{"triad", "B/s"}},
        {{"rate inside", "B/s", Partner::inside}},
        {{"rate between", "B/s", Partner::node}},
        {{"latency", "s", Partner::node}}};
    for (int round = 0; round < rounds; ++round)
      for (Measurement& m : all)
        m.rounds.push_back(draw(m.quantity));
    if (!load_)
      return all;
    Measurement& load = all.emplace_back(Measurement{{"load", "1"}});
    for (int round = 0; round < rounds; ++round) {
      load.rounds.emplace_back();
      for (int rank = 0; rank < machine_.nodes.ranks(); ++rank)
        load.rounds.back().push_back(load_(round, rank));
    }
    return all;
  }

private:
  [[nodiscard]] std::vector<double> draw(const Quantity& q) const {
    const int partners = machine_.partners(q.partner);
    std::vector<double> values(
        machine_.nodes.ranks() * partners, std::numeric_limits<double>::quiet_NaN());
    for (int to = 0; to < machine_.nodes.ranks(); ++to)
      for (int p = 0; p < partners; ++p) {
        const int from = machine_.rank_of(q.partner, to, p);
        if (q.is_of_links() && (from < 0 || from == to))
          continue;
        if (q.partner == Partner::node &&
            machine_.driver(machine_.nodes.group_of(to), machine_.adapter_of(to)) != to)
          continue;
        double factor = 1, delay = 0;
        for (const Fault& fault : faults_)
          if (touches(fault.suspect, q, from, to)) {
            factor = std::min(factor, fault.factor);
            delay += fault.delay;
          }
        values[to * partners + p] =
            q.is_latency() ? (20e-6 + delay) / noise_(q) : 1e9 * factor * noise_(q);
      }
    return values;
  }

  /// A slow rank is slow in all that it does; an adapter slows what passes it; a link its two ends.
  [[nodiscard]] bool touches(const Suspect& suspect, const Quantity& q, int from, int to) const {
    const auto is_one = [&](int rank) { return suspect.has(rank); };
    switch (suspect.kind) {
    case Suspect::rank: return is_one(from) || is_one(to);
    case Suspect::node: return !q.is_of_links() && is_one(to);
    case Suspect::adapter: return q.partner == Partner::node && (is_one(from) || is_one(to));
    case Suspect::link: return q.is_of_links() && is_one(from) && is_one(to) && from != to;
    }
    return false;
  }

  Wiring machine_;
  std::vector<Fault> faults_;
  std::function<double(const Quantity&)> noise_;
  std::function<double(int round, int rank)> load_;
};
}  // namespace minitaw::screen
