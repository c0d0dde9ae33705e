// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/blame/blame.hpp"
#include <algorithm>
#include <deque>
#include <fmt/format.h>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include "base/range.hpp"
#include "base/statistics.hpp"
#include "schedule/execute.hpp"

// A part is what is compared with its peers: a rank, a node, an adapter, or a link, which is
// a * nodes + b from node a to node b. A culprit is a part that stands out.
namespace minitaw::blame {
namespace {
using schedule::Action, schedule::Kind, schedule::Place, schedule::Sides, schedule::Span;
using trace::StepSpans;

// docs/results.md, "Who holds the step up", says each number.

/// Standard deviations beyond which a difference is no chance.
constexpr double sigmas = 4;
/// A standard deviation of a normal distribution, in median deviations.
constexpr double sigma_of_deviation = 1.4826;
/// A difference that one peer or two steps can show.
constexpr double clear = 0.2;
/// Differences that are worth a word.
constexpr double least_of_ranks = 0.05, least_of_links = 0.25;
/// Share of the step that is worth a word.
constexpr double least_share = 0.005;

/// What a rank or link has of a class of work in a step.
struct Share {
  double amount = 0;
  std::vector<Place> actions{};  ///< compute actions, or sends
  std::vector<double> units{};   ///< seconds of an amount of 1 in each step; NaN: not measured
};

/// By class (kind, FLOPs, bytes) and part. Work of a class takes all as long for the same amount,
/// if nothing is wrong.
using Works = std::map<std::tuple<Kind, double, double>, std::map<int, Share>>;

/// What a part takes relative to the usual: median over the steps, and its standard error.
struct Time {
  double middle, error;
};

using Times = std::map<int, Time>;
/// Parts that are slow together if their name is the culprit's.
using Candidates = std::map<std::string, std::set<int>>;

struct Culprit {
  std::string name{};
  std::set<int> parts{};
  double ratio = 1;       ///< its time to the median of its peers
  std::size_t peers = 0;  ///< 0: nothing stands out
};

Candidates ranks_and_nodes(int ranks, const topology::Groups& nodes) {
  const bool one = nodes.group_of(ranks - 1) == 0;
  Candidates all;
  for (int r = 0; r < ranks; ++r) {
    const std::string node = fmt::format("node {}", nodes.group_of(r));
    all[node].insert(r);
    all[one ? fmt::format("rank {}", r) : fmt::format("rank {} ({})", r, node)] = {r};
  }
  return all;
}

/// The links of two nodes, both ways.
Candidates pairs_of(const Works& messages, const topology::Groups& nodes) {
  Candidates all;
  for (const auto& [cls, shares] : messages)
    for (const auto& [link, share] : shares) {
      const auto [a, b] = std::minmax({link / nodes.count(), link % nodes.count()});
      all[fmt::format("the link of nodes {} and {}", a, b)].insert(link);
    }
  return all;
}

/// A message between two nodes, from when it may have begun.
struct Flight {
  Share* share;
  Span from, to;
  bool alone = true;

  double begin() const { return from.begin; }

  double end() const { return std::max(from.end, to.end); }

