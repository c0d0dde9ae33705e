// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <ranges>
#include "base/range.hpp"
#include "base/statistics.hpp"
#include "instruments/screen/screening.hpp"

namespace minitaw::screen {
namespace {
// docs/screen.md, "What it says", has these numbers; docs/decisions.md, 22, says why.

/// Losses that are worth a word: where memory comes to lie makes more difference inside a node than
/// between kernels. A latency must double.
constexpr double least_loss = 0.1, least_inside = 0.2, least_latency = 0.5;
/// Losses that no spread excuses, shares of the speed: half of a rate, ten latencies.
constexpr double gross_rate = 0.5, gross_latency = 0.9;
/// Time added to a latency before it is compared: what is shorter makes no difference, s.
constexpr double latency_floor = 10e-6;
/// A healthy part reaches this share of what a machine file expects; a latency may be twice that.
constexpr double least_of_expected = 0.8, least_of_latency = 0.5;

/// Standard deviations that are no chance: of one part from round to round, and of its peers if
/// they are many.
constexpr double sigmas = 6;
/// Standard deviations beyond which, in all rounds, no load explains what stands out.
constexpr double loaded_sigmas = 10;
/// Standard deviations by which the smallest loss lies above the threshold.
constexpr double spare_sigmas = 2;
/// Parts of each quantity that chance may name: the more parts, the more rounds each must stand out
/// in.
constexpr double false_alarms = 0.05;
/// Fewer peers tell nothing of their spread: a third of three would be the culprit itself.
constexpr std::size_t many = 8;
/// A good adapter has good partners, so the upper quartile over these is its own speed.
constexpr double port_quantile = 0.75;
/// Share of its cores that others may take of a rank that is judged.
constexpr double most_load = 0.1;
/// The normal distribution's median and upper quartile of absolute values, in standard deviations.
constexpr double normal_median = 0.6745, normal_quartile = 1.1503;

/// A culprit stands out in most rounds.
int least_rounds(std::size_t rounds) {
  return std::max<int>(2, rounds / 2 + 1);
}

/// The smallest of the values that so large a share of them does not exceed; NaN without values.
double ranked(std::vector<double> values, double share) {
  std::erase_if(values, [](double v) { return std::isnan(v); });
  if (values.empty())
    return nothing;
  const auto found = values.begin() + std::ceil(share * (values.size() - 1));
  std::ranges::nth_element(values, found);
  return *found;
}

/// The rate, or 1 / (latency + floor): more is better.
double speed_of(const Quantity& q, double value) {
  return q.is_latency() ? 1 / (value + latency_floor) : value;
}

double value_of(const Quantity& q, double speed) {
  return q.is_latency() ? 1 / speed - latency_floor : speed;
}

/// What a value is about: a rank's own work (both ends are the rank), all that a rank sends or
/// receives (a port: the other end is any), or a link.
struct Path {
  static constexpr int any = std::numeric_limits<int>::max();
  int from, to;

  /// The rank of work or of a port; the lower one of a link.
  int rank() const { return std::min(from, to); }

  bool touches(const std::vector<bool>& ranks) const {
    const int last = std::max(from, to);
    return ranks[rank()] || (last != any && ranks[last]);
  }

