// SPDX-License-Identifier: BSD-3-Clause
// Faults of a simulated machine, in three rounds.
#include <cmath>
#include <gtest/gtest.h>
#include <random>
#include "names.hpp"
#include "this_run.hpp"

namespace minitaw::screen {
namespace {
/// What is left of a rate, and what is added to a latency.
struct Fault {
  Suspect suspect;
  int percent = 100, microseconds = 0;

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

struct Machine {
  Wiring wiring;
  std::vector<Fault> faults;
  double load = 0;  ///< share of all cores that others take
  double expected = nothing;
};

/// Who is named. Healthy rates are 1e9, latencies 20 us.
std::string screened(const Machine& machine, const std::function<double()>& noise) {
  const Wiring& wiring = machine.wiring;
  std::vector<Measurement> all = {{{"matrix product", "FLOP/s"}},
      {{"rate inside", "B/s", Partner::inside}},
      {{"rate between", "B/s", Partner::node}, {}, machine.expected},
      {{"latency", "s", Partner::node}},
      {{"load", "1"}, std::vector(3, Values(wiring.nodes.ranks(), machine.load))}};
  for (auto& [q, rounds, expected] : all) {
    const int partners = wiring.partners(q.partner);
    rounds.resize(3, Values(wiring.nodes.ranks() * partners, nothing));
    for (Values& values : rounds)
      for (int i = 0; !q.is_load() && i < std::ssize(values); ++i) {
        const int to = i / partners, from = wiring.rank_of(q.partner, to, i % partners);
        const int driver = wiring.driver(wiring.nodes.group_of(to), wiring.adapter_of(to));
        if (q.is_of_links() && (from < 0 || from == to || (q.between_nodes() && driver != to)))
          continue;
        double rate = 1e9, latency = 20e-6;
        for (const Fault& fault : machine.faults)
          if (fault.touches(q, from, to)) {
            rate = std::min(rate, 1e7 * fault.percent);
            latency += 1e-6 * fault.microseconds;
          }
        values[i] = q.is_latency() ? latency / noise() : rate * noise();
      }
  }
  return names(judge(wiring, all));
}

Fault rank(int one, int percent) {
  return {{Suspect::rank, {one}}, percent};
}

Fault adapter(int driver, int percent, int microseconds = 0) {
  return {{Suspect::adapter, {driver}}, percent, microseconds};
}

Fault link(int one, int other, int percent, int microseconds = 0) {
  return {{Suspect::link, {one, other}}, percent, microseconds};
}

Fault node(std::vector<int> ranks, int percent) {
  return {{Suspect::node, std::move(ranks)}, percent};
}

/// Ranks 0, 3, 5 and 2, 4, 7 drive an adapter each.
const Wiring odd{topology::Groups({3, 2, 4}), 2}, six{topology::Groups(std::vector(6, 1)), 1},
    three{topology::Groups({2, 2, 2}), 1}, four{topology::Groups({2, 2, 2, 2}), 1};

/// A tenth, a fifth inside nodes, and twice a latency after 10 us more: 60 instead of 30.
TEST(Judge, NamesFaultsFromTheSmallestOnThatCounts) {
  for (const auto& [machine, expected] :
      Rows<Machine, std::string>{{{odd, {rank(1, 89)}}, "rank 1"},
          {{odd, {rank(1, 91)}}, ""},
          {{odd, {node({3, 4}, 89)}}, "node 3+4"},
          {{odd, {adapter(7, 89)}}, "adapter 7"},
          {{odd, {adapter(5, 100, 31)}}, "adapter 5"},
          {{odd, {adapter(5, 100, 29)}}, ""},
          {{odd, {link(0, 3, 89)}}, "link 0+3"},
          {{odd, {link(2, 4, 50, 31)}}, "link 2+4"},
          {{odd, {link(5, 8, 79)}}, "link 5+8"},
          {{odd, {link(5, 8, 81)}}, ""},
          {{odd, {link(5, 6, 70), link(5, 7, 70), link(5, 8, 70)}}, "rank 5"},
          // An adapter is as good as a quarter of its partners, a link as what its ends reach.
          {{six, {link(1, 3, 40), link(1, 4, 40), link(1, 5, 40)}}, "link 1+3, link 1+4, link 1+5"},
          {{six, {link(1, 2, 40), link(1, 3, 40), link(1, 4, 40), link(1, 5, 40)}}, "adapter 1"},
          {{odd, {adapter(3, 92), link(3, 5, 85)}}, ""},
          {{odd, {adapter(3, 92), link(3, 5, 80)}}, "link 3+5"},
          // What explains what: a rank at most the cube of its loss, and no latency.
          {{odd, {rank(4, 80), adapter(4, 52)}}, "rank 4"},
          {{odd, {rank(4, 80), adapter(4, 50)}}, "rank 4, adapter 4"},
          {{odd, {rank(4, 60), adapter(4, 100, 5000)}}, "rank 4, adapter 4"},
          {{odd, {node({5, 6, 7, 8}, 50), adapter(5, 50)}}, "node 5+6+7+8"},
          {{odd, {adapter(3, 50), link(3, 4, 40)}}, "adapter 3, link 3+4"},
          // The better one of two of three needs a rate that is expected, of four it does not.
          {{three, {adapter(2, 70), adapter(4, 55)}}, "adapter 4"},
          {{three, {adapter(2, 70), adapter(4, 55)}, 0, 1e9}, "adapter 4, adapter 0+2"},
          {{four, {adapter(2, 70), adapter(4, 55)}}, "adapter 2, adapter 4"},
          // Others take most of the cores.
          {{three, {}, 0.8, 2e9}, ""},
          {{three, {adapter(2, 60)}, 0.8}, "adapter 2"}})
    EXPECT_EQ(screened(machine, [] { return 1; }), expected);
}

/// In 95 of a hundred screenings. One value of 400 is at 60 %.
TEST(Judge, NamesFaultsBesideNoise) {
  std::mt19937 bits(test::seed());
  std::normal_distribution<double> normal;
  const auto noise = [&] { return std::exp(0.015 * normal(bits)) * (bits() % 400 == 0 ? 0.6 : 1); };
  for (const auto& [fault, expected] : Rows<Fault, std::string>{{rank(6, 100), ""},
           {rank(6, 70), "rank 6"},
           {adapter(4, 100, 5000), "adapter 4"},
           {link(3, 5, 40), "link 3+5"}}) {
    int found = 0;
    for (int i = 0; i < 100; ++i)
      found += screened({odd, {fault}}, noise) == expected ? 1 : 0;
    EXPECT_GE(found, 95) << expected;
  }
}
}  // namespace
}  // namespace minitaw::screen
