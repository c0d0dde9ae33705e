// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <utility>
#include "topology/groups.hpp"

/// Finds what is slower than its peers. This part judges numbers, and knows neither MPI nor devices (docs/screen.md).
namespace minitaw::screen {
/// Who a value of a rank is about: itself, or what another rank sends it.
enum class Partner {
  none,    ///< itself
  inside,  ///< each rank of its node, by its place there
  node,    ///< the rank of each node that drives the same adapter
};

struct Quantity {
  std::string name, units;
  Partner partner = Partner::none;
  double least = 0.1;       ///< share below the peers that is worth a word
  bool is_latency = false;  ///< s; else a rate, of which more is better
  bool of_node = false;     ///< the ranks of a node measure it together, so that none of them can be told
};

/// Time added to a latency before it is compared: what is shorter makes no difference to anybody, s.
inline constexpr double latency_floor = 10e-6;

struct Machine {
  topology::Groups nodes{{1}};
  int adapters = 1;

  [[nodiscard]] int adapter_of(int rank) const;
  /// The first rank of the node that uses the adapter; -1: none does.
  [[nodiscard]] int driver(int node, int adapter) const;
  /// Values of a rank: 1, the ranks of the largest node, or the nodes.
  [[nodiscard]] int partners(Partner partner) const;
  /// The rank that a value is about: itself, or the sender; -1: there is none.
  [[nodiscard]] int rank_behind(Partner kind, int rank, int partner) const;
};

/// One quantity, measured in some rounds: [round][rank][partner], NaN where nothing was.
struct Measured {
  Quantity quantity;
  std::vector<std::vector<double>> rounds{};
};

/// Names the smallest part of the machine that explains what was found.
struct Suspect {
  enum Kind { rank, node, adapter, link } kind = rank;
  int a = -1, b = -1;  ///< rank; node; driver of an adapter; sender and receiver of a link
  friend auto operator<=>(const Suspect&, const Suspect&) = default;
};

struct Evidence {
  std::string quantity, units;
  double value = 0, usual = 0;  ///< medians over these rounds: of the suspect, of its peers
  int rounds = 0;               ///< in which it stood out
};

struct Culprit {
  Suspect who;
  bool both_ways = false;  ///< of a link
  std::vector<Evidence> evidence;
};

/// Least differences are the quantities', more where peers differ by chance; half a rate, ten latencies always count.
struct Rule {
  double sigmas = 6;  ///< standard deviations, estimated from the median absolute deviation
  double least = 0;   ///< replaces that of the rates; 0: does not
  int rounds = 2;     ///< in which a suspect must stand out
  /// Of each quantity, expected: the more subjects, the more rounds each must stand out in.
  double false_alarms = 0.05;
};

/// Judges each quantity in each round, and names what stands out in `rule.rounds` of them:
///
/// - a rank whose own rate is below the median of all ranks; a node if that holds for all of its ranks;
/// - a port (what one rank sends to all, or receives from all, through its adapter or inside its node) whose
///   upper quartile over its partners is below the median of all ports: a good port has good partners;
/// - a link (sender and receiver) whose rate is below what its two ports reach with others.
///
/// What a culprit explains is not said again: a slow rank also sends and receives slowly.
[[nodiscard]] std::vector<Culprit> judge(
    const Machine& machine, const std::vector<Measured>& measured, const Rule& rule = {});
/// "adapter of node 1 (rank 2)", "link from rank 2 (node 1) to rank 4 (node 2)"; `names` are those of nodes.
[[nodiscard]] std::string name_of(
    const Suspect& who, const Machine& machine, const std::vector<std::string>& names, bool both_ways = false);
/// "33.4 Mbit/s" of B/s, "17 GFLOP/s", "26.0 us" of s
[[nodiscard]] std::string readable(double value, const std::string& units);
/// "rate between nodes, in: 33.4 Mbit/s where 97.6 Mbit/s is usual (66 % less) in 3 rounds"
[[nodiscard]] std::string text_of(const Evidence& evidence);
/// Nodes that a culprit is on, ascending.
[[nodiscard]] std::vector<int> nodes_of(const Culprit& culprit, const Machine& machine);
/// Rounds of disjoint pairs in which each two of 0 .. n - 1 meet once (the circle method): n - 1, or n if n is odd.
[[nodiscard]] std::vector<std::vector<std::pair<int, int>>> tournament(int n);
}  // namespace minitaw::screen