  friend auto operator<=>(const Path&, const Path&) = default;
};

/// By round; NaN where nothing was measured.
using Speeds = std::map<Path, std::vector<double>>;

Speeds speeds_of(const Wiring& wiring, const Measurement& measured) {
  const Partner partner = measured.quantity.partner;
  const int partners = wiring.partners(partner);
  Speeds all;
  for (int i = 0; i < wiring.nodes.ranks() * partners; ++i) {
    std::vector<double> speeds = list_of(
        measured.rounds, [&](const auto& round) { return speed_of(measured.quantity, round[i]); });
    if (std::ranges::any_of(speeds, [](double v) { return !std::isnan(v); }))
      all[{wiring.rank_of(partner, i / partners, i % partners), i / partners}] = std::move(speeds);
  }
  return all;
}

/// The upper quartile over each port's partners. If a port has one partner alone, no one knows
/// which of the two is slow: that is a link.
Speeds ports_of(const Speeds& links, std::size_t least_partners = 2) {
  std::map<Path, std::vector<const std::vector<double>*>> partners;
  for (const auto& [link, speeds] : links) {
    partners[{link.from, Path::any}].push_back(&speeds);
    partners[{Path::any, link.to}].push_back(&speeds);
  }
  Speeds ports;
  for (const auto& [port, some] : partners)
    for (std::size_t round = 0; round < some[0]->size() && some.size() >= least_partners; ++round)
      ports[port].push_back(ranked(
          list_of(some, [&](const auto* speeds) { return (*speeds)[round]; }), port_quantile));
  return ports;
}

/// A path in one round beside what its peers let expect.
struct Compared {
  double speed, usual;
  double share = speed / usual;  ///< relative to the median of all shares in the round
};

using Standing = std::map<Path, std::vector<Compared>>;

std::size_t rounds_of(const auto& by_path) {
  return by_path.empty() ? 0 : by_path.begin()->second.size();
}

/// The median of one number of each path.
double median_of_paths(const auto& by_path, const auto& number) {
  return ranked(list_of(by_path | std::views::values, number), 0.5);
}

/// Compares paths with each other, or links with what their two ends reach with others.
Standing compare(const Speeds& speeds, bool are_links) {
  const Speeds peers = are_links ? ports_of(speeds, 1) : speeds;
  const Speeds ends = are_links ? ports_of(speeds) : Speeds();
  Standing all;
  for (std::size_t round = 0; round < rounds_of(speeds); ++round) {
    const double of_peers =
        median_of_paths(peers, [&](const auto& values) { return values[round]; });
    for (const auto& [path, values] : speeds) {
      double usual = of_peers;
      for (const Path& end : {Path{path.from, Path::any}, {Path::any, path.to}})
        if (const auto reached = ends.find(end); reached != ends.end())
          usual = std::fmin(usual, reached->second[round]);
      all[path].push_back({values[round], usual});
    }
    const double middle =
        median_of_paths(all, [](const auto& values) { return values.back().share; });
    for (auto& [path, values] : all)
      values.back().share /= middle;
  }
  return all;
}

using Found = std::map<Path, Evidence>;

/// Finds the paths of one quantity that are slower than the others.
class Outliers {
public:
  /// `worth`: share below the usual speed that is worth a word. `loaded`: by rank, whether other
  /// programs had its cores.
  Outliers(const Quantity& quantity, double worth, const std::vector<bool>& loaded, Standing paths)
      : quantity_(quantity),
        loaded_(loaded),
        paths_(std::move(paths)),
        rounds_(rounds_of(paths_)),
        gross_(quantity.is_latency() ? gross_latency : gross_rate),
        // What sends and receives is one part.
        few_(paths_.size() < (quantity.is_of_links() ? 2 * many : many)) {
    const double spread = few_ ? 0 : spread_of_peers();
    quiet_.noise = noise(false, 0.5, normal_median);
    quiet_.least = std::max(worth, std::min(sigmas * std::max(quiet_.noise, spread), gross_));
    // A load comes and goes.
    disturbed_.noise =
        std::max(noise(true, 0.5, normal_median), noise(true, 0.75, normal_quartile));
    disturbed_.least = std::max(worth, loaded_sigmas * std::max(disturbed_.noise, spread));
  }

  /// Those that stand out in rounds enough.
  Found find() const {
    Found found;
    for (const auto& [path, values] : paths_) {
      const bool loaded = path.touches(loaded_);
      const double least = loaded ? disturbed_.least : quiet_.least;
      std::vector<Compared> slow = slower_by(least, values);
      const bool at_times =
          std::ranges::any_of(values, [&](const Compared& c) { return c.share >= 1 - least; });
      if (at_times && loaded)
        continue;
      // Few peers do not tell how far moments reach in which something else ran: what stands out in
      // a part of the rounds must do so by twice as much.
      if (at_times && few_)
        slow = slower_by(std::min(2 * least, gross_), slow);
      if (!slow.empty())
        found[path] = {.quantity = quantity_,
            .value = value_of(quantity_, median(list_of(slow, &Compared::speed))),
            .usual = value_of(quantity_, median(list_of(slow, &Compared::usual))),
            .rounds = std::ssize(slow)};
    }
    drop_chances(found);
    return found;
  }

