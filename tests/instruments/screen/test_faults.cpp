// SPDX-License-Identifier: BSD-3-Clause
// Faults of a simulated machine.
#include <cmath>
#include <gtest/gtest.h>
#include <random>
#include "names.hpp"
#include "this_run.hpp"

namespace minitaw::screen {
namespace {
/// What a fault does to a rate (a factor), or to a latency (seconds more).
struct Fault {
  Suspect suspect;
  double factor = 1, delay = 0;

  /// A slow rank is slow in all that it does; an adapter slows what passes it; a link its two ends.
  [[nodiscard]] bool touches(const Quantity& q, int from, int to) const {
    const bool any = suspect.has(from) || suspect.has(to);
    switch (suspect.kind) {
    case Suspect::rank: return any;
    case Suspect::node: return any && !q.is_of_links();
    case Suspect::adapter: return any && q.between_nodes();
    case Suspect::link: return from != to && suspect.has(from) && suspect.has(to);
    }
    return false;
  }
};

using Faults = std::vector<Fault>;

struct Machine {
  Wiring wiring;
  Faults faults;
  double deviation = 0;  ///< of values; beside it, one of 400 is at 60 %
  double load = 0;       ///< share of all cores that others take
  double expected = nothing;
};

/// Who is named. Healthy rates are 1e9, latencies 20 us.
std::string screened(const Machine& machine, int rounds, std::mt19937& bits) {
  const Wiring& wiring = machine.wiring;
  std::vector<Measurement> all = {{{"matrix product", "FLOP/s"}},
      {{"rate inside", "B/s", Partner::inside}},
      {{"rate between", "B/s", Partner::node}, {}, machine.expected},
      {{"latency", "s", Partner::node}},
      {{"load", "1"}}};
  std::normal_distribution<double> normal;
  const auto noise = [&] {
    const double usual = std::exp(machine.deviation * normal(bits));
    return machine.deviation > 0 && bits() % 400 == 0 ? 0.6 * usual : usual;
  };
  for (auto& [q, values, expected] : all) {
    const int partners = wiring.partners(q.partner), size = wiring.nodes.ranks() * partners;
    values.assign(rounds, std::vector<double>(size, q.is_load() ? machine.load : nothing));
    for (int i = 0; i < rounds * size && !q.is_load(); ++i) {
      const int to = i % size / partners, from = wiring.rank_of(q.partner, to, i % partners);
      const int driver = wiring.driver(wiring.nodes.group_of(to), wiring.adapter_of(to));
      if (q.is_of_links() && (from < 0 || from == to || (q.between_nodes() && driver != to)))
        continue;
      double factor = 1, delay = 0;
      for (const Fault& fault : machine.faults)
        if (fault.touches(q, from, to)) {
          factor = std::min(factor, fault.factor);
          delay += fault.delay;
        }
      values[i / size][i % size] =
          q.is_latency() ? (20e-6 + delay) / noise() : 1e9 * factor * noise();
    }
  }
  return names(judge(wiring, all));
}

Fault rank(int one, double factor) {
  return {{Suspect::rank, {one}}, factor};
}

Fault adapter(int driver, double factor, double delay = 0) {
  return {{Suspect::adapter, {driver}}, factor, delay};
}

Fault link(int one, int other, double factor, double delay = 0) {
  return {{Suspect::link, {one, other}}, factor, delay};
}

Fault node(std::vector<int> ranks, double factor) {
  return {{Suspect::node, std::move(ranks)}, factor};
}

/// Ranks 0, 3, 5 and 2, 4, 7 drive an adapter each.
const Wiring odd{topology::Groups({3, 2, 4}), 2}, six{topology::Groups(std::vector(6, 1)), 1},
    three{topology::Groups({2, 2, 2}), 1}, four{topology::Groups({2, 2, 2, 2}), 1};

/// A tenth, a fifth inside nodes, and twice a latency after 10 us more: 60 instead of 30.
TEST(Judge, NamesFaultsFromTheSmallestOnThatCounts) {
  std::mt19937 bits;
  const std::vector<std::tuple<Wiring, Faults, std::string>> all = {{odd, {}, ""},
      {odd, {rank(1, 0.89)}, "rank 1"},
      {odd, {rank(1, 0.91)}, ""},
      {odd, {rank(0, 0.8), rank(2, 0.8)}, "rank 0, rank 2"},
      {odd, {node({3, 4}, 0.89)}, "node 3+4"},
      {odd, {node({3, 4}, 0.91)}, ""},
      {odd, {adapter(7, 0.89)}, "adapter 7"},
      {odd, {adapter(7, 0.91)}, ""},
      {odd, {adapter(5, 1, 31e-6)}, "adapter 5"},
      {odd, {adapter(5, 1, 29e-6)}, ""},
      {odd, {link(0, 3, 0.89)}, "link 0+3"},
      {odd, {link(0, 3, 0.91)}, ""},
      {odd, {link(2, 4, 0.5, 31e-6)}, "link 2+4"},
      {odd, {link(5, 8, 0.79)}, "link 5+8"},
      {odd, {link(5, 8, 0.81)}, ""},
      {odd, {link(5, 6, 0.7), link(5, 7, 0.7), link(5, 8, 0.7)}, "rank 5"},
      // An adapter is as good as a quarter of its partners, a link as what its ends reach.
      {six, {link(1, 3, 0.4), link(1, 4, 0.4), link(1, 5, 0.4)}, "link 1+3, link 1+4, link 1+5"},
      {six, {link(1, 2, 0.4), link(1, 3, 0.4), link(1, 4, 0.4), link(1, 5, 0.4)}, "adapter 1"},
      {odd, {adapter(3, 0.92), link(3, 5, 0.85)}, ""},
      {odd, {adapter(3, 0.92), link(3, 5, 0.8)}, "link 3+5"},
      // What explains what: a rank at most the cube of its loss, and no latency.
      {odd, {rank(4, 0.8), adapter(4, 0.52)}, "rank 4"},
      {odd, {rank(4, 0.8), adapter(4, 0.5)}, "rank 4, adapter 4"},
      {odd, {rank(4, 0.6), adapter(4, 1, 5e-3)}, "rank 4, adapter 4"},
      {odd, {node({5, 6, 7, 8}, 0.5), adapter(5, 0.5)}, "node 5+6+7+8"},
      {odd, {adapter(3, 0.5), link(3, 4, 0.4)}, "adapter 3, link 3+4"},
      {odd, {adapter(2, 0.5), adapter(3, 1, 5e-3)}, "adapter 2, adapter 3"}};
  for (const auto& [wiring, faults, expected] : all)
    EXPECT_EQ(screened({wiring, faults}, 2, bits), expected) << expected;
}

/// Times of a hundred.
TEST(Judge, NamesFaultsBesideNoiseAndLoad) {
  std::mt19937 bits(test::seed());
  const std::vector<std::tuple<Machine, std::string, int>> all = {{{odd, {}, 0.015}, "", 95},
      {{odd, {rank(6, 0.7)}, 0.015}, "rank 6", 95},
      {{odd, {node({0, 1, 2}, 0.7)}, 0.015}, "node 0+1+2", 95},
      {{odd, {adapter(4, 0.4)}, 0.015}, "adapter 4", 95},
      {{odd, {adapter(4, 1, 5e-3)}, 0.015}, "adapter 4", 95},
      {{odd, {link(3, 5, 0.4)}, 0.015}, "link 3+5", 95},
      // The better one of two of three needs a rate that is expected, of four it does not.
      {{three, {adapter(2, 0.7), adapter(4, 0.55)}, 0.01}, "adapter 4", 95},
      {{three, {adapter(2, 0.7), adapter(4, 0.55)}, 0.01, 0, 1e9}, "adapter 4, adapter 0+2", 95},
      {{four, {adapter(2, 0.7), adapter(4, 0.55)}, 0.01}, "adapter 2, adapter 4", 95},
      // Others take most of the cores; what repeats all the same is no doing of theirs.
      {{three, {}, 0.6, 0.8, 1e9}, "", 100},
      {{three, {adapter(2, 0.6)}, 0.01, 0.8}, "adapter 2", 95},
      {{three, {rank(1, 0.3)}, 0.12, 0.8}, "", 80}};
  for (const auto& [machine, expected, least] : all) {
    int found = 0;
    for (int i = 0; i < 100; ++i)
      found += screened(machine, 3, bits) == expected ? 1 : 0;
    EXPECT_GE(found, least) << expected;
  }
}
}  // namespace
}  // namespace minitaw::screen
