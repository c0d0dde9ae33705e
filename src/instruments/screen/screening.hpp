// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <algorithm>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include "topology/placement.hpp"

/// Finds what is slower than its peers. This part judges numbers and says what it has found; it
/// knows neither MPI nor devices (docs/screen.md).
namespace minitaw::screen {
/// Where nothing was measured, or is known.
inline constexpr double nothing = std::numeric_limits<double>::quiet_NaN();

/// Who a value of a rank is about: itself, or what another rank sends it.
enum class Partner {
  none,    ///< itself
  inside,  ///< each rank of its node, by its place there
  node,    ///< the rank of each node that drives the same adapter
};

struct Quantity {
  std::string name;
  std::string units;  ///< "FLOP/s" or "B/s" of rates, "s" of latencies, "1" of loads
  Partner partner = Partner::none;

  /// Else a rate, of which more is better.
  bool is_latency() const { return units == "s"; }

  /// Share of the rank's cores that others took, or a quota; judges the other quantities.
  bool is_load() const { return units == "1"; }

  /// Of what passes between two ranks; else of a rank itself.
  bool is_of_links() const { return partner != Partner::none; }

  bool between_nodes() const { return partner == Partner::node; }
};

/// Nodes, and which rank drives which adapter.
struct Wiring {
  topology::Groups nodes{{1}};
  int adapters = 1;  ///< of each node

  int adapter_of(int rank) const;
  /// The first rank of the node that uses the adapter; -1: none does.
  int driver(int node, int adapter) const;
  /// Values of a rank: 1, the ranks of the largest node, or the nodes.
  int partners(Partner partner) const;
  /// The rank that a value is about: itself, or the sender; -1: there is none.
  int rank_of(Partner kind, int rank, int partner) const;
};

using Values = std::vector<double>;  ///< NaN where nothing was measured

/// One quantity, measured in some rounds.
struct Measurement {
  Quantity quantity;
  std::vector<Values> rounds{};  ///< [round][rank * partners + partner], in the quantity's units
  double expected = nothing;  ///< of a healthy part, by a machine file; not of links inside nodes
};

/// The smallest part of the machine that explains what was found.
struct Suspect {
  enum Kind { rank, node, adapter, link } kind = rank;

  /// The ranks of a node, the driver of an adapter, both ends of a link. Several ranks, or drivers
  /// of several adapters, do not reach what is expected.
  std::vector<int> ranks{};

  bool has(int one) const { return std::ranges::count(ranks, one) > 0; }

  friend auto operator<=>(const Suspect&, const Suspect&) = default;
};

struct Evidence {
  Quantity quantity;
  std::string way{};        ///< ", out" or ", in" of an adapter, ", to rank 3" of a link
  double value = 0;         ///< median over these rounds, in the quantity's units
  double usual = 0;         ///< median of the peers' values, or what is expected
  std::int64_t rounds = 0;  ///< in which the suspect stood out
  bool expected = false;    ///< `usual` is, by a machine file
};

struct Culprit {
  Suspect suspect;
  std::vector<Evidence> evidence{};
};

struct Judgement {
  std::vector<Culprit> culprits{};
  /// By quantity, the smallest fault of a rank, node or adapter that would have been named, or of a
  /// link where these have no peers: share of the rate, or seconds more; NaN: none would.
  std::vector<double> smallest{};
  std::vector<int> loaded{};  ///< ranks with too few rounds in which others left them their cores
  double load = nothing;      ///< the largest share of a rank's cores in any round
};

/// Judges each quantity, and names what stands out in most of the rounds, at least in two:
///
/// - a rank whose own rate is below the median of all ranks; a node if that holds for all of its
///   ranks;
/// - a port (what one rank sends to all, or receives from all, through its adapter or inside its
///   node) whose upper quartile over its partners is below the median of all ports: a good port has
///   good partners;
/// - a link (sender and receiver) whose rate is below what its two ports reach with others;
/// - what is below the expected value, by the medians of all rounds.
///
/// What a culprit explains is not said again: a slow rank also sends and receives slowly. Values of
/// a round in which other programs took a rank's cores do not count; a rank with too few others is
/// named only for what no load explains. `least_loss`: share of a rate that is worth a word; 0: the
/// quantity's own.
Judgement judge(
    const Wiring& wiring, const std::vector<Measurement>& measured, double least_loss = 0);

/// "adapter of node 1 (rank 2)", "link between rank 2 (node 1) and rank 4 (node 2)"; `names` are
/// those of nodes.
std::string name_of(
    const Suspect& suspect, const Wiring& wiring, const std::vector<std::string>& names);
/// In the customary unit: "33.4 Mbit/s" (between nodes) or "4.17 MB/s" of B/s, "17 GFLOP/s",
/// "26.0 us" or "5.04 ms" of s, "3 %" of 1
std::string readable(double value, const Quantity& quantity);
/// "rate between nodes, in: 33.4 Mbit/s where 97.6 Mbit/s is usual (66 % less) in 3 rounds"
std::string text_of(const Evidence& evidence);
/// "13 % less", "24.0 us more", "none"
std::string text_of(double smallest, const Quantity& quantity);
/// Nodes that a suspect is on, ascending.
std::vector<int> nodes_of(const Suspect& suspect, const Wiring& wiring);

/// All that is known of a machine.
struct Screening {
  const Wiring& wiring;
  std::vector<std::string> nodes{};     ///< their names
  std::vector<Measurement> measured{};  ///< by quantity
  Judgement judgement{};
  std::string load_by = "other programs";  ///< what takes cores
};

/// What people read first, and the exit code.
struct Verdict {
  std::string text;  ///< "FOUND: 1 culprit in 3 rounds"
  int code = 0;      ///< 0: clean, 1: a culprit, 3: others took the cores
};

Verdict verdict_of(const Screening& screening);
/// Of each quantity: lowest, median and highest of all rounds, the smallest loss that would have
/// been named, and what is expected.
std::string table_text(const Screening& screening);
/// The culprits with their evidence, and the verdict. `ranks`: whose devices are named too.
std::string findings_text(const Screening& screening, std::span<const topology::RankPlace> ranks);
nlohmann::ordered_json to_json(const Screening& screening);
}  // namespace minitaw::screen