  /// The smallest fault that find() would have named: the threshold, and some spare for the noise
  /// of the fault itself.
  double smallest() const {
    const bool all_loaded = std::ranges::all_of(loaded_, std::identity());
    const auto& [noise, least] = all_loaded ? disturbed_ : quiet_;
    const double share = least + spare_sigmas * noise;
    if (rounds_ < 2 || paths_.size() < 2 || share >= 1)
      return nothing;
    if (!quantity_.is_latency())
      return share;
    const double usual =
        median_of_paths(paths_, [](const auto& values) { return values.back().usual; });
    return value_of(quantity_, usual * (1 - share)) - value_of(quantity_, usual);
  }

private:
  struct Threshold {
    double noise = 0, least = 0;  ///< shares of the speed; a path stands out from `least` on
  };

  /// A standard deviation of one path from round to round, by a quantile of the differences of any
  /// two rounds, which have sqrt(2) deviations. `loaded`: of which paths.
  double noise(bool loaded, double share, double normal) const {
    std::vector<double> apart;
    for (const auto& [path, values] : paths_)
      for (std::size_t i = 0; i < values.size() && path.touches(loaded_) == loaded; ++i)
        for (std::size_t j = 0; j < i; ++j)
          apart.push_back(std::abs(std::log(values[i].share / values[j].share)));
    std::erase_if(apart, [](double v) { return std::isnan(v); });
    std::ranges::sort(apart);
    return apart.empty() ? 0 : quantile(apart, share) / (normal * std::sqrt(2));
  }

  /// A standard deviation of the paths' medians, by their median distance from the usual share. Of
  /// an even number the smaller one: half of the values may be those that are looked for.
  double spread_of_peers() const {
    std::vector<double> apart = list_of(paths_ | std::views::values, [](const auto& values) {
      return std::abs(ranked(list_of(values, &Compared::share), 0.5) - 1);
    });
    std::ranges::sort(apart);
    return apart[(apart.size() - 1) / 2] / normal_median;
  }

  static std::vector<Compared> slower_by(double loss, std::vector<Compared> values) {
    std::erase_if(values, [&](const Compared& c) { return !(c.share < 1 - loss); });
    return values;
  }

  /// Leaves what stood out in rounds enough: in most, or in more where so many of all paths stand
  /// out in some round by chance that one of them would stand out so often. What always stands out
  /// counts as no chance.
  void drop_chances(Found& found) const {
    double chances = 0;
    for (const auto& [path, evidence] : found)
      chances += evidence.rounds < rounds_ ? evidence.rounds : 0;
    std::erase_if(found, [&](const auto& entry) {
      const int times = entry.second.rounds;
      const double others = chances - (times < rounds_ ? times : 0);
      const double share = others / (paths_.size() * rounds_);
      double alarms = paths_.size() * std::pow(share, times);
      for (int i = 1; i <= times; ++i)  // ways to choose these rounds
        alarms *= 1.0 * (rounds_ - times + i) / i;
      return times < least_rounds(rounds_) || alarms > false_alarms;
    });
  }