  /// Returns whether its time tells the rate of the link: it had both adapters for itself, and its
  /// receiver was there before it, so that none of it had passed before.
  bool tells() const { return alone && to.begin <= from.begin; }
};

/// Marks messages through one adapter in one direction that meet another one there.
void mark_company(std::vector<Flight*>& flights) {
  std::ranges::sort(flights, {}, &Flight::begin);
  Flight* longest = nullptr;
  for (Flight* flight : flights) {
    if (longest != nullptr && flight->begin() < longest->end())
      longest->alone = flight->alone = false;
    if (longest == nullptr || flight->end() > longest->end())
      longest = flight;
  }
}

/// The usual is the lower median of a class in a step. Parts that have no work in common with
/// others are left out.
Times times(const Works& works, std::size_t steps) {
  std::map<int, std::vector<double>> of_steps;
  for (std::size_t step = 0; step < steps; ++step) {
    std::map<int, double> taken, expected;
    for (const auto& [cls, shares] : works) {
      std::vector<double> units;
      for (const auto& [part, share] : shares)
        if (!std::isnan(share.units[step]))
          units.push_back(share.units[step]);
      if (units.size() < 2)
        continue;
      std::ranges::sort(units);
      for (const auto& [part, share] : shares) {
        if (std::isnan(share.units[step]))
          continue;
        taken[part] += share.amount * share.units[step];
        expected[part] += share.amount * units[(units.size() - 1) / 2];
      }
    }
    for (const auto& [part, usual] : expected)
      if (usual > 0)
        of_steps[part].push_back(taken[part] / usual);
  }

  Times all;
  for (auto& [part, some] : of_steps) {
    std::ranges::sort(some);
    // The lower quartile is 0.67 standard deviations away; the median has 1.25 of them /
    // sqrt(steps).
    const double middle = median(some), deviation = middle - some[(some.size() - 1) / 4];
    all[part] = {middle, 1.25 * sigma_of_deviation * deviation / std::sqrt(some.size())};
  }
  return all;
}

/// Returns how many times as long these parts take as the median of all others, if they stand out
/// from them (docs/results.md). `least`: the difference that is worth a word.
std::optional<double> stands_out(const std::set<int>& parts, const Times& times, double least) {
  std::vector<double> own, peers;
  for (const auto& [part, time] : times)
    (parts.contains(part) ? own : peers).push_back(time.middle);
  if (peers.empty() || own.size() < parts.size())
    return {};
  if (peers.size() < 2)
    least = std::max(clear, least);
  const double centre = median(peers);
  const std::vector<double> deviations =
      list_of(peers, [=](double peer) { return std::abs(peer - centre); });
  double needed = std::max(sigmas * sigma_of_deviation * median(deviations), centre * least);
  if (peers.size() < 8)
    needed = std::max(needed, 2 * std::ranges::max(deviations));  // the oddest of few counts too
  needed = std::max(
      needed, (std::ranges::max(own) - centre) / 2);  // more than twice the least is not one cause
  const bool all = std::ranges::all_of(parts, [&](int part) {
    const auto [middle, error] = times.at(part);
    return middle - centre > std::max(needed, sigmas * error);
  });
  return all ? std::optional(median(own) / centre) : std::nullopt;
}

/// The one of most parts, of these the slowest, of these the last.
Culprit worst(const Candidates& candidates, const Times& times, double least) {
  Culprit worst;
  for (const auto& [name, parts] : candidates)
    if (const auto ratio = stands_out(parts, times, least);
        ratio && std::pair(parts.size(), *ratio) >= std::pair(worst.parts.size(), worst.ratio))
      worst = {name, parts, *ratio, times.size() - parts.size()};
  return worst;
}

/// The links of a node, and what each adapter reaches at best: over its fastest link, of others
/// without that node.
std::pair<std::set<int>, Times> links_of(
    int candidate, const Times& links, const topology::Groups& nodes) {
  std::set<int> own;
  Times adapters;
  for (const auto& [link, time] : links) {
    const std::array ends = {link / nodes.count(), link % nodes.count()};
    const bool touches = std::ranges::count(ends, candidate) > 0;
    if (touches)
      own.insert(link);
    for (const int node : ends)
      if (touches == (node == candidate))
        if (const auto at = adapters.try_emplace(node, time).first; time.middle < at->second.middle)
          at->second = time;
  }
  return {std::move(own), std::move(adapters)};
}

/// An adapter, or a link of two nodes. A slow adapter slows other messages of those that it talks
/// to as well: what tells it from them is that none of its links is fast.
Culprit worst_link(const Works& messages, const Times& links, const topology::Groups& nodes) {
  Culprit adapter;
  for (int node = 0; node < nodes.count(); ++node) {
    const auto [own, adapters] = links_of(node, links, nodes);
    std::set<int> neighbours;  // with one alone no one knows which of the two it is
    for (const int link : own)
      neighbours.insert({link / nodes.count(), link % nodes.count()});
    const auto ratio = stands_out({node}, adapters, least_of_links);
    if (neighbours.size() < 3 || !ratio || *ratio <= adapter.ratio)
      continue;
    const double best = adapters.at(node).middle, centre = best / *ratio;
    // More than twice the least of its own is not one cause.
    if (std::ranges::any_of(
            own, [&](int link) { return links.at(link).middle - centre > 2 * (best - centre); }))
      continue;
    adapter = {fmt::format("the adapter of node {}", node), own, *ratio, adapters.size() - 1};
  }
  const Culprit pair = worst(pairs_of(messages, nodes), links, least_of_links);
  return adapter.parts.size() > pair.parts.size() ? adapter : pair;
}

/// `words`: what it does, with a number and the peers. `at_least`: it may cost more.
Finding told(const Culprit& who, const std::string& words, double share, bool at_least) {
  std::string end = "; the step would be as long without it";
  if (share >= least_share)
    end = fmt::format("; without it the step would be {}{:.0f} % shorter",
        at_least ? "at least " : "",
        100 * share);
  if (std::isnan(share))
    end = "";
  return {fmt::format("{} {}{}", who.name, words, end), who.name, who.ratio - 1, share};
}

/// The steps of one case.
class Steps {
public:
  Steps(const schedule::Program& program,
      const model::Layout& layout,
      const std::vector<std::int64_t>& own,
      const topology::Groups& nodes,
      std::span<const StepSpans> steps)
      : program_(program),
        layout_(layout),
        nodes_(nodes),
        first_(steps.front()),
        matching_(schedule::detail::match(program)) {
    model::Layout of_rank = layout;
    for (int r = 0; r < ranks(); ++r) {
      if (!own.empty())
        of_rank.shape.micro_batch = own[r];
      add_work(r, of_rank);
    }
    for (const StepSpans& spans : steps) {
      measure_computing(spans);
      measure_messages(spans);
    }
    of_ranks_ = times(computing_, steps.size());
    of_links_ = times(messages_, steps.size());
    least_ = steps.size() < 3 ? clear : least_of_ranks;
  }

