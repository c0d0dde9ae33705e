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
// docs/screen.md, "What it says", has these numbers; decision 0022 says why.

/// Losses that are worth a word: where memory comes to lie makes more difference inside a node than
/// between kernels, and of latencies twice the usual one.
constexpr double least_loss = 0.1, least_inside = 0.2, least_latency = 0.5;
/// Losses that no spread excuses, shares of the speed: half of a rate, ten latencies.
constexpr double gross_rate = 0.5, gross_latency = 0.9;
/// Time added to a latency before it is compared: what is shorter makes no difference, s.
constexpr double latency_floor = 10e-6;
/// Share of what a machine file expects that a healthy part reaches, of latencies twice the time.
constexpr double least_of_expected = 0.8, least_of_latency = 0.5;

/// Standard deviations that are no chance: of one part from round to round, and of its peers if
/// they are many.
constexpr double sigmas = 6;
/// Standard deviations beyond which, in all rounds, no load explains what stands out.
constexpr double loaded_sigmas = 10;
/// Of the smallest loss above the threshold, standard deviations.
constexpr double spare_sigmas = 2;
/// Of each quantity, expected: the more parts, the more rounds each must stand out in.
constexpr double false_alarms = 0.05;
/// Fewer peers tell nothing of their spread: a third of three would be the culprit itself.
constexpr std::size_t many = 8;
/// Of its partners: a good adapter has good partners, so that its upper quartile is its own speed.
constexpr double port_quantile = 0.75;
/// Share of its cores that others may take of a rank that is judged.
constexpr double most_load = 0.1;

/// A culprit stands out in most rounds.
int least_rounds(std::size_t rounds) {
  return std::max<int>(2, rounds / 2 + 1);
}

/// Of the normal distribution: median and upper quartile of absolute values, standard deviations.
constexpr double normal_median = 0.6745, normal_quartile = 1.1503;

/// The smallest of the values that so large a share of them does not exceed; NaN without values.
double ranked(std::vector<double> values, double share) {
  std::erase_if(values, [](double v) { return std::isnan(v); });
  if (values.empty())
    return nothing;
  const std::ptrdiff_t at = std::ceil(share * (values.size() - 1));
  const auto found = values.begin() + at;
  std::ranges::nth_element(values, found);
  return *found;
}

/// Of this, more is better: the rate, or 1 / (latency + floor).
double speed_of(const Quantity& q, double value) {
  return q.is_latency() ? 1 / (value + latency_floor) : value;
}

double value_of(const Quantity& q, double speed) {
  return q.is_latency() ? 1 / speed - latency_floor : speed;
}

/// What a value is about: a rank's own work (both ends are the rank), all that a rank sends or
/// receives (the other end is any), or a link.
struct Path {
  static constexpr int any = std::numeric_limits<int>::max();
  int from, to;

  /// Of a rank's own work, or a port; of a link the lower one.
  int rank() const { return std::min(from, to); }

  bool touches(const std::vector<bool>& ranks) const {
    const int last = std::max(from, to);
    return ranks[rank()] || (last != any && ranks[last]);
  }

  friend auto operator<=>(const Path&, const Path&) = default;
};

/// By round; NaN where nothing was measured.
using Speeds = std::map<Path, std::vector<double>>;

Speeds speeds_of(const Machine& machine, const Measured& measured) {
  const auto& [name, units, partner] = measured.quantity;
  const int partners = machine.partners(partner);
  Speeds all;
  for (int rank = 0; rank < machine.nodes.ranks(); ++rank)
    for (int p = 0; p < partners; ++p) {
      const auto speed = [&](const std::vector<double>& round) {
        return speed_of(measured.quantity, round[rank * partners + p]);
      };
      std::vector<double> speeds = list_of(measured.rounds, speed);
      if (!std::ranges::all_of(speeds, [](double v) { return std::isnan(v); }))
        all[{machine.rank_of(partner, rank, p), rank}] = std::move(speeds);
    }
  return all;
}

/// Of all paths, by round.
std::vector<double> medians_of(const Speeds& speeds, std::size_t rounds) {
  std::vector<double> medians;
  for (std::size_t round = 0; round < rounds; ++round)
    medians.push_back(
        ranked(list_of(speeds, [&](const auto& entry) { return entry.second[round]; }), 0.5));
  return medians;
}

/// The upper quartile over each port's partners. With one alone no one knows which of the two it
/// is: that is a link.
Speeds ports_of(const Speeds& links, std::size_t least_partners = 2) {
  std::map<Path, std::vector<const std::vector<double>*>> samples;
  for (const auto& [link, speeds] : links) {
    samples[{link.from, Path::any}].push_back(&speeds);
    samples[{Path::any, link.to}].push_back(&speeds);
  }
  Speeds ports;
  for (const auto& [port, some] : samples)
    for (std::size_t round = 0; round < some[0]->size() && some.size() >= least_partners; ++round)
      ports[port].push_back(ranked(
          list_of(some, [&](const auto* speeds) { return (*speeds)[round]; }), port_quantile));
  return ports;
}