  const Quantity& quantity_;
  const std::vector<bool>& loaded_;
  Standing paths_;
  int rounds_;
  double gross_;  ///< loss that always counts
  bool few_;
  Threshold quiet_, disturbed_;  ///< of paths whose cores the job had, and of others
};

/// Returns whether a culprit accounts for what is slow at this rank: an adapter for all that passes
/// it. A rank or node whose kernels are slow by a tenth does not send at a third of the rate, nor
/// in rounds in which they are not slow. Slow kernels make no latency: that is the fastest of many
/// round trips, each of which needs no more than a moment of a core.
bool explains(const Culprit& culprit, int rank, const Evidence& evidence) {
  if (culprit.suspect.kind == Suspect::link || !culprit.suspect.has(rank))
    return false;
  if (culprit.suspect.kind == Suspect::adapter)
    return evidence.quantity.between_nodes();
  if (evidence.quantity.is_latency())
    return false;
  double times_slower = 1;
  std::int64_t rounds = 0;
  for (const Evidence& e : culprit.evidence) {
    times_slower = std::max(times_slower, e.usual / e.value);
    rounds = std::max(rounds, e.rounds);
  }
  // docs/screen.md: "up to the cube of its own loss".
  return evidence.usual / evidence.value <= std::pow(times_slower, 3) && evidence.rounds <= rounds;
}

/// Makes one judgement.
class Judge {
public:
  Judge(const Wiring& wiring, const std::vector<Measurement>& measured, double least_loss_given)
      : wiring_(wiring),
        least_loss_given_(least_loss_given),
        loaded_(wiring.nodes.ranks()) {
    for (const Measurement& m : measured)
      if (m.quantity.is_load())
        loads_ = m.rounds;
    find_loaded();
    for (const Measurement& m : measured)
      measured_.push_back(without_loaded(m));
    judgement_.smallest.assign(measured.size(), nothing);
  }

  Judgement judge() {
    // Those first that explain what the others measure too, and links last.
    for (const auto& [partner, links] : {std::pair{Partner::none, false},
             {Partner::node, false},
             {Partner::inside, false},
             {Partner::node, true},
             {Partner::inside, true}})
      for (const int q : indices(measured_)) {
        const Quantity& quantity = measured_[q].quantity;
        if (quantity.partner != partner || quantity.is_load())
          continue;
        const double smallest = add_slower(measured_[q], links);
        if (std::isnan(judgement_.smallest[q]))
          judgement_.smallest[q] = smallest;
      }
    for (const Measurement& m : measured_)
      if (!std::isnan(m.expected))
        add_below_expected(m);
    return std::move(judgement_);
  }

private:
  bool has_load(std::size_t round, int rank) const { return loads_[round][rank] > most_load; }

  /// Finds the ranks that are left with fewer rounds than a verdict needs.
  void find_loaded() {
    for (int rank = 0; rank < std::ssize(loaded_) && !loads_.empty(); ++rank) {
      int left = 0;
      for (const int round : indices(loads_)) {
        judgement_.load = std::fmax(judgement_.load, loads_[round][rank]);
        left += has_load(round, rank) ? 0 : 1;
      }
      loaded_[rank] = left < least_rounds(loads_.size());
    }
    // Those that are left have few peers.
    if (2 * std::ranges::count(loaded_, true) > std::ssize(loaded_))
      loaded_.assign(loaded_.size(), true);
    for (const int rank : indices(loaded_))
      if (loaded_[rank])
        judgement_.loaded.push_back(rank);
  }

  /// Takes out what was measured while others had the cores of a rank which has other rounds.
  Measurement without_loaded(Measurement measured) const {
    const Partner partner = measured.quantity.partner;
    const int partners = wiring_.partners(partner);
    for (std::size_t round = 0; round < std::min(loads_.size(), measured.rounds.size()); ++round) {
      const auto disturbed = [&](int rank) {
        return rank >= 0 && !loaded_[rank] && has_load(round, rank);
      };
      for (int i = 0; i < wiring_.nodes.ranks() * partners; ++i)
        if (disturbed(i / partners) ||
            disturbed(wiring_.rank_of(partner, i / partners, i % partners)))
          measured.rounds[round][i] = nothing;
    }
    return measured;
  }

  double worth_a_word(const Quantity& quantity) const {
    if (quantity.is_latency())
      return least_latency;
    if (least_loss_given_ > 0)
      return least_loss_given_;
    return quantity.partner == Partner::inside ? least_inside : least_loss;
  }

