// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <ranges>
#include <set>
#include "case/result.hpp"
#include "instruments/screen/screening.hpp"

namespace minitaw::screen {
namespace {
constexpr double none = std::numeric_limits<double>::quiet_NaN();

/// The smallest value that so large a share of them does not exceed; NaN without values.
double ranked(std::vector<double> values, double share) {
  if (values.empty())
    return none;
  const auto last = static_cast<double>(values.size() - 1);
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(std::ceil(share * last));
  std::ranges::nth_element(values, at);
  return *at;
}

double score(const Quantity& q, double value) {
  return q.is_latency ? 1 / (value + latency_floor) : value;
}

double unscore(const Quantity& q, double score) {
  return q.is_latency ? 1 / score - latency_floor : score;
}

struct Flow {
  int from = -1, to = -1;
  double score = none;
};

enum class Way : std::uint8_t { own, sends, receives };

struct Port {
  int rank;
  Way way;
  friend auto operator<=>(const Port&, const Port&) = default;
};

using Scores = std::map<Port, std::vector<double>>;

std::map<Port, double> ranked_each(const Scores& scores, double share, std::size_t least = 1) {
  std::map<Port, double> all;
  for (const auto& [port, values] : scores)
    if (values.size() >= least)
      all[port] = ranked(values, share);
  return all;
}

/// Of one part, in one round.
struct Value {
  double score = none, expected = none;