/// A path in one round beside what its peers let expect.
struct Compared {
  double speed, usual;
  double share = speed / usual;
};

using Series = std::map<Path, std::vector<Compared>>;

/// `usual_of`: of a path in a round.
template <class UsualOf>
Series compared(const Speeds& speeds, const UsualOf& usual_of) {
  Series series;
  for (const auto& [path, values] : speeds)
    for (std::size_t round = 0; round < values.size(); ++round)
      series[path].push_back({values[round], usual_of(path, round)});
  return series;
}

Series beside_all(const Speeds& speeds, std::size_t rounds) {
  const std::vector<double> medians = medians_of(speeds, rounds);
  return compared(speeds, [&](const Path&, std::size_t round) { return medians[round]; });
}

/// Links beside what their two ends reach with others.
Series beside_ends(const Speeds& links, std::size_t rounds) {
  const Speeds ports = ports_of(links);
  const std::vector<double> most = medians_of(ports_of(links, 1), rounds);
  return compared(links, [&](const Path& link, std::size_t round) {
    double usual = most[round];
    for (const Path& port : {Path{link.from, Path::any}, {Path::any, link.to}})
      if (const auto reached = ports.find(port); reached != ports.end())
        usual = std::fmin(usual, reached->second[round]);
    return usual;
  });
}

using Found = std::map<Path, Evidence>;

/// The paths of one quantity, round by round: which of them are slower than the others?
class Outliers {
public:
  /// `loaded`: by rank, whether other programs had its cores.
  Outliers(const Quantity& quantity,
      double least_loss_given,
      const std::vector<bool>& loaded,
      std::size_t rounds,
      Series series)
      : quantity_(quantity),
        least_loss_given_(least_loss_given),
        loaded_(loaded),
        rounds_(rounds),
        series_(std::move(series)),
        gross_(quantity.is_latency() ? gross_latency : gross_rate) {
    for (std::size_t round = 0; round < rounds; ++round) {
      const double usual =
          ranked(list_of(series_, [&](const auto& e) { return e.second[round].share; }), 0.5);
      for (auto& [path, values] : series_)
        values[round].share /= usual;
    }
    // What sends and receives is one part.
    few_ = series_.size() < (quantity.is_of_links() ? 2 * many : many);
    const double spread = few_ ? 0 : spread_of_peers();
    noise_ = noise(false, 0.5, normal_median);
    least_ = std::max(worth_a_word(), std::min(sigmas * std::max(noise_, spread), gross_));
    // A load comes and goes.
    loaded_noise_ = std::max(noise(true, 0.5, normal_median), noise(true, 0.75, normal_quartile));
    clear_ = std::max(worth_a_word(), loaded_sigmas * std::max(loaded_noise_, spread));
  }

  /// Those that stand out in rounds enough.
  Found find() const {
    Found found;
    for (const auto& [path, values] : series_) {
      const bool loaded = path.touches(loaded_);
      const double least = loaded ? clear_ : least_;
      std::vector<Compared> slow = slower_by(least, values);
      const bool at_times =
          std::ranges::any_of(values, [&](const Compared& c) { return c.share >= 1 - least; });
      if (at_times && loaded)
        continue;
      // Few peers do not tell how far moments reach in which something else ran: what stands out in
      // a part of the rounds must do so by twice as much.
      if (at_times && few_)
        slow = slower_by(std::min(2 * least_, gross_), slow);
      if (!slow.empty())
        found[path] = evidence_of(slow);
    }
    drop_chances(found);
    return found;
  }

  /// The smallest fault that find() would have named: the threshold, and some spare for the noise
  /// of the fault itself.
  double smallest() const {
    const bool all_loaded = std::ranges::all_of(loaded_, std::identity());
    const double share =
        all_loaded ? clear_ + spare_sigmas * loaded_noise_ : least_ + spare_sigmas * noise_;
    if (rounds_ < 2 || series_.size() < 2 || share >= 1)
      return nothing;
    if (!quantity_.is_latency())
      return share;
    const double usual =
        ranked(list_of(series_, [](const auto& e) { return e.second.back().usual; }), 0.5);
    return value_of(quantity_, usual * (1 - share)) - value_of(quantity_, usual);
  }

private:
  /// Share below the usual speed that is worth a word.
  double worth_a_word() const {
    if (quantity_.is_latency())
      return least_latency;
    if (least_loss_given_ > 0)
      return least_loss_given_;
    return quantity_.partner == Partner::inside ? least_inside : least_loss;
  }