  /// Names links, or else ranks, nodes and adapters. Returns the smallest fault that would have
  /// been found.
  double add_slower(const Measurement& m, bool links) {
    const Quantity& quantity = m.quantity;
    const bool ports = quantity.is_of_links() && !links;
    Speeds speeds = speeds_of(wiring_, m);
    if (ports)
      speeds = ports_of(speeds);
    const Outliers outliers(quantity, worth_a_word(quantity), loaded_, compare(speeds, links));
    const Found found = outliers.find();
    for (auto [path, evidence] : found) {
      if (links)
        evidence.way = fmt::format(", to rank {}", path.to);
      if (ports)
        evidence.way = path.from == Path::any ? ", in" : ", out";
      const Suspect suspect =
          links ? Suspect{Suspect::link, {path.rank(), std::max(path.from, path.to)}}
                : suspect_of(path, found, quantity);
      const bool is_said = suspect.kind == Suspect::node && suspect.ranks[0] != path.rank();
      if (!is_said && !is_explained(suspect, evidence))
        add(suspect, evidence);
    }
    return outliers.smallest();
  }

  /// All ranks of a node are the node.
  Suspect suspect_of(const Path& path, const Found& found, const Quantity& quantity) const {
    const int rank = path.rank();
    if (quantity.is_of_links())
      return {quantity.between_nodes() ? Suspect::adapter : Suspect::rank, {rank}};
    const topology::Groups& nodes = wiring_.nodes;
    const std::vector<int> members = nodes.members(nodes.group_of(rank));
    const bool all_slow =
        std::ranges::all_of(members, [&](int other) { return found.contains({other, other}); });
    if (all_slow && members.size() > 1 && nodes.count() > 1)
      return {Suspect::node, members};
    return {Suspect::rank, {rank}};
  }

  bool is_explained(const Suspect& suspect, const Evidence& evidence) const {
    return suspect.kind != Suspect::node &&
           std::ranges::any_of(judgement_.culprits, [&](const Culprit& known) {
             return known.suspect != suspect && std::ranges::any_of(suspect.ranks, [&](int rank) {
               return explains(known, rank, evidence);
             });
           });
  }

  /// Adds a culprit, or what more is known of it.
  void add(const Suspect& suspect, const Evidence& evidence) {
    std::vector<Culprit>& all = judgement_.culprits;
    const auto known = std::ranges::find(all, suspect, &Culprit::suspect);
    if (known == all.end())
      all.push_back({suspect, {evidence}});
    else
      known->evidence.push_back(evidence);
  }

  /// Names those that do not reach what a machine file says and are not named already. A port is as
  /// good as its partners: no one can tell which of them it is, nor whether it is the network.
  void add_below_expected(const Measurement& m) {
    const Quantity& quantity = m.quantity;
    Speeds speeds = speeds_of(wiring_, m);
    if (quantity.is_of_links())
      speeds = ports_of(speeds, 1);
    const double least = (quantity.is_latency() ? least_of_latency : least_of_expected) *
                         speed_of(quantity, m.expected);
    std::map<int, double> low;
    for (const auto& [path, values] : speeds) {
      const double speed = ranked(values, 0.5);
      if (speed < least && !path.touches(loaded_) && !is_named(path.rank()))
        low[path.rank()] = speed;
    }
    if (low.empty())
      return;
    add({quantity.is_of_links() ? Suspect::adapter : Suspect::rank,
            list_of(low | std::views::keys)},
        {.quantity = quantity,
            .value = value_of(quantity, median(list_of(low | std::views::values))),
            .usual = m.expected,
            .rounds = std::ssize(m.rounds),
            .expected = true});
  }

  bool is_named(int rank) const {
    return std::ranges::any_of(judgement_.culprits,
        [&](const Culprit& c) { return c.suspect.kind != Suspect::link && c.suspect.has(rank); });
  }

  const Wiring& wiring_;
  double least_loss_given_;
  std::vector<std::vector<double>> loads_;  ///< [round][rank]; empty: not measured
  std::vector<bool> loaded_;                ///< by rank
  std::vector<Measurement> measured_;       ///< without some values beside a load
  Judgement judgement_;
};
}  // namespace

Judgement judge(const Wiring& wiring, const std::vector<Measurement>& measured, double given) {
  return Judge(wiring, measured, given).judge();
}
}  // namespace minitaw::screen