  Finding find(const std::string& crowd) const {
    Finding found{.text = of_links_.empty() ? no_rank : no_rank_or_link};
    if (!crowd.empty()) {
      found.text =
          fmt::format("no rank or link is judged: {}; minitaw screen measures each alone", crowd);
    } else {
      const Culprit slow = worst(ranks_and_nodes(ranks(), nodes_), of_ranks_, least_);
      const Culprit link = worst_link(messages_, of_links_, nodes_);
      if (slow.peers > 0)
        found = finding_of_rank(slow);
      const Finding of_link = link.peers > 0 ? finding_of_link(link, slow.parts) : Finding{};
      if (!of_link.text.empty() && !(of_link.share <= found.share))
        found = of_link;
    }
    found.ratios.resize(ranks(), Finding::unknown);
    for (const auto& [rank, time] : of_ranks_)
      found.ratios[rank] = time.middle;
    return found;
  }

private:
  int ranks() const { return std::ssize(program_.ranks); }

  Sides sides_of(Place place) const { return matching_.sides_of(matching_.transfer_of(place)); }

  /// Compute actions of ranks are of one class if they have the same FLOPs (of visits: for a block)
  /// and bytes; messages are work of the link between nodes that they pass. Collectives pass many
  /// links, and tell of none.
  void add_work(int rank, const model::Layout& layout) {
    const auto add = [](Share& share, double amount, Place place) {
      share.amount += amount;
      share.actions.push_back(place);
    };
    for (Place place{rank, -1}; const Action& a : program_.ranks[rank].actions) {
      ++place.action;
      if (a.lane == schedule::Lane::compute) {
        const bool whole = schedule::is_visit(a.kind) && !schedule::is_segment(a.kind);
        const double blocks = whole ? layout.shards[a.shard].layers : 1,
                     flops = schedule::flops(a, layout) / blocks,
                     bytes = touched_bytes(program_, rank, a, layout);
        if (flops + bytes > 0)
          add(computing_[{a.kind, flops, bytes}][rank], blocks, place);
      } else if (a.kind == Kind::send && !nodes_.together(rank, a.peer) &&
                 moved_bytes(a, layout) > 0) {
        const int link = nodes_.group_of(rank) * nodes_.count() + nodes_.group_of(a.peer);
        add(messages_[{a.kind, 0, moved_bytes(a, layout)}][link], 1, place);
      }
    }
  }

  void measure_computing(const StepSpans& spans) {
    for (auto& [cls, shares] : computing_)
      for (auto& [rank, share] : shares) {
        double sum = 0;
        for (const Place place : share.actions)
          sum += spans[place.rank][place.action].end - spans[place.rank][place.action].begin;
        share.units.push_back(sum / share.amount);
      }
  }

