// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <map>
#include <ranges>
#include <set>
#include "case/result.hpp"
#include "instruments/screen/compare.hpp"

namespace minitaw::screen {
namespace {
constexpr double none = std::numeric_limits<double>::quiet_NaN();

// docs/screen.md, "What it says", has these numbers; decision 0022 says why.

/// Standard deviations that are no chance: of one part from round to round, and of its peers if
/// they are many.
constexpr double sigmas = 6;
/// Standard deviations beyond which, in all rounds, no load explains what stands out.
constexpr double loaded_sigmas = 10;
/// Of each quantity, expected: the more parts, the more rounds each must stand out in.
constexpr double false_alarms = 0.05;
/// Fewer peers tell nothing of their spread: a third of three would be the culprit itself.
constexpr std::size_t many = 8;

/// Of its partners: a good adapter has good partners, so that its upper quartile is its own speed.
constexpr double port_quantile = 0.75;
/// Losses that no spread excuses, shares of the speed: half of a rate, ten latencies.
constexpr double gross_rate = 0.5, gross_latency = 0.9;
/// Of the detectable loss above the threshold, standard deviations.
constexpr double detectable_spare = 2;

// Of the normal distribution.

/// Absolute values have this median and this upper quartile, standard deviations.
constexpr double normal_median = 0.6745, normal_quartile = 1.1503;
/// A standard deviation in median absolute deviations.
constexpr double deviation_of_mad = 1.4826;

/// The smallest of the values that so large a share of them does not exceed; NaN without values.
double ranked(std::vector<double> values, double share) {
  if (values.empty())
    return none;
  const auto at = static_cast<std::ptrdiff_t>(std::ceil(share * (values.size() - 1)));
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
  static constexpr int any = -1;
  int from, to;

  int first() const { return from == any ? to : from; }

  int last() const { return to == any ? from : to; }

  friend bool operator<(const Path& a, const Path& b) {
    const auto order = [](const Path& p) {
      return std::tuple(p.first(), p.last(), p.from == any, p.to == any);
    };
    return order(a) < order(b);
  }
};

using Speeds = std::map<Path, double>;

/// Of a path in one round.
struct Compared {
  double speed = none;
  double usual = none;  ///< speed that its peers let expect

