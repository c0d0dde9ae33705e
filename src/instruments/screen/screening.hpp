// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <limits>
#include <utility>
#include "topology/groups.hpp"

/// Finds what is slower than its peers. This part judges numbers, and knows neither MPI nor devices
/// (docs/screen.md).
namespace minitaw::screen {
/// Who a value of a rank is about: itself, or what another rank sends it.
enum class Partner {
  none,    ///< itself
  group,   ///< its node: all ranks there measure it together, so that none of them can be told
  inside,  ///< each rank of its node, by its place there
  node,    ///< the rank of each node that drives the same adapter
};

struct Quantity {
  std::string name;
  std::string units;  ///< "FLOP/s" or "B/s" of rates, "s" of latencies, "1" of loads
  Partner partner = Partner::none;
  double least_loss = 0.1;  ///< share below the peers that is worth a word

  /// Else a rate, of which more is better.
  [[nodiscard]] bool is_latency() const { return units == "s"; }

  /// Share of the rank's cores that other programs took; judges the other quantities.
  [[nodiscard]] bool is_load() const { return units == "1"; }

  /// Of what passes between two ranks; else of a rank or a node itself.
  [[nodiscard]] bool is_of_links() const {
    return partner == Partner::inside || partner == Partner::node;
  }

  [[nodiscard]] bool between_nodes() const { return partner == Partner::node; }
};

/// Time added to a latency before it is compared: what is shorter makes no difference, s.
inline constexpr double latency_floor = 10e-6;

struct Machine {
  topology::Groups nodes{{1}};
  int adapters = 1;  ///< of each node

  [[nodiscard]] int adapter_of(int rank) const;
  /// The first rank of the node that uses the adapter; -1: none does.
  [[nodiscard]] int driver(int node, int adapter) const;
  /// Values of a rank: 1, the ranks of the largest node, or the nodes.
  [[nodiscard]] int partners(Partner partner) const;
  /// The rank that a value is about: itself, or the sender; -1: there is none.
  [[nodiscard]] int rank_of(Partner kind, int rank, int partner) const;
};

/// What is known of a quantity without any peer: by the hardware, or by a machine file.
struct Known {
  std::vector<double> values{};  ///< by rank, in the quantity's units; NaN: not known
  double least = 1;              ///< share of it that a healthy part reaches
  std::string source{};          ///< "shaped links"

  /// NaN: not known of any rank.
  [[nodiscard]] double median_value() const;
};

/// One quantity, measured in some rounds.
struct Measured {
  Quantity quantity;
  /// [round][rank * partners + partner], in the quantity's units; NaN where nothing was measured.
  std::vector<std::vector<double>> rounds{};
  Known known{};
};

/// The smallest part of the machine that explains what was found.
struct Part {
  /// The last ones: at least one of several, and no one can tell which.
  enum Kind { rank, node, adapter, link, some_ranks, some_adapters } kind = rank;

  /// That it consists of: those of a node, the driver of an adapter, sender and receiver of a link.
  std::vector<int> ranks{};

  [[nodiscard]] bool is_adapter() const { return kind == adapter || kind == some_adapters; }

  friend auto operator<=>(const Part&, const Part&) = default;
};

struct Evidence {
  Quantity quantity;
  std::string way{};     ///< ", out" or ", in" of an adapter
  double value = 0;      ///< median over these rounds, in the quantity's units
  double usual = 0;      ///< median of the peers' values; with a `source`, what is known
  int rounds = 0;        ///< in which the part stood out
  bool clear = true;     ///< beside what a load does, too
  std::string source{};  ///< of `usual`, where that is known without peers
};

struct Culprit {
  Part part;
  bool both_ways = false;  ///< of a link
  std::vector<Evidence> evidence{};
};

/// When a part is named, as far as the user decides it.
struct Rule {
  double least_loss = 0;  ///< share of a rate, instead of the quantity's own; 0: the quantity's
  int rounds = 2;         ///< in which a culprit must stand out, at least
};

/// The smallest fault of a quantity that would have been named: share of the rate, or seconds more;
/// NaN: none would.
struct Smallest {
  double part = std::numeric_limits<double>::quiet_NaN();  ///< of a rank, node or adapter
  double link = part;                                      ///< of a link
};

struct Judgement {
  std::vector<Culprit> culprits{};
  std::vector<Culprit> doubtful{};   ///< stand out, but others took the cores
  std::vector<Smallest> smallest{};  ///< by quantity
  std::vector<int> loaded{};  ///< ranks with too few rounds in which others left them their cores
  double load = std::numeric_limits<double>::quiet_NaN();  ///< the largest share of a rank's cores
                                                           ///< in any round
};

/// Judges each quantity in each round, and names what stands out in `rule.rounds` of them:
///
/// - a rank whose own rate is below the median of all ranks; a node if that holds for all of its
///   ranks;
/// - a port (what one rank sends to all, or receives from all, through its adapter or inside its
///   node) whose upper quartile over its partners is below the median of all ports: a good port has
///   good partners;
/// - a link (sender and receiver) whose rate is below what its two ports reach with others;
/// - what is below `Known`, by the medians of all rounds.
///
/// What a culprit explains is not said again: a slow rank also sends and receives slowly. Values of
/// a round in which other programs took a rank's cores do not count; a rank with too few others is
/// named for what is clear only.
[[nodiscard]] Judgement judge(
    const Machine& machine, const std::vector<Measured>& measured, const Rule& rule = {});

// Words.

/// "adapter of node 1 (rank 2)", "link from rank 2 (node 1) to rank 4 (node 2)"; `names` are those
/// of nodes.
[[nodiscard]] std::string name_of(
    const Culprit& culprit, const Machine& machine, const std::vector<std::string>& names);
/// In the customary unit: "33.4 Mbit/s" (between nodes) or "4.17 MB/s" of B/s, "17 GFLOP/s",
/// "26.0 us" or "5.04 ms" of s, "3 %" of 1
[[nodiscard]] std::string readable(double value, const Quantity& quantity);
/// "rate between nodes, in: 33.4 Mbit/s where 97.6 Mbit/s is usual (66 % less) in 3 rounds"
[[nodiscard]] std::string text_of(const Evidence& evidence);
/// "13 % less", "24.0 us more", "none"
[[nodiscard]] std::string text_of(double smallest, const Quantity& quantity);

/// What people read below the table: each is one sentence or a few.
struct Words {
  std::string verdict;  ///< "CLEAN: nothing stands out in 3 rounds"
  std::string judged, sure, not_seen, next;
  /// Exit code. 0: clean, 1: a culprit, or rounds are missing, 3: other programs took the cores.
  int code = 0;
};

[[nodiscard]] Words words_of(const Machine& machine,
    const std::vector<Measured>& measured,
    const Judgement& judgement,
    int rounds,
    int wanted);
/// Nodes that a part is on, ascending.
[[nodiscard]] std::vector<int> nodes_of(const Part& part, const Machine& machine);
/// Steps of disjoint pairs in which each two of 0 .. n - 1 meet once (the circle method): n - 1, or
/// n if n is odd.
[[nodiscard]] std::vector<std::vector<std::pair<int, int>>> tournament(int n);
}  // namespace minitaw::screen