  /// The median of the messages that tell.
  void measure_messages(const StepSpans& spans) {
    std::deque<Flight> all;                                         // keeps its places
    std::map<std::pair<int, bool>, std::vector<Flight*>> adapters;  // node, whether it sends
    for (auto& [cls, shares] : messages_)
      for (auto& [link, share] : shares)
        for (const Place send : share.actions) {
          const Place receive = sides_of(send)[1];
          all.push_back(
              {&share, spans[send.rank][send.action], spans[receive.rank][receive.action]});
          adapters[{nodes_.group_of(send.rank), true}].push_back(&all.back());
          adapters[{nodes_.group_of(receive.rank), false}].push_back(&all.back());
        }
    for (auto& [port, flights] : adapters)
      mark_company(flights);
    std::map<Share*, std::vector<double>> seconds;
    for (const Flight& flight : all)
      if (std::vector<double>& of_share = seconds[flight.share]; flight.tells())
        of_share.push_back(flight.end() - flight.begin());
    for (const auto& [share, some] : seconds)
      share->units.push_back(median(some));
  }

  /// A rank or node that computes slowly.
  Finding finding_of_rank(const Culprit& slow) const {
    Speedups speedups = speedups_of(computing_, slow);
    const bool compared = speed_up_transfers(slow.parts, speedups);
    const std::string words = fmt::format("computes {:.0f} % slower than the median of {} ranks",
        100 * (slow.ratio - 1),
        slow.peers + slow.parts.size());
    return told(slow, words, saved_by(speedups), !compared);
  }

  /// A link or adapter; no text if it costs nothing, or if its data pass a slow rank, which
  /// explains it.
  Finding finding_of_link(const Culprit& link, const std::set<int>& slow_ranks) const {
    const Speedups speedups = speedups_of(messages_, link);
    const bool explained = std::ranges::any_of(slow_ranks,
        [&](int r) { return std::ranges::any_of(speedups[r], [](double s) { return s != 1; }); });
    const double share = explained ? 0 : saved_by(speedups);
    if (!(share >= least_share))
      return {};
    const bool adapter = link.name.starts_with("the adapter");
    const std::string words = fmt::format("moves data at {:.0f} % of the median rate of {} {}",
        100 / link.ratio,
        link.peers + (adapter ? 1 : link.parts.size()),
        adapter ? "adapters" : "links");
    // Other messages that share an adapter with these are faster then, too.
    return told(link, words, share, true);
  }

  Speedups no_speedups() const {
    return list_of(
        first_, [](const auto& actions) { return std::vector<double>(actions.size(), 1.0); });
  }

  Speedups speedups_of(const Works& works, const Culprit& culprit) const {
    Speedups all = no_speedups();
    for (const auto& [cls, shares] : works)
      for (const auto& [part, share] : shares)
        if (culprit.parts.contains(part))
          for (const Place place : share.actions) {
            all[place.rank][place.action] = culprit.ratio;
            for (const Place side : sides_of(place))
              all[side.rank][side.action] = culprit.ratio;
          }
    return all;
  }

  /// Adds the speedups of the transfers of slow ranks that take longer than others. Returns whether
  /// nearly all could be compared.
  bool speed_up_transfers(const std::set<int>& slow, Speedups& speedups) const {
    struct Alike {
      std::vector<double> touching{}, others{};  ///< seconds
      std::vector<Place> places{};               ///< of those that touch a slow rank
    };

    std::map<std::tuple<Kind, double, std::size_t, std::size_t>, Alike>
        classes;  // kind, bytes, ranks, nodes
    for (int t = 0; t < matching_.transfers(); ++t) {
      const Sides sides = matching_.sides_of(t);
      std::set<int> passed;
      double begin = 0, end = 0;
      bool touches = false;
      for (const auto& [rank, action] : sides) {
        passed.insert(nodes_.group_of(rank));
        begin = std::max(begin, first_[rank][action].begin);
        end = std::max(end, first_[rank][action].end);
        touches |= slow.contains(rank);
      }
      const Action& a = action_at(program_, sides[0]);
      Alike& alike = classes[{a.kind, moved_bytes(a, layout_), sides.size(), passed.size()}];
      (touches ? alike.touching : alike.others).push_back(end - begin);
      if (touches)
        alike.places.insert(alike.places.end(), sides.begin(), sides.end());
    }

    double whole = 0, alone = 0;  // seconds
    for (const auto& [cls, alike] : classes) {
      const double taken = std::accumulate(alike.touching.begin(), alike.touching.end(), 0.0);
      whole += taken;
      if (alike.others.empty())
        alone += taken;
      const double ratio = median(alike.touching) / median(alike.others);
      if (ratio > 1)
        for (const Place p : alike.places)
          speedups[p.rank][p.action] = ratio;
    }
    return alone <= 0.1 * whole;
  }