  double share() const { return speed / usual; }
};

using Round = std::map<Path, Compared>;

/// A round in which a path stood out.
struct Seen {
  Compared compared;
  bool clear;  ///< by more than a load does
  bool gross;  ///< by twice what is needed
};

using Found = std::map<Path, std::vector<Seen>>;

/// The quantile over each of some samples that are at least so many.
Speeds ranked_each(
    const std::map<Path, std::vector<double>>& samples, double share, std::size_t least = 1) {
  Speeds all;
  for (const auto& [path, values] : samples)
    if (values.size() >= least)
      all[path] = ranked(values, share);
  return all;
}

double median_of(const Speeds& speeds) {
  return ranked(list_of(speeds | std::views::values), 0.5);
}

/// The upper quartile over each port's partners. With one alone no one knows which of the two it
/// is: that is a link.
Speeds ports_of(const Speeds& links, std::size_t least_partners = 2) {
  std::map<Path, std::vector<double>> samples;
  for (const auto& [link, speed] : links) {
    samples[{link.from, Path::any}].push_back(speed);
    samples[{Path::any, link.to}].push_back(speed);
  }
  return ranked_each(samples, port_quantile, least_partners);
}

/// How much a path's share differs from round to round: standard deviations.
struct Noise {
  double usual = 0;    ///< by the median difference of two rounds
  double at_most = 0;  ///< by the upper quartile of these, too: a load comes and goes
};

/// Of those paths, by the differences of any two rounds. Two values of one path differ by sqrt(2)
/// deviations.
Noise noise_of(const std::vector<Round>& rounds, const std::function<bool(const Path&)>& which) {
  std::map<Path, std::vector<double>> logs;
  for (const Round& round : rounds)
    for (const auto& [path, compared] : round)
      if (which(path))
        logs[path].push_back(std::log(compared.share()));

  std::vector<double> apart;
  for (const auto& [path, values] : logs)
    for (std::size_t i = 0; i < values.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        apart.push_back(std::abs(values[i] - values[j]));
  if (apart.empty())
    return {};
  std::ranges::sort(apart);
  const double usual = quantile(apart, 0.5) / (normal_median * std::sqrt(2));
  return {usual, std::max(usual, quantile(apart, 0.75) / (normal_quartile * std::sqrt(2)))};
}

/// The paths of one quantity, round by round: which of them are slower than the others?
class Outliers {
public:
  Outliers(const Quantity& quantity,
      const Rule& rule,
      const std::vector<bool>& loaded,
      std::vector<Round> rounds)
      : quantity_(quantity),
        rule_(rule),
        loaded_(loaded),
        rounds_(std::move(rounds)),
        all_loaded_(std::ranges::all_of(loaded, std::identity())),
        few_(!rounds_.empty() && parts_of(rounds_.front()) < many),
        quiet_(noise_of(rounds_, [this](const Path& p) { return !is_loaded(p); })),
        beside_load_(noise_of(rounds_, [this](const Path& p) { return is_loaded(p); })) {
    for (const Round& round : rounds_)
      paths_ = std::max(paths_, round.size());
  }

  /// Those that stand out in rounds enough, but for those that are excused.
  template <class Excused>
  Found find(const Excused& excused) const {
    Found found;
    for (const Round& round : rounds_)
      find(found, round);
    std::erase_if(found, excused);
    if (few_)
      drop_moments(found);
    drop_chances(found);
    for (auto& [path, seen] : found)
      for (Seen& one : seen)
        one.clear = one.clear && seen.size() == rounds_.size();
    return found;
  }

  /// The smallest fault that find() would have named: the threshold of the round that decides, and
  /// some spare for the noise of the fault itself.
  double smallest() const {
    const auto least_rounds = static_cast<std::size_t>(rule_.rounds);
    const std::size_t needed = all_loaded_ || few_ ? rounds_.size() : least_rounds;
    if (needed < least_rounds || rounds_.size() < needed || paths_ < 2)
      return none;
    std::vector<double> thresholds = list_of(rounds_, [this](const Round& round) {
      const double spread = spread_of_peers(round);
      return all_loaded_ ? clear_loss(spread) : least_loss(quiet_, spread);
    });
    std::ranges::sort(thresholds);
    const double noise = all_loaded_ ? beside_load_.at_most : quiet_.usual;
    const double share = thresholds[needed - 1] + detectable_spare * noise;
    if (share >= 1)
      return none;
    if (!quantity_.is_latency())
      return share;
    const double usual = ranked(
        list_of(rounds_.back() | std::views::values, [](const Compared& c) { return c.usual; }),
        0.5);
    return value_of(quantity_, usual * (1 - share)) - value_of(quantity_, usual);
  }

private:
  bool is_loaded(const Path& path) const { return loaded_[path.first()] || loaded_[path.last()]; }

  double gross_loss() const { return quantity_.is_latency() ? gross_latency : gross_rate; }

  /// Share below the usual speed that is worth a word.
  double worth_a_word() const {
    return rule_.least_loss > 0 && !quantity_.is_latency() ? rule_.least_loss
                                                           : quantity_.least_loss;
  }

  /// The share from which on a path stands out.
  double least_loss(const Noise& noise, double spread) const {
    const double by_chance = sigmas * std::max(noise.usual, spread);
    return std::max(worth_a_word(), std::min(by_chance, gross_loss()));
  }

  /// The share from which on no load explains it.
  double clear_loss(double spread) const {
    return std::max(worth_a_word(), loaded_sigmas * std::max(beside_load_.at_most, spread));
  }

  static double usual_share(const Round& round) {
    return ranked(list_of(round | std::views::values, &Compared::share), 0.5);
  }

  /// Ranks, or pairs of ranks: what sends and receives is counted once.
  static std::size_t parts_of(const Round& round) {
    std::set<std::pair<int, int>> parts;
    for (const auto& [path, compared] : round)
      parts.insert(std::minmax(path.first(), path.last()));
    return parts.size();
  }

  /// A standard deviation by the median absolute one, where there are many peers; else 0.
  double spread_of_peers(const Round& round) const {
    if (parts_of(round) < many)
      return 0;
    const double usual = usual_share(round);
    std::vector<double> apart = list_of(round | std::views::values,
        [&](const Compared& c) { return std::abs(c.share() / usual - 1); });
    std::ranges::sort(apart);
    // Of an even number the smaller one: half of the values may be those that are looked for.
    return deviation_of_mad * apart[(apart.size() - 1) / 2];
  }

  void find(Found& found, const Round& round) const {
    const double usual = usual_share(round), spread = spread_of_peers(round);
    for (const auto& [path, compared] : round) {
      const auto loses = [&, share = compared.share()](
                             double loss) { return share < usual * (1 - loss); };
      const double least = least_loss(is_loaded(path) ? beside_load_ : quiet_, spread);
      if (loses(least))
        found[path].push_back({.compared = compared,
            .clear = loses(clear_loss(spread)),
            .gross = loses(std::min(2 * least, gross_loss()))});
    }
  }

  /// Few peers do not tell how far moments reach in which something else ran: what stands out in a
  /// part of the rounds must do so by twice as much.
  void drop_moments(Found& found) const {
    for (auto& [path, seen] : found)
      if (seen.size() < rounds_.size())
        std::erase_if(seen, [](const Seen& one) { return !one.gross; });
    std::erase_if(found, [](const auto& entry) { return entry.second.empty(); });
  }

  /// Leaves what stood out in rounds enough: `rule_.rounds`, or more where so many of all paths
  /// stand out in some round by chance that one of them would stand out so often. What always
  /// stands out counts as no chance.
  void drop_chances(Found& found) const {
    const std::size_t rounds = rounds_.size();
    double chances = 0;
    for (const auto& [path, seen] : found)
      if (seen.size() < rounds)
        chances += seen.size();
    std::erase_if(found, [&](const auto& entry) {
      const std::size_t times = entry.second.size();
      const double others = chances - (times < rounds ? times : 0);
      const double share = others / (paths_ * rounds);
      const double alarms = paths_ * ways(rounds, times) * std::pow(share, times);
      return times < static_cast<std::size_t>(rule_.rounds) || alarms > false_alarms;
    });
  }

  /// n over k.
  static double ways(std::size_t n, std::size_t k) {
    double product = 1;
    for (std::size_t i = 1; i <= k; ++i)
      product *= static_cast<double>(n - k + i) / i;
    return product;
  }

  const Quantity& quantity_;
  const Rule& rule_;
  const std::vector<bool>& loaded_;
  std::vector<Round> rounds_;  ///< those that have values
  bool all_loaded_, few_;
  Noise quiet_, beside_load_;  ///< of paths whose cores the job had, and others
  std::size_t paths_ = 0;      ///< in the largest round
};

/// The median over the rounds in which a path stood out.
Evidence evidence_of(
    const Quantity& quantity, const std::vector<Seen>& seen, const std::string& way = "") {
  const auto middle = [&](double Compared::* part) {
    return value_of(
        quantity, median(list_of(seen, [&](const Seen& one) { return one.compared.*part; })));
  };
  return {.quantity = quantity,
      .way = way,
      .value = middle(&Compared::speed),
      .usual = middle(&Compared::usual),
      .rounds = static_cast<int>(seen.size()),
      .clear = seen.front().clear};
}

/// Of each rank; of a quantity that a node measures together, the median over its ranks.
Speeds own_speeds(
    const Machine& machine, const Quantity& quantity, const std::vector<double>& round) {
  std::map<Path, std::vector<double>> samples;
  for (int rank = 0; rank < machine.nodes.ranks(); ++rank) {
    if (std::isnan(round[rank]))
      continue;
    const int who = quantity.partner == Partner::group
                        ? machine.nodes.first(machine.nodes.group_of(rank))
                        : rank;
    samples[{who, who}].push_back(speed_of(quantity, round[rank]));
  }
  return ranked_each(samples, 0.5);
}

Speeds link_speeds(
    const Machine& machine, const Quantity& quantity, const std::vector<double>& round) {
  const int partners = machine.partners(quantity.partner);
  Speeds links;
  for (int to = 0; to < machine.nodes.ranks(); ++to)
    for (int p = 0; p < partners; ++p)
      if (const double value = round[to * partners + p]; !std::isnan(value))
        links[{machine.rank_of(quantity.partner, to, p), to}] = speed_of(quantity, value);
  return links;
}

/// Links beside what their two ends reach with others.
Round compared_links(const Speeds& links) {
  const double most = median_of(ports_of(links, 1));
  const Speeds ports = ports_of(links);
  const auto reached = [&](const Path& port) {
    return ports.contains(port) ? ports.at(port) : most;
  };
  Round round;
  for (const auto& [link, speed] : links)
    round[link] = {
        speed, std::min({most, reached({link.from, Path::any}), reached({Path::any, link.to})})};
  return round;
}

/// All ranks of a node are the node.
Part part_of(
    const Path& path, const Found& found, const Quantity& quantity, const topology::Groups& nodes) {
  const int rank = path.first();
  if (quantity.between_nodes())
    return {Part::adapter, {rank}};
  if (quantity.partner == Partner::inside)
    return {Part::rank, {rank}};
  const std::vector<int> members = nodes.members(nodes.group_of(rank));
  const bool all_slow =
      std::ranges::all_of(members, [&](int other) { return found.contains({other, other}); });
  const bool is_node =
      quantity.partner == Partner::group || (all_slow && members.size() > 1 && nodes.count() > 1);
  return is_node ? Part{Part::node, members} : Part{Part::rank, {rank}};
}
}  // namespace

Slower slower_parts(const Machine& machine,
    const Measured& measured,
    const Rule& rule,
    const std::vector<bool>& loaded) {
  const Quantity& quantity = measured.quantity;
  const bool passes = quantity.is_of_links();
  std::vector<Round> rounds;
  for (const std::vector<double>& values : measured.rounds) {
    const Speeds speeds = passes ? ports_of(link_speeds(machine, quantity, values))
                                 : own_speeds(machine, quantity, values);
    const double usual = median_of(speeds);
    Round round;
    for (const auto& [path, speed] : speeds)
      round[path] = {speed, usual};
    if (!round.empty())
      rounds.push_back(std::move(round));
  }

  const Outliers outliers(quantity, rule, loaded, std::move(rounds));
  const Found found = outliers.find([](const auto&) { return false; });
  std::vector<Culprit> culprits;
  for (const auto& [path, seen] : found) {
    const Part part = part_of(path, found, quantity, machine.nodes);
    const bool is_new = culprits.empty() || culprits.back().part != part;
    if (is_new)
      culprits.push_back({part});
    const char* const way = !passes ? "" : path.from == Path::any ? ", in" : ", out";
    if (is_new || passes)
      culprits.back().evidence.push_back(evidence_of(quantity, seen, way));
  }
  return {std::move(culprits), outliers.smallest()};
}

Slower slower_links(const Machine& machine,
    const Measured& measured,
    const Rule& rule,
    const std::vector<bool>& loaded,
    const Explained& explained) {
  const Quantity& quantity = measured.quantity;
  std::vector<Round> rounds;
  for (const std::vector<double>& values : measured.rounds)
    if (Round round = compared_links(link_speeds(machine, quantity, values)); !round.empty())
      rounds.push_back(std::move(round));

  const Outliers outliers(quantity, rule, loaded, std::move(rounds));
  const Found found = outliers.find([&](const auto& entry) {
    const auto& [link, seen] = entry;
    const Evidence evidence = evidence_of(quantity, seen);
    return explained(link.from, evidence) || explained(link.to, evidence);
  });
  std::vector<Culprit> culprits;
  for (const auto& [link, seen] : found) {
    const bool both = found.contains({link.to, link.from});
    if (!both || link.from < link.to)
      culprits.push_back({{Part::link, {link.from, link.to}}, both, {evidence_of(quantity, seen)}});
  }
  return {std::move(culprits), outliers.smallest()};
}
}  // namespace minitaw::screen