  /// A standard deviation of one path from round to round, by a quantile of the differences of any
  /// two rounds, which have sqrt(2) deviations. `loaded`: of which paths.
  double noise(bool loaded, double share, double normal) const {
    std::vector<double> apart;
    for (const auto& [path, values] : series_)
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
    std::vector<double> apart = list_of(series_, [](const auto& entry) {
      return std::abs(ranked(list_of(entry.second, &Compared::share), 0.5) - 1);
    });
    std::ranges::sort(apart);
    return apart[(apart.size() - 1) / 2] / normal_median;
  }

  static std::vector<Compared> slower_by(double loss, const std::vector<Compared>& values) {
    std::vector<Compared> slow;
    std::ranges::copy_if(
        values, std::back_inserter(slow), [&](const Compared& c) { return c.share < 1 - loss; });
    return slow;
  }

  /// The median over the rounds in which a path stood out.
  Evidence evidence_of(const std::vector<Compared>& slow) const {
    return {.quantity = quantity_,
        .value = value_of(quantity_, median(list_of(slow, &Compared::speed))),
        .usual = value_of(quantity_, median(list_of(slow, &Compared::usual))),
        .rounds = std::ssize(slow)};
  }

  /// Leaves what stood out in rounds enough: in most, or in more where so many of all paths stand
  /// out in some round by chance that one of them would stand out so often. What always stands out
  /// counts as no chance.
  void drop_chances(Found& found) const {
    const int rounds = rounds_;
    double chances = 0;
    for (const auto& [path, evidence] : found)
      chances += evidence.rounds < rounds ? evidence.rounds : 0;
    std::erase_if(found, [&](const auto& entry) {
      const int times = entry.second.rounds;
      const double others = chances - (times < rounds ? times : 0);
      const double share = others / (series_.size() * rounds);
      double alarms = series_.size() * std::pow(share, times);
      for (int i = 1; i <= times; ++i)  // ways to choose these rounds
        alarms *= 1.0 * (rounds - times + i) / i;
      return times < least_rounds(rounds_) || alarms > false_alarms;
    });
  }

  const Quantity& quantity_;
  double least_loss_given_;
  const std::vector<bool>& loaded_;
  std::size_t rounds_;
  Series series_;
  double gross_;  ///< loss that always counts
  bool few_ = true;
  double noise_ = 0, loaded_noise_ = 0;  ///< of paths whose cores the job had, and others
  double least_ = 0, clear_ = 0;         ///< the shares from which on these stand out
};

/// Returns whether a culprit accounts for what is slow at this rank: an adapter for all that passes
/// it. A rank or node whose kernels are slow by a tenth does not send at a third of the rate, nor
/// in rounds in which they are not slow. Slow kernels make no latency: that is the fastest of many
/// round trips, each of which needs no more than a moment of a core.
bool explains(const Culprit& culprit, int rank, const Evidence& evidence) {
  const Part& part = culprit.part;
  if (part.kind == Part::link || std::ranges::count(part.ranks, rank) == 0)
    return false;
  if (part.kind == Part::adapter)
    return evidence.quantity.between_nodes();
  if (evidence.quantity.is_latency())
    return false;
  double times_slower = 1;
  std::int64_t rounds = 0;
  for (const Evidence& e : culprit.evidence) {
    times_slower = std::max(times_slower, e.usual / e.value);
    rounds = std::max(rounds, e.rounds);
  }
  // docs/screen.md: "at most the cube of its own loss".
  return evidence.usual / evidence.value <= std::pow(times_slower, 3) && evidence.rounds <= rounds;
}

/// Makes one judgement.
class Judge {
public:
  Judge(const Machine& machine, const std::vector<Measured>& measured, double least_loss_given)
      : machine_(machine),
        least_loss_given_(least_loss_given),
        loaded_(machine.nodes.ranks()) {
    for (const Measured& m : measured)
      if (m.quantity.is_load())
        loads_ = m.rounds;
    find_loaded();
    for (const Measured& m : measured)
      measured_.push_back(without_loaded(m));
    judgement_.smallest.assign(measured.size(), nothing);
  }

  Judgement judge() {
    // Those first that explain what the others measure too.
    for (const Partner partner : {Partner::none, Partner::node, Partner::inside})
      each(partner, [&](const Measured& m, double& smallest) { smallest = add_slower(m, false); });
    for (const Partner partner : {Partner::node, Partner::inside})
      each(partner, [&](const Measured& m, double& smallest) {
        const double of_links = add_slower(m, true);
        if (std::isnan(smallest))
          smallest = of_links;
      });
    for (const Measured& m : measured_)
      add_below_expected(m);
    return std::move(judgement_);
  }

private:
  bool has_load(std::size_t round, int rank) const { return loads_[round][rank] > most_load; }