  /// Share of the first step; NaN if it cannot be executed again.
  double saved_by(const Speedups& speedups) const {
    const double measured = schedule::idle(program_, first_).seconds,
                 again = replay(program_, first_, no_speedups());
    if (!(std::abs(again / measured - 1) < 0.03))
      return Finding::unknown;
    return 1 - replay(program_, first_, speedups) / again;
  }

  const schedule::Program& program_;
  const model::Layout& layout_;
  const topology::Groups& nodes_;
  const StepSpans& first_;  ///< runs again
  schedule::Matching matching_;
  Works computing_, messages_;
  Times of_ranks_, of_links_;
  double least_ = 0;  ///< difference of ranks that is worth a word
};

/// Executes a measured step again.
class Replay {
public:
  Replay(const schedule::Program& program, const StepSpans& spans, const Speedups& speedups)
      : program_(program),
        spans_(spans),
        speedups_(speedups),
        done_(program.ranks.size()) {}

  /// A side that had ended before the last one began waited for no other; what comes after waits
  /// for its data.
  void execute(Sides sides) {
    double last = 0, again = 0;
    for (const Place side : sides) {
      last = std::max(last, span(side).begin);
      again = std::max(again, start(side));
    }
    for (const Place side : sides)
      if (const Span& s = span(side); s.end < last)
        again = std::max(again, finish(side, start(side), s.end - s.begin));
    for (const Place side : sides)
      if (const Span& s = span(side); s.end >= last)
        (void)finish(side, again, s.end - last);
  }

  double length = 0;

private:
  struct Ends {
    double measured = 0, again = 0;
  };

  const Span& span(Place p) const { return spans_[p.rank][p.action]; }

  /// As long after the last of its causes as it was. Messages of a lane that overlapped do so
  /// again.
  double start(Place p) const {
    const auto& lanes = done_[p.rank];
    const std::vector<Ends>& own = lanes[index_of(action_at(program_, p).lane)];
    Ends cause;
    const auto free = std::find_if(
        own.rbegin(), own.rend(), [&](const Ends& e) { return e.measured <= span(p).begin; });
    if (free != own.rend())
      cause = *free;
    for_each_wait(lanes, action_at(program_, p), [&](const Ends& ends) {
      cause = {std::max(cause.measured, ends.measured), std::max(cause.again, ends.again)};
    });
    return cause.again + std::max(0.0, span(p).begin - cause.measured);
  }

  /// Returns its end; actions of a lane count as finished in order.
  double finish(Place p, double begin, double seconds) {
    std::vector<Ends>& lane = done_[p.rank][index_of(action_at(program_, p).lane)];
    const double end = begin + seconds / speedups_[p.rank][p.action];
    lane.push_back({span(p).end, lane.empty() ? end : std::max(end, lane.back().again)});
    length = std::max(length, end);
    return end;
  }

  const schedule::Program& program_;
  const StepSpans& spans_;
  const Speedups& speedups_;
  std::vector<schedule::Finished<Ends>> done_;
};
}  // namespace

double replay(const schedule::Program& program, const StepSpans& spans, const Speedups& speedups) {
  Replay again(program, spans, speedups);
  schedule::detail::execute(program, [&](Sides sides) { again.execute(sides); });
  return again.length;
}

Finding find_culprit(const schedule::Program& program,
    const model::Layout& layout,
    const std::vector<std::int64_t>& own,
    const Surroundings& around,
    std::span<const StepSpans> steps) {
  if (program.ranks.size() < 2 || steps.empty())
    return {};
  return Steps(program, layout, own, around.nodes, steps).find(around.crowd);
}
}  // namespace minitaw::blame
