// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include "instruments/screen/compare.hpp"

namespace minitaw::screen {
namespace {
/// Share of its cores that others may take of a rank that is judged: docs/screen.md.
constexpr double most_load = 0.1;

/// Returns whether a culprit accounts for what is slow at this rank: an adapter for all that passes
/// it. A rank or node whose kernels are slow by a tenth does not send at a third of the rate, nor
/// in rounds in which they are not slow. Slow kernels make no latency: that is the fastest of many
/// round trips, each of which needs no more than a moment of a core.
bool explains(const Culprit& culprit, int rank, const Evidence& evidence) {
  const Part& part = culprit.part;
  if (part.kind == Part::some_ranks || part.kind == Part::link ||
      std::ranges::count(part.ranks, rank) == 0)
    return false;
  if (part.is_adapter())
    return evidence.quantity.between_nodes();
  if (evidence.quantity.is_latency())
    return false;
  double times_slower = 1;
  int rounds = 0;
  for (const Evidence& e : culprit.evidence) {
    times_slower = std::max(times_slower, e.usual / e.value);
    rounds = std::max(rounds, e.rounds);
  }
  // docs/screen.md: "at most the cube of its own loss".
  return evidence.usual / evidence.value <= std::pow(times_slower, 3) && evidence.rounds <= rounds;
}

/// Adds a culprit, or what more is known of it; the other direction of a link is the same one.
void add(std::vector<Culprit>& culprits, const Culprit& more) {
  if (more.evidence.empty())
    return;
  Part other_way = more.part;
  if (more.part.kind == Part::link)
    std::ranges::reverse(other_way.ranks);
  const auto known = std::ranges::find_if(
      culprits, [&](const Culprit& c) { return c.part == more.part || c.part == other_way; });
  if (known == culprits.end())
    return culprits.push_back(more);
  known->both_ways |= more.both_ways || known->part != more.part;
  known->evidence.insert(known->evidence.end(), more.evidence.begin(), more.evidence.end());
}

/// Makes one judgement.
class Judge {
public:
  Judge(const Machine& machine, const std::vector<Measured>& measured, const Rule& rule)
      : machine_(machine),
        rule_(rule),
        loaded_(machine.nodes.ranks()) {
    for (const Measured& m : measured)
      if (m.quantity.is_load())
        loads_ = m.rounds;
    find_loaded();
    for (const Measured& m : measured)
      measured_.push_back(without_loaded(m));
    judgement_.smallest.resize(measured.size());
  }

  Judgement judge() {
    // Those first that explain what the others measure too.
    for (const Partner partner : {Partner::none, Partner::node, Partner::inside, Partner::group})
      each(partner, [&](const Measured& m, Smallest& smallest) {
        Slower found = slower_parts(machine_, m, rule_, loaded_);
        smallest.part = found.smallest;
        add_unexplained(std::move(found.culprits));
      });
    for (const Measured& m : measured_)
      add_unexplained(below_known(machine_, m, judgement_.culprits));
    add_links();
    divide();
    return std::move(judgement_);
  }

private:
  bool has_load(std::size_t round, int rank) const { return loads_[round][rank] > most_load; }

  /// Ranks that are left with fewer rounds than a verdict needs.
  void find_loaded() {
    for (std::size_t rank = 0; rank < loaded_.size() && !loads_.empty(); ++rank) {
      int left = 0;
      for (std::size_t round = 0; round < loads_.size(); ++round) {
        judgement_.load = std::fmax(judgement_.load, loads_[round][rank]);
        left += has_load(round, static_cast<int>(rank)) ? 0 : 1;
      }
      loaded_[rank] = left < rule_.rounds;
    }
    // Those that are left have few peers.
    if (2 * std::ranges::count(loaded_, true) > std::ssize(loaded_))
      loaded_.assign(loaded_.size(), true);
    for (int rank = 0; rank < std::ssize(loaded_); ++rank)
      if (loaded_[rank])
        judgement_.loaded.push_back(rank);
  }

  /// Takes out what was measured while others had the cores of a rank which has other rounds.
  Measured without_loaded(Measured measured) const {
    const Partner partner = measured.quantity.partner;
    const int partners = machine_.partners(partner);
    for (std::size_t round = 0; round < std::min(loads_.size(), measured.rounds.size()); ++round) {
      const auto disturbed = [&](int rank) {
        return rank >= 0 && !loaded_[rank] && has_load(round, rank);
      };
      for (int rank = 0; rank < machine_.nodes.ranks(); ++rank)
        for (int p = 0; p < partners; ++p)
          if (disturbed(rank) || disturbed(machine_.rank_of(partner, rank, p)))
            measured.rounds[round][rank * partners + p] = std::nan("");
    }
    return measured;
  }

  template <class Work>
  void each(Partner partner, const Work& work) {
    for (std::size_t q = 0; q < measured_.size(); ++q)
      if (const Quantity& is = measured_[q].quantity; is.partner == partner && !is.is_load())
        work(measured_[q], judgement_.smallest[q]);
  }

  /// A node is slow together if one of its ranks is.
  bool is_explained(const Part& part, const Evidence& evidence) const {
    return std::ranges::any_of(judgement_.culprits, [&](const Culprit& known) {
      if (known.part == part)
        return false;
      if (part.kind != Part::node)
        return explains(known, part.ranks.front(), evidence);
      return evidence.quantity.partner == Partner::group && known.part.kind == Part::rank &&
             std::ranges::count(part.ranks, known.part.ranks.front()) > 0;
    });
  }

  void add_unexplained(std::vector<Culprit> found) {
    for (Culprit& c : found) {
      std::erase_if(c.evidence, [&](const Evidence& e) { return is_explained(c.part, e); });
      add(judgement_.culprits, c);
    }
  }

  void add_links() {
    const auto explained = [&](int rank, const Evidence& evidence) {
      return std::ranges::any_of(
          judgement_.culprits, [&](const Culprit& c) { return explains(c, rank, evidence); });
    };
    std::vector<Culprit> links;
    for (const Partner partner : {Partner::node, Partner::inside})
      each(partner, [&](const Measured& m, Smallest& smallest) {
        const Slower found = slower_links(machine_, m, rule_, loaded_, explained);
        smallest.link = found.smallest;
        for (const Culprit& link : found.culprits)
          add(links, link);
      });
    judgement_.culprits.insert(judgement_.culprits.end(), links.begin(), links.end());
  }

  /// Separates from the culprits what may be the doing of a load.
  void divide() {
    for (Culprit& c : std::exchange(judgement_.culprits, {})) {
      if (std::ranges::any_of(c.part.ranks, [&](int rank) { return loaded_[rank]; })) {
        const auto unclear = [](const Evidence& e) { return !e.clear; };
        if (std::ranges::all_of(c.evidence, unclear)) {
          judgement_.doubtful.push_back(std::move(c));
          continue;
        }
        std::erase_if(c.evidence, unclear);
      }
      judgement_.culprits.push_back(std::move(c));
    }
  }

  const Machine& machine_;
  const Rule& rule_;
  std::vector<std::vector<double>> loads_;  ///< [round][rank]; empty: not measured
  std::vector<bool> loaded_;                ///< by rank
  std::vector<Measured> measured_;          ///< without values beside a load
  Judgement judgement_;
};
}  // namespace

Judgement judge(const Machine& machine, const std::vector<Measured>& measured, const Rule& rule) {
  return Judge(machine, measured, rule).judge();
}
}  // namespace minitaw::screen