  /// Ranks that are left with fewer rounds than a verdict needs.
  void find_loaded() {
    for (int rank = 0; rank < std::ssize(loaded_) && !loads_.empty(); ++rank) {
      int left = 0;
      for (std::size_t round = 0; round < loads_.size(); ++round) {
        judgement_.load = std::fmax(judgement_.load, loads_[round][rank]);
        left += has_load(round, rank) ? 0 : 1;
      }
      loaded_[rank] = left < least_rounds(loads_.size());
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
            measured.rounds[round][rank * partners + p] = nothing;
    }
    return measured;
  }

  template <class Work>
  void each(Partner partner, const Work& work) {
    for (std::size_t q = 0; q < measured_.size(); ++q)
      if (const Quantity& is = measured_[q].quantity; is.partner == partner && !is.is_load())
        work(measured_[q], judgement_.smallest[q]);
  }

  /// Names links, or else ranks, nodes and adapters. Returns the smallest fault that would have
  /// been found.
  double add_slower(const Measured& m, bool links) {
    const Quantity& quantity = m.quantity;
    const std::size_t rounds = m.rounds.size();
    const Speeds speeds = speeds_of(machine_, m);
    const bool ports = quantity.is_of_links() && !links;
    const Outliers outliers(quantity,
        least_loss_given_,
        loaded_,
        rounds,
        links ? beside_ends(speeds, rounds)
              : beside_all(ports ? ports_of(speeds) : speeds, rounds));
    const Found found = outliers.find();
    for (auto [path, evidence] : found) {
      if (links)
        evidence.way = fmt::format(", to rank {}", path.to);
      if (ports)
        evidence.way = path.from == Path::any ? ", in" : ", out";
      const Part part = links ? Part{Part::link, {path.rank(), std::max(path.from, path.to)}}
                              : part_of(path, found, quantity);
      const bool is_said = part.kind == Part::node && part.ranks[0] != path.rank();
      if (!is_said && !is_explained(part, evidence))
        add(part, evidence);
    }
    return outliers.smallest();
  }

  /// All ranks of a node are the node.
  Part part_of(const Path& path, const Found& found, const Quantity& quantity) const {
    const int rank = path.rank();
    if (quantity.is_of_links())
      return {quantity.between_nodes() ? Part::adapter : Part::rank, {rank}};
    const topology::Groups& nodes = machine_.nodes;
    const std::vector<int> members = nodes.members(nodes.group_of(rank));
    const bool all_slow =
        std::ranges::all_of(members, [&](int other) { return found.contains({other, other}); });
    if (all_slow && members.size() > 1 && nodes.count() > 1)
      return {Part::node, members};
    return {Part::rank, {rank}};
  }

  bool is_explained(const Part& part, const Evidence& evidence) const {
    return part.kind != Part::node &&
           std::ranges::any_of(judgement_.culprits, [&](const Culprit& known) {
             return known.part != part && std::ranges::any_of(part.ranks, [&](int rank) {
               return explains(known, rank, evidence);
             });
           });
  }

  /// Adds a culprit, or what more is known of it.
  void add(const Part& part, const Evidence& evidence) {
    std::vector<Culprit>& all = judgement_.culprits;
    const auto known = std::ranges::find(all, part, &Culprit::part);
    if (known == all.end())
      all.push_back({part, {evidence}});
    else
      known->evidence.push_back(evidence);
  }

  /// Names those that do not reach what a machine file says and are not named already. A port is as
  /// good as its partners: no one can tell which of them it is, nor whether it is the network.
  void add_below_expected(const Measured& m) {
    if (std::isnan(m.expected))
      return;
    const Quantity& quantity = m.quantity;
    Speeds speeds = speeds_of(machine_, m);
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
    add({quantity.is_of_links() ? Part::adapter : Part::rank, list_of(low | std::views::keys)},
        {.quantity = quantity,
            .value = value_of(quantity, median(list_of(low | std::views::values))),
            .usual = m.expected,
            .rounds = std::ssize(m.rounds),
            .expected = true});
  }

  bool is_named(int rank) const {
    return std::ranges::any_of(judgement_.culprits, [&](const Culprit& c) {
      return c.part.kind != Part::link && std::ranges::count(c.part.ranks, rank) > 0;
    });
  }

  const Machine& machine_;
  double least_loss_given_;
  std::vector<std::vector<double>> loads_;  ///< [round][rank]; empty: not measured
  std::vector<bool> loaded_;                ///< by rank
  std::vector<Measured> measured_;          ///< without some values beside a load
  Judgement judgement_;
};
}  // namespace

Judgement judge(const Machine& machine, const std::vector<Measured>& measured, double least_loss) {
  return Judge(machine, measured, least_loss).judge();
}
}  // namespace minitaw::screen