  [[nodiscard]] double share() const { return score / expected; }
};

/// A round in which a part stood out.
struct Seen {
  Value value;
  bool clear = true;
  bool gross = true;  ///< by twice what is needed
};
template <class Key>
using Found = std::map<Key, std::vector<Seen>>;
template <class Key>
using Rounds = std::vector<std::map<Key, Value>>;  // those that have values

using Link = std::pair<int, int>;

int rank_of(const Port& port) {
  return port.rank;
}

Link rank_of(const Link& link) {
  return std::minmax(link.first, link.second);
}

/// Standard deviation of a part's share from round to round, by the differences of any two rounds
/// of those parts: two values differ by sqrt(2) deviations, and such differences have known
/// quantiles.
struct Repeats {
  double usual = 0;    ///< by their median
  double at_most = 0;  ///< by their upper quartile, too: a load comes and goes
};

template <class Key, class Which>
Repeats repeats(const Rounds<Key>& rounds, const Which& which) {
  std::map<Key, std::vector<double>> parts;
  for (const auto& round : rounds)
    for (const auto& [key, value] : round)
      if (which(key))
        parts[key].push_back(std::log(value.share()));
  std::vector<double> apart;
  for (const auto& [key, logs] : parts)
    for (std::size_t i = 0; i < logs.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        apart.push_back(std::abs(logs[i] - logs[j]));
  if (apart.empty())
    return {};
  std::ranges::sort(apart);
  const double usual = quantile(apart, 0.5) / (0.6745 * std::sqrt(2));
  return {usual, std::max(usual, quantile(apart, 0.75) / (1.1503 * std::sqrt(2)))};
}

/// Judges one quantity.
class Judge {
public:
  Judge(const Machine& machine,
      const Measured& measured,
      const Rule& rule,
      const std::vector<bool>& loaded)
      : machine_(machine),
        measured_(measured),
        rule_(rule),
        loaded_(loaded),
        least_(rule.least > 0 && !quantity().is_latency ? rule.least : quantity().least) {}

  /// Ranks, nodes and adapters. `smallest`: that would have been found.
  [[nodiscard]] std::vector<Culprit> find_parts(double& smallest) const {
    Rounds<Port> rounds;
    for (const std::vector<double>& round : measured_.rounds) {
      std::map<Port, Value> values;
      const auto scores = quantity().partner == Partner::none ? own(round) : reach(flows(round));
      const double usual = ranked(list_of(scores | std::views::values), 0.5);
      for (const auto& [port, score] : scores)
        values[port] = {score, usual};
      if (!values.empty())
        rounds.push_back(std::move(values));
    }
    const Found<Port> ports = find(rounds, smallest);
    return quantity().partner == Partner::none ? merge_ranks(ports) : merge_ports(ports);
  }

  /// Links, but for those that end at a rank which accounts for what stands out.
  using Explained = std::function<bool(int rank, const Evidence& evidence)>;

  [[nodiscard]] std::vector<Culprit> find_links(
      const Explained& explained, double& smallest) const {
    Rounds<Link> rounds;
    for (const std::vector<double>& round : measured_.rounds)
      if (auto values = compared(flows(round)); !values.empty())
        rounds.push_back(std::move(values));
    const Found<Link> links = find(rounds, smallest, [&](const auto& link) {
      const Evidence seen = evidence(link.second);
      return explained(link.first.first, seen) || explained(link.first.second, seen);
    });
    std::vector<Culprit> culprits;
    for (const auto& [link, seen] : links) {
      const auto [from, to] = link;
      const bool both = links.contains({to, from});
      if (!both || from < to)
        culprits.push_back({{Suspect::link, from, to}, both, {evidence(seen)}});
    }
    return culprits;
  }

private:
  [[nodiscard]] const Quantity& quantity() const { return measured_.quantity; }

  [[nodiscard]] bool is_loaded(const Port& port) const { return loaded_[port.rank]; }

  [[nodiscard]] bool is_loaded(const Link& link) const {
    return loaded_[link.first] || loaded_[link.second];
  }

  /// By rank, or by the first rank of a node.
  [[nodiscard]] std::map<Port, double> own(const std::vector<double>& round) const {
    Scores scores;
    for (int r = 0; r < machine_.nodes.ranks(); ++r)
      if (const double s = score(quantity(), round[r]); !std::isnan(s))
        scores[{quantity().of_node ? machine_.nodes.first(machine_.nodes.group_of(r)) : r,
                   Way::own}]
            .push_back(s);
    return ranked_each(scores, 0.5);
  }

  [[nodiscard]] std::vector<Flow> flows(const std::vector<double>& round) const {
    const int partners = machine_.partners(quantity().partner);
    std::vector<Flow> all;
    for (int to = 0; to < machine_.nodes.ranks(); ++to)
      for (int p = 0; p < partners; ++p)
        if (const double value = round[to * partners + p]; !std::isnan(value))
          all.push_back(
              {machine_.rank_behind(quantity().partner, to, p), to, score(quantity(), value)});
    return all;
  }

  /// The upper quartile over each port's partners. With one alone nobody knows which of the two it
  /// is: that is a link.
  static std::map<Port, double> reach(
      const std::vector<Flow>& flows, std::size_t least_partners = 2) {
    Scores scores;
    for (const Flow& f : flows) {
      scores[{f.from, Way::sends}].push_back(f.score);
      scores[{f.to, Way::receives}].push_back(f.score);
    }
    return ranked_each(scores, 0.75, least_partners);
  }

  /// Links, and what their two ends reach with others.
  static std::map<Link, Value> compared(const std::vector<Flow>& flows) {
    const double most = ranked(list_of(reach(flows, 1) | std::views::values), 0.5);
    const std::map<Port, double> ports = reach(flows);
    const auto cap = [&](Port port) { return ports.contains(port) ? ports.at(port) : most; };
    std::map<Link, Value> values;
    for (const Flow& f : flows)
      values[{f.from, f.to}] = {
          f.score, std::min({most, cap({f.from, Way::sends}), cap({f.to, Way::receives})})};
    return values;
  }

  /// Finds what stands out in rounds enough, and the smallest fault that would have: with two
  /// deviations to spare.
  template <class Key, class Drop = bool (*)(const std::pair<const Key, std::vector<Seen>>&)>
  [[nodiscard]] Found<Key> find(
      const Rounds<Key>& rounds, double& smallest, const Drop& drop = [](const auto&) {
        return false;
      }) const {
    const Repeats quiet = repeats(rounds, [&](const Key& key) { return !is_loaded(key); });
    const Repeats beside_load = repeats(rounds, [&](const Key& key) { return is_loaded(key); });
    const bool all_loaded = std::ranges::all_of(loaded_, [](bool loaded) { return loaded; });
    const double repeat = all_loaded ? beside_load.at_most : quiet.usual;
    Found<Key> found;
    std::vector<double> thresholds;
    double usual_score = none;
    std::size_t subjects = 0;
    for (const auto& round : rounds) {
      const double usual =
          ranked(list_of(round, [](const auto& part) { return part.second.share(); }), 0.5);
      const double peers = deviation_of_peers(round, usual);
      for (const auto& [key, value] : round) {
        const double by_chance =
            rule_.sigmas * std::max((is_loaded(key) ? beside_load : quiet).usual, peers);
        const double by_load = rule_.loaded_sigmas * std::max(beside_load.at_most, peers);
        const double needed = std::max(least_, std::min(by_chance, most_by_chance()));
        const double most = std::max(least_, by_load);
        if (value.share() < usual * (1 - needed))
          found[key].push_back({value,
              value.share() < usual * (1 - most),
              value.share() < usual * (1 - std::min(2 * needed, most_by_chance()))});
      }
      const double chance =
          (all_loaded ? rule_.loaded_sigmas : rule_.sigmas) * std::max(repeat, peers);
      thresholds.push_back(
          std::max(least_, all_loaded ? chance : std::min(chance, most_by_chance())));
      usual_score =
          ranked(list_of(round, [](const auto& part) { return part.second.expected; }), 0.5);
      subjects = std::max(subjects, round.size());
    }
    std::erase_if(found, drop);
    const bool few = !rounds.empty() && parts_of(rounds.front()) < rule_.many;
    if (few)
      drop_moments(found, rounds.size());
    keep(found, subjects, rounds.size());
    for (auto& [key, seen] : found)
      for (Seen& one : seen)
        one.clear = one.clear && seen.size() == rounds.size();
    std::ranges::sort(thresholds);
    const std::size_t needed =
        all_loaded || few ? rounds.size() : static_cast<std::size_t>(rule_.rounds);
    smallest = needed < static_cast<std::size_t>(rule_.rounds) || thresholds.size() < needed ||
                       subjects < 2
                   ? none
                   : as_loss(usual_score, thresholds[needed - 1] + 2 * repeat);
    return found;
  }

  /// A share of the score as a share of a rate, or as seconds.
  [[nodiscard]] double as_loss(double usual, double share) const {
    if (share >= 1)
      return none;
    if (!quantity().is_latency)
      return share;
    return unscore(quantity(), usual * (1 - share)) - unscore(quantity(), usual);
  }

  /// Half a rate and ten latencies always count.
  [[nodiscard]] double most_by_chance() const { return quantity().is_latency ? 0.9 : 0.5; }

  template <class Key>
  static std::size_t parts_of(const std::map<Key, Value>& round) {
    std::set<decltype(rank_of(round.begin()->first))> parts;
    for (const auto& [key, value] : round)
      parts.insert(rank_of(key));
    return parts.size();
  }

  /// Few peers do not tell how far moments reach in which something else ran: what stands out in a
  /// part of the rounds must do so by twice as much.
  template <class Key>
  static void drop_moments(Found<Key>& found, std::size_t rounds) {
    for (auto& [key, seen] : found)
      if (seen.size() < rounds)
        std::erase_if(seen, [](const Seen& one) { return !one.gross; });
    std::erase_if(found, [](const auto& entry) { return entry.second.empty(); });
  }

  /// By the median absolute deviation, where there are many.
  template <class Key>
  double deviation_of_peers(const std::map<Key, Value>& round, double usual) const {
    if (parts_of(round) < rule_.many)
      return 0;
    std::vector<double> apart =
        list_of(round, [&](const auto& part) { return std::abs(part.second.share() / usual - 1); });
    std::ranges::sort(apart);
    // Of an even number the smaller one: half of the values may be those that are looked for.
    return 1.4826 * apart[(apart.size() - 1) / 2];
  }

  /// Leaves what stood out in rounds enough: `rule_.rounds`, or more where so many of all
  /// `subjects` stand out in some round by chance that one of them would stand out so often. What
  /// always stands out counts as no chance.
  template <class Key>
  void keep(Found<Key>& found, std::size_t subjects, std::size_t count) const {
    const auto rounds = static_cast<std::ptrdiff_t>(count);
    double chances = 0;
    for (const auto& [key, times] : found)
      if (std::ssize(times) < rounds)
        chances += static_cast<double>(times.size());
    std::erase_if(found, [&](const auto& entry) {
      const auto times = std::ssize(entry.second);
      const double others = chances - (times < rounds ? static_cast<double>(times) : 0);
      const double share = others / static_cast<double>(subjects * count);
      return times < rule_.rounds ||
             static_cast<double>(subjects) * ways(rounds, times) * std::pow(share, times) >
                 rule_.false_alarms;
    });
  }

  /// n over k.
  static double ways(std::ptrdiff_t n, std::ptrdiff_t k) {
    double product = 1;
    for (std::ptrdiff_t i = 1; i <= k; ++i)
      product *= static_cast<double>(n - k + i) / static_cast<double>(i);
    return product;
  }

  [[nodiscard]] Evidence evidence(
      const std::vector<Seen>& seen, const std::string& way = "") const {
    const auto middle = [&](double Value::* of) {
      return unscore(
          quantity(), median(list_of(seen, [&](const Seen& one) { return one.value.*of; })));
    };
    return {quantity(),
        way,
        middle(&Value::score),
        middle(&Value::expected),
        static_cast<int>(seen.size()),
        seen.front().clear};
  }

  /// All ranks of a node are the node.
  [[nodiscard]] std::vector<Culprit> merge_ranks(const Found<Port>& found) const {
    std::vector<Culprit> culprits;
    const topology::Groups& nodes = machine_.nodes;
    for (const auto& [port, seen] : found) {
      const int node = nodes.group_of(port.rank);
      const auto slow = std::ranges::count_if(
          nodes.members(node), [&](int rank) { return found.contains({rank, Way::own}); });
      const bool whole =
          quantity().of_node || (slow == nodes.size(node) && slow > 1 && nodes.count() > 1);
      const Suspect who = whole ? Suspect{Suspect::node, node} : Suspect{Suspect::rank, port.rank};
      if (culprits.empty() || culprits.back().who != who)
        culprits.push_back({who, false, {evidence(seen)}});
    }
    return culprits;
  }

  [[nodiscard]] std::vector<Culprit> merge_ports(const Found<Port>& found) const {
    std::vector<Culprit> culprits;
    for (const auto& [port, seen] : found) {
      const Suspect who{
          quantity().partner == Partner::node ? Suspect::adapter : Suspect::rank, port.rank};
      if (culprits.empty() || culprits.back().who != who)
        culprits.push_back({who});
      culprits.back().evidence.push_back(evidence(seen, port.way == Way::sends ? ", out" : ", in"));
    }
    return culprits;
  }

  const Machine& machine_;
  const Measured& measured_;
  const Rule& rule_;
  const std::vector<bool>& loaded_;
  double least_;
};

/// Returns whether what a culprit is may be slow at this rank: an adapter only for what passes it.
bool concerns(const Culprit& culprit, int rank, const Quantity& quantity, const Machine& machine) {
  switch (culprit.who.kind) {
  case Suspect::node: return machine.nodes.group_of(rank) == culprit.who.a;
  case Suspect::rank: return rank == culprit.who.a;
  case Suspect::adapter: return rank == culprit.who.a && quantity.partner == Partner::node;
  case Suspect::some_adapters:
    return quantity.partner == Partner::node &&
           std::ranges::find(culprit.among, rank) != culprit.among.end();
  case Suspect::some_ranks:
  case Suspect::link: break;
  }
  return false;
}

/// Returns whether a culprit accounts for what is slow at this rank. One whose kernels are slow by
/// a tenth does not send at a third of the rate, nor in rounds in which they are not slow. Slow
/// kernels make no latency: that is the fastest of many round trips, each of which needs no more
/// than a moment of a core.
bool explains(const Culprit& culprit, int rank, const Evidence& evidence, const Machine& machine) {
  if (!concerns(culprit, rank, evidence.quantity, machine))
    return false;
  if (culprit.who.kind == Suspect::adapter || culprit.who.kind == Suspect::some_adapters)
    return true;
  if (evidence.quantity.is_latency)
    return false;
  double most = 1;
  int rounds = 0;
  for (const Evidence& e : culprit.evidence) {
    most = std::max(most, e.usual / e.value);  // times as slow
    rounds = std::max(rounds, e.rounds);
  }
  return evidence.usual / evidence.value <= most * most * most && evidence.rounds <= rounds;
}

/// Leaves out what other culprits account for; a node is slow together if one of its ranks is.
void drop_explained(Culprit& c, const std::vector<Culprit>& all, const Machine& machine) {
  std::erase_if(c.evidence, [&](const Evidence& evidence) {
    return std::ranges::any_of(all, [&](const Culprit& known) {
      if (known.who == c.who)
        return false;
      if (c.who.kind != Suspect::node)
        return explains(known, c.who.a, evidence, machine);
      return evidence.quantity.of_node && known.who.kind == Suspect::rank &&
             machine.nodes.group_of(known.who.a) == c.who.a;
    });
  });
}

/// Adds a culprit, or what more is known of it; the other direction of a link is the same one.
void add(std::vector<Culprit>& culprits, const Culprit& more) {
  if (more.evidence.empty())
    return;
  Suspect other_way = more.who;
  if (more.who.kind == Suspect::link)
    std::swap(other_way.a, other_way.b);
  const auto known = std::ranges::find_if(culprits, [&](const Culprit& c) {
    return (c.who == more.who || c.who == other_way) && c.among == more.among;
  });
  if (known == culprits.end())
    return culprits.push_back(more);
  known->both_ways |= more.both_ways || known->who != more.who;
  known->evidence.insert(known->evidence.end(), more.evidence.begin(), more.evidence.end());
}

/// What others took of each rank's cores: [round][rank]; empty: not measured.
std::vector<std::vector<double>> loads(const std::vector<Measured>& measured) {
  for (const Measured& m : measured)
    if (m.quantity.is_load)
      return m.rounds;
  return {};
}

/// Ranks that are left with fewer rounds than a verdict needs.
std::vector<bool> loaded_ranks(
    const std::vector<std::vector<double>>& loads, int ranks, const Rule& rule) {
  std::vector<bool> loaded(ranks, false);
  for (int rank = 0; rank < ranks && !loads.empty(); ++rank)
    loaded[rank] = std::ranges::count_if(loads, [&](const auto& round) {
      return !(round[rank] > rule.most_load);
    }) < rule.rounds;
  // Those that are left have few peers.
  if (2 * std::ranges::count(loaded, true) > ranks)
    loaded.assign(ranks, true);
  return loaded;
}

/// Takes out what was measured while others had the cores of a rank which has other rounds.
Measured without_loaded(const Measured& measured,
    const Machine& machine,
    const std::vector<std::vector<double>>& loads,
    const std::vector<bool>& loaded,
    const Rule& rule) {
  Measured rest = measured;
  const int partners = machine.partners(rest.quantity.partner);
  for (std::size_t round = 0; round < std::min(loads.size(), rest.rounds.size()); ++round) {
    const auto counts = [&](int rank) {
      return rank < 0 || loaded[rank] || !(loads[round][rank] > rule.most_load);
    };
    for (int rank = 0; rank < machine.nodes.ranks(); ++rank)
      for (int p = 0; p < partners; ++p)
        if (!counts(rank) || !counts(machine.rank_behind(rest.quantity.partner, rank, p)))
          rest.rounds[round][rank * partners + p] = none;
  }
  return rest;
}

bool touches(const Culprit& c, const std::vector<bool>& loaded, const Machine& machine) {
  const auto is_loaded = [&](int rank) { return static_cast<bool>(loaded[rank]); };
  if (!c.among.empty())
    return std::ranges::any_of(c.among, is_loaded);
  if (c.who.kind == Suspect::node)
    return std::ranges::any_of(machine.nodes.members(c.who.a), is_loaded);
  return is_loaded(c.who.a) || (c.who.kind == Suspect::link && is_loaded(c.who.b));
}

/// Parts a load from what may be its doing.
void divide(Judgement& judgement, const std::vector<bool>& loaded, const Machine& machine) {
  std::vector<Culprit> all = std::move(judgement.culprits);
  judgement.culprits.clear();
  for (Culprit& c : all) {
    const auto clear = [](const Evidence& e) { return e.clear; };
    const bool beside_load = touches(c, loaded, machine);
    if (beside_load && std::ranges::none_of(c.evidence, clear)) {
      judgement.doubtful.push_back(std::move(c));
      continue;
    }
    if (beside_load)
      std::erase_if(c.evidence, [](const Evidence& e) { return !e.clear; });
    judgement.culprits.push_back(std::move(c));
  }
}
}  // namespace

Judgement judge(const Machine& machine, const std::vector<Measured>& measured, const Rule& rule) {
  Judgement judgement{.smallest = std::vector<Smallest>(measured.size())};
  const auto load = loads(measured);
  for (const std::vector<double>& round : load)
    for (const double share : round)
      judgement.load = std::fmax(judgement.load, share);
  const std::vector<bool> loaded = loaded_ranks(load, machine.nodes.ranks(), rule);
  for (int rank = 0; rank < machine.nodes.ranks(); ++rank)
    if (loaded[rank])
      judgement.loaded.push_back(rank);
  const std::vector<Measured> rest = list_of(
      measured, [&](const Measured& m) { return without_loaded(m, machine, load, loaded, rule); });
  std::vector<Culprit>& culprits = judgement.culprits;
  const auto each = [&](bool of_node, Partner partner, const auto& work) {
    for (std::size_t q = 0; q < rest.size(); ++q)
      if (const Quantity& is = rest[q].quantity;
          is.partner == partner && is.of_node == of_node && !is.is_load)
        work(rest[q], judgement.smallest[q]);
  };
  for (const bool of_node : {false, true})
    for (const Partner partner : {Partner::none, Partner::node, Partner::inside})
      each(of_node, partner, [&](const Measured& m, Smallest& smallest) {
        for (Culprit& found : Judge(machine, m, rule, loaded).find_parts(smallest.part)) {
          drop_explained(found, culprits, machine);
          add(culprits, found);
        }
      });
  for (const Measured& m : rest)
    for (Culprit& found : below_known(machine, m, culprits)) {
      drop_explained(found, culprits, machine);
      add(culprits, found);
    }
  std::vector<Culprit> links;
  for (const Partner partner : {Partner::node, Partner::inside})
    each(false, partner, [&](const Measured& m, Smallest& smallest) {
      const auto explained = [&](int rank, const Evidence& evidence) {
        return std::ranges::any_of(
            culprits, [&](const Culprit& c) { return explains(c, rank, evidence, machine); });
      };
      for (const Culprit& found :
          Judge(machine, m, rule, loaded).find_links(explained, smallest.link))
        add(links, found);
    });
  culprits.insert(culprits.end(), links.begin(), links.end());
  divide(judgement, loaded, machine);
  return judgement;
}

std::vector<std::vector<std::pair<int, int>>> tournament(int n) {
  if (n < 2)
    return {};
  const int seats = n + n % 2;  // an odd one out has a pause
  std::vector<std::vector<std::pair<int, int>>> rounds;
  for (int round = 0; round + 1 < seats; ++round) {
    std::vector<std::pair<int, int>>& pairs = rounds.emplace_back();
    // All but the last one sit in a circle, which turns by one place from round to round.
    for (int i = 0; i < seats / 2; ++i) {
      const int a = i == 0 ? seats - 1 : (round + i) % (seats - 1);
      const int b = i == 0 ? round : (round + seats - 1 - i) % (seats - 1);
      if (a < n && b < n)
        pairs.emplace_back(std::min(a, b), std::max(a, b));
    }
  }
  return rounds;
}
}  // namespace minitaw::screen
