// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/blame/blame.hpp"
#include <algorithm>
#include <fmt/format.h>
#include <list>
#include <map>
#include <numeric>
#include <optional>
#include <ranges>
#include <set>
#include <tuple>
#include "schedule/execute.hpp"

namespace minitaw::trace {
namespace {
using schedule::Action, schedule::Kind, schedule::Place, schedule::Span;

/// What a subject, a rank or link, has of a class of work in a step.
struct Share {
  double amount = 0;
  std::vector<std::pair<Place, Place>>
      actions{};  ///< sends with their receives, or compute actions twice
};

/// By class and subject. Work of a class takes all as long for the same amount, if nothing is
/// wrong.
using Works = std::map<std::tuple<Kind, double, double>, std::map<int, Share>>;
using Suspects = std::map<std::string,
    std::set<int>>;  ///< subjects that have one cause in common if all are slow

/// Compute actions of ranks are of one class if they have the same FLOPs (of visits: for a block)
/// and bytes; messages are work of the link between nodes that they pass, a * nodes + b from a to
/// b. Collectives pass many links, and tell of none. Returns computing and messages.
std::pair<Works, Works> works_of(const schedule::Program& program,
    model::Layout layout,
    const std::vector<std::int64_t>& own,
    const topology::Groups& nodes) {
  const schedule::Matching matching = schedule::detail::match(program);
  Works computing, messages;
  const auto add = [](Share& share, double amount, Place place, Place other) {
    share.amount += amount;
    share.actions.emplace_back(place, other);
  };
  for (int r = 0; r < static_cast<int>(program.ranks.size()); ++r) {
    if (!own.empty())
      layout.shape.micro_batch = own[r];
    for (int i = -1; const Action& a : program.ranks[r].actions) {
      const Place place{r, ++i};
      if (a.lane == schedule::Lane::compute) {
        const bool whole = schedule::is_visit(a.kind) && !schedule::is_segment(a.kind);
        const double blocks = whole ? layout.shards[a.shard].layers : 1,
                     flops = schedule::flops(a, layout) / blocks,
                     bytes = touched_bytes(program, r, a, layout);
        if (flops + bytes > 0)
          add(computing[{a.kind, flops, bytes}][r], blocks, place, place);
      } else if (a.kind == Kind::send && !nodes.together(r, a.peer) && moved_bytes(a, layout) > 0) {
        const int link = nodes.group_of(r) * nodes.count() + nodes.group_of(a.peer);
        add(messages[{a.kind, 0, moved_bytes(a, layout)}][link],
            1,
            place,
            matching.sides_of(matching.transfer_of(place))[1]);
      }
    }
  }
  return {std::move(computing), std::move(messages)};
}

Suspects ranks_and_nodes(int ranks, const topology::Groups& nodes) {
  const bool one = nodes.group_of(ranks - 1) == 0;
  Suspects all;
  for (int r = 0; r < ranks; ++r) {
    all[fmt::format("node {}", nodes.group_of(r))].insert(r);
    all[one ? fmt::format("rank {}", r) : fmt::format("rank {} (node {})", r, nodes.group_of(r))] =
        {r};
  }
  return all;
}

/// The links of two nodes, both ways.
Suspects pairs_of(const Works& messages, const topology::Groups& nodes) {
  Suspects all;
  for (const auto& [cls, shares] : messages)
    for (const auto& [link, share] : shares) {
      const auto [a, b] = std::minmax({link / nodes.count(), link % nodes.count()});
      all[fmt::format("the link of nodes {} and {}", a, b)].insert(link);
    }
  return all;
}

/// Actions by (rank, index) that would be so many times as fast.
using Speedups = std::map<std::pair<int, int>, double>;

Speedups speedups_of(const Works& works, const std::set<int>& subjects, double ratio) {
  Speedups all;
  for (const auto& [cls, shares] : works)
    for (const auto& [subject, share] : shares)
      if (subjects.contains(subject))
        for (const auto& [one, other] : share.actions)
          for (const Place place : {one, other})
            all[{place.rank, place.action}] = ratio;
  return all;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? Blame::unknown
                        : 0.5 * (values[(values.size() - 1) / 2] + values[values.size() / 2]);
}

/// Seconds of each share of some works in a step, for its amount; none of a share that was not
/// measured.
using Units = std::map<const Share*, double>;

/// Of compute actions.
Units units_of(const Works& computing, const StepSpans& spans) {
  Units units;
  for (const auto& [cls, shares] : computing)
    for (const auto& [rank, share] : shares) {
      double sum = 0;
      for (const auto& [place, same] : share.actions) {
        const Span& span = spans[place.rank][place.action];
        sum += span.end - span.begin;
      }
      units[&share] = sum / share.amount;
    }
  return units;
}

/// A message between two nodes, from when it may have begun.
struct Flight {
  const Share* share;
  Span from, to;
  bool alone = true;

  [[nodiscard]] double begin() const { return from.begin; }

  [[nodiscard]] double end() const { return std::max(from.end, to.end); }

  /// Returns whether its time tells the rate of the link: it had both adapters for itself, and its
  /// receiver was there before it, so that none of it had passed before.
  [[nodiscard]] bool tells() const { return alone && to.begin <= from.begin; }
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

/// Of messages: the median of those that tell.
Units units_of(const Works& messages, const StepSpans& spans, const topology::Groups& nodes) {
  std::list<Flight> all;                                          // keeps its places
  std::map<std::pair<int, bool>, std::vector<Flight*>> adapters;  // node, whether it sends
  for (const auto& [cls, shares] : messages)
    for (const auto& [link, share] : shares)
      for (const auto& [send, receive] : share.actions) {
        all.push_back({&share, spans[send.rank][send.action], spans[receive.rank][receive.action]});
        adapters[{nodes.group_of(send.rank), true}].push_back(&all.back());
        adapters[{nodes.group_of(receive.rank), false}].push_back(&all.back());
      }
  for (auto& [port, flights] : adapters)
    mark_company(flights);
  std::map<const Share*, std::vector<double>> seconds;
  for (const Flight& flight : all)
    if (flight.tells())
      seconds[flight.share].push_back(flight.end() - flight.begin());
  Units units;
  for (auto& [share, some] : seconds)
    units[share] = median(std::move(some));
  return units;
}

constexpr double sigmas = 4,
                 sigma_of_deviation = 1.4826;  ///< of a normal distribution, in median deviations
constexpr double clear = 0.2;                  ///< a difference that one peer or two steps can show
constexpr double least_of_ranks = 0.05,
                 least_of_links = 0.25;  ///< differences that are worth a word

/// What a subject takes relative to the usual: median over the steps, and its standard error.
struct Time {
  double middle, error;
};

/// By subject, from each step. The usual is the lower median of a class in a step. Subjects that
/// have no work in common with others are left out.
std::map<int, Time> times(const Works& works, const std::vector<Units>& steps) {
  std::map<int, std::vector<double>> of_steps;
  for (const Units& measured : steps) {
    std::map<int, double> taken, expected;
    for (const auto& [cls, shares] : works) {
      std::vector<double> units;
      for (const auto& [subject, share] : shares)
        if (measured.contains(&share))
          units.push_back(measured.at(&share));
      if (units.size() < 2)
        continue;
      std::ranges::sort(units);
      for (const auto& [subject, share] : shares) {
        if (!measured.contains(&share))
          continue;
        taken[subject] += share.amount * measured.at(&share);
        expected[subject] += share.amount * units[(units.size() - 1) / 2];
      }
    }
    for (const auto& [subject, usual] : expected)
      if (usual > 0)
        of_steps[subject].push_back(taken[subject] / usual);
  }
  std::map<int, Time> all;
  for (auto& [subject, some] : of_steps) {
    std::ranges::sort(some);
    // The lower quartile is 0.67 standard deviations away; the median has 1.25 of them /
    // sqrt(steps).
    const double middle = median(some), deviation = middle - some[(some.size() - 1) / 4];
    all[subject] = {middle,
        1.25 * sigma_of_deviation * deviation / std::sqrt(static_cast<double>(some.size()))};
  }
  return all;
}

/// Transfers of a step, of which those with slow ranks are compared with the others.
class Transfers {
public:
  Transfers(const schedule::Program& program,
      const model::Layout& layout,
      const topology::Groups& nodes,
      const StepSpans& spans,
      const std::set<int>& slow)
      : program_(program),
        layout_(layout),
        nodes_(nodes),
        spans_(spans),
        slow_(slow) {}

  void execute(schedule::Sides sides) {
    const Action& a = action_at(program_, sides[0]);
    if (!is_communication(a.kind))
      return;
    std::set<int> passed;
    double begin = 0, end = 0;
    for (const auto& [rank, action] : sides) {
      const Span& side = spans_[rank][action];
      passed.insert(nodes_.group_of(rank));
      begin = std::max(begin, side.begin);
      end = std::max(end, side.end);
    }
    Alike& alike = classes_[{a.kind, moved_bytes(a, layout_), sides.size(), passed.size()}];
    const bool touches =
        std::ranges::any_of(sides, [&](Place p) { return slow_.contains(p.rank); });
    (touches ? alike.touching : alike.others).push_back(end - begin);
    if (touches)
      alike.places.insert(alike.places.end(), sides.begin(), sides.end());
  }

  /// Adds the speedup of those that are slower than the others. Returns whether nearly all could be
  /// compared.
  [[nodiscard]] bool append_to(Speedups& all) const {
    double whole = 0, alone = 0;  // seconds
    for (const auto& [cls, alike] : classes_) {
      const double taken = std::accumulate(alike.touching.begin(), alike.touching.end(), 0.0);
      whole += taken;
      if (alike.others.empty())
        alone += taken;
      const double ratio = median(alike.touching) / median(alike.others);
      if (ratio > 1)
        for (const Place p : alike.places)
          all[{p.rank, p.action}] = ratio;
    }
    return alone <= 0.1 * whole;
  }

private:
  struct Alike {
    std::vector<double> touching, others;  ///< seconds
    std::vector<Place> places;             ///< of those that touch a slow rank
  };

  const schedule::Program& program_;
  const model::Layout& layout_;
  const topology::Groups& nodes_;
  const StepSpans& spans_;
  const std::set<int>& slow_;
  std::map<std::tuple<Kind, double, std::size_t, std::size_t>, Alike>
      classes_;  ///< kind, bytes, ranks, nodes
};

struct Culprit {
  std::string name{};
  std::set<int> subjects{};
  double ratio = 1;  ///< its time to the median of its peers
  int peers = 0;     ///< 0: nothing stands out
};

/// Returns how many times as long a suspect takes as the median of all subjects outside of it, if
/// it stands out from them (docs/results.md). `least`: the difference that is worth a word.
std::optional<double> stands_out(
    const std::set<int>& suspect, const std::map<int, Time>& times, double least) {
  std::vector<double> own, peers;
  for (const auto& [subject, time] : times)
    (suspect.contains(subject) ? own : peers).push_back(time.middle);
  if (peers.empty() || own.size() < suspect.size())
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
  const bool all = std::ranges::all_of(suspect, [&](int subject) {
    const auto [middle, error] = times.at(subject);
    return middle - centre > std::max(needed, sigmas * error);
  });
  return all ? std::optional(median(own) / centre) : std::nullopt;
}

/// The one of most subjects, of these the slowest, of these the last.
Culprit worst(const Suspects& suspects, const std::map<int, Time>& times, double least) {
  Culprit worst;
  for (const auto& [name, subjects] : suspects)
    if (const auto ratio = stands_out(subjects, times, least);
        ratio &&
        std::pair(subjects.size(), *ratio) >= std::pair(worst.subjects.size(), worst.ratio))
      worst = {name, subjects, *ratio, static_cast<int>(times.size() - subjects.size())};
  return worst;
}

/// The links of a node, and what each adapter reaches at best: over its fastest link, of others
/// without that node.
std::pair<std::set<int>, std::map<int, Time>> links_of(
    int suspect, const std::map<int, Time>& links, const topology::Groups& nodes) {
  std::set<int> own;
  std::map<int, Time> adapters;
  for (const auto& [link, time] : links) {
    const std::array ends = {link / nodes.count(), link % nodes.count()};
    const bool touches = std::ranges::count(ends, suspect) > 0;
    if (touches)
      own.insert(link);
    for (const int node : ends)
      if (touches == (node == suspect))
        if (const auto at = adapters.try_emplace(node, time).first; time.middle < at->second.middle)
          at->second = time;
  }
  return {std::move(own), std::move(adapters)};
}

/// An adapter, or a link of two nodes. A slow adapter slows other messages of those that it talks
/// to as well: what tells it from them is that none of its links is fast.
Culprit worst_link(const Works& moved,
    const topology::Groups& nodes,
    const std::map<int, Time>& links,
    double least) {
  Culprit adapter;
  for (int node = 0; node < nodes.count(); ++node) {
    const auto [own, adapters] = links_of(node, links, nodes);
    std::set<int> neighbours;  // with one alone nobody knows which of the two it is
    for (const int link : own)
      neighbours.insert({link / nodes.count(), link % nodes.count()});
    const auto ratio = stands_out({node}, adapters, least);
    if (neighbours.size() < 3 || !ratio || *ratio <= adapter.ratio)
      continue;
    const double best = adapters.at(node).middle, centre = best / *ratio;
    // More than twice the least of its own is not one cause.
    if (std::ranges::any_of(
            own, [&](int link) { return links.at(link).middle - centre > 2 * (best - centre); }))
      continue;
    adapter = {fmt::format("the adapter of node {}", node),
        own,
        *ratio,
        static_cast<int>(std::ssize(adapters) - 1)};
  }
  Culprit pair = worst(pairs_of(moved, nodes), links, least);
  return adapter.subjects.size() > pair.subjects.size() ? adapter : pair;
}

/// Executes a measured step again.
class Replay {
public:
  Replay(const schedule::Program& program, const StepSpans& spans, const Speedup& speedup)
      : program_(program),
        spans_(spans),
        speedup_(speedup),
        done_(program.ranks.size()) {}

  /// A side that had ended before the last one began waited for nobody; what comes after waits for
  /// its data.
  void execute(schedule::Sides sides) {
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

    void join(const Ends& e) { *this = {std::max(measured, e.measured), std::max(again, e.again)}; }
  };

  [[nodiscard]] const Span& span(Place p) const { return spans_[p.rank][p.action]; }

  /// As long after the last of its causes as it was. Messages of a lane that overlapped do so
  /// again.
  [[nodiscard]] double start(Place p) const {
    const auto& lanes = done_[p.rank];
    const std::vector<Ends>& own = lanes[index_of(action_at(program_, p).lane)];
    Ends cause;
    const auto free = std::find_if(
        own.rbegin(), own.rend(), [&](const Ends& e) { return e.measured <= span(p).begin; });
    if (free != own.rend())
      cause = *free;
    for_each_wait(lanes, action_at(program_, p), [&](const Ends& ends) { cause.join(ends); });
    return cause.again + std::max(0.0, span(p).begin - cause.measured);
  }

  /// Returns its end; actions of a lane count as finished in order.
  double finish(Place p, double begin, double seconds) {
    std::vector<Ends>& lane = done_[p.rank][index_of(action_at(program_, p).lane)];
    const double end = begin + seconds / speedup_(p.rank, p.action);
    lane.push_back({span(p).end, lane.empty() ? end : std::max(end, lane.back().again)});
    length = std::max(length, end);
    return end;
  }

  const schedule::Program& program_;
  const StepSpans& spans_;
  const Speedup& speedup_;
  std::vector<schedule::Finished<Ends>> done_;
};

/// Share of the step that is saved if these actions are as fast as those of others; NaN if it
/// cannot be executed again.
double saved(const schedule::Program& program, const StepSpans& spans, const Speedups& speedups) {
  const double measured = schedule::idle(program, spans).seconds,
               again = replay(program, spans, [](int, int) { return 1; });
  if (!(std::abs(again / measured - 1) < 0.03))
    return Blame::unknown;
  const auto speedup = [&](int rank, int action) {
    const auto found = speedups.find({rank, action});
    return found == speedups.end() ? 1 : found->second;
  };
  return 1 - replay(program, spans, speedup) / again;
}

/// `words`: what it does, with a number and the peers. `least`: it may cost more.
Blame told(const Culprit& who, const std::string& words, double share, bool least = false) {
  std::string end = "; the step would be as long without it";
  if (share >= 0.005)
    end = fmt::format(
        "; without it the step would be {}{:.0f} % shorter", least ? "at least " : "", 100 * share);
  if (std::isnan(share))
    end = "";
  return {fmt::format("{} {}{}", who.name, words, end), who.name, who.ratio - 1, share};
}

/// A step, and what was measured of it.
struct Case {
  const schedule::Program& program;
  const model::Layout& layout;
  const topology::Groups& nodes;
  const StepSpans& first;  ///< of the steps: it runs again
  const Works &computing, &messages;
};

/// A rank or node that computes slowly.
Blame blame_rank(const Case& c, const Culprit& slow) {
  Speedups speedups = speedups_of(c.computing, slow.subjects, slow.ratio);
  Transfers transfers(c.program, c.layout, c.nodes, c.first, slow.subjects);
  schedule::detail::execute(c.program, [&](schedule::Sides sides) { transfers.execute(sides); });
  const bool compared = transfers.append_to(speedups);
  const std::string words = fmt::format("computes {:.0f} % slower than the median of {} ranks",
      100 * (slow.ratio - 1),
      slow.peers + slow.subjects.size());
  return told(slow, words, saved(c.program, c.first, speedups), !compared);
}

/// A link or adapter; no text if it costs nothing, or if its data pass a slow rank, which explains
/// it.
Blame blame_link(const Case& c, const Culprit& link, const std::set<int>& slow_ranks) {
  const Speedups moving = speedups_of(c.messages, link.subjects, link.ratio);
  const bool excused = std::ranges::any_of(
      moving, [&](const auto& side) { return slow_ranks.contains(side.first.first); });
  if (excused)
    return {};
  const double share = saved(c.program, c.first, moving);
  if (!(share >= 0.005))
    return {};
  const bool adapter = link.name.starts_with("the adapter");
  const std::string words = fmt::format("moves data at {:.0f} % of the median rate of {} {}",
      100 / link.ratio,
      link.peers + (adapter ? 1 : std::ssize(link.subjects)),
      adapter ? "adapters" : "links");
  return told(link,
      words,
      share,
      true);  // other messages that share an adapter with these are faster then, too
}
}  // namespace

double replay(const schedule::Program& program, const StepSpans& spans, const Speedup& speedup) {
  Replay again(program, spans, speedup);
  schedule::detail::execute(program, [&](schedule::Sides sides) { again.execute(sides); });
  return again.length;
}

Blame find_blame(const schedule::Program& program,
    const model::Layout& layout,
    const std::vector<std::int64_t>& own,
    const Surroundings& around,
    std::span<const StepSpans> steps) {
  const topology::Groups& nodes = around.nodes;
  const int ranks = static_cast<int>(program.ranks.size());
  if (ranks < 2 || steps.empty())
    return {};
  const auto [computing, messages] = works_of(program, layout, own, nodes);
  std::vector<Units> of_computing, of_messages;
  for (const StepSpans& spans : steps) {
    of_computing.push_back(units_of(computing, spans));
    of_messages.push_back(units_of(messages, spans, nodes));
  }
  const std::map<int, Time> of_ranks = times(computing, of_computing),
                            of_links = times(messages, of_messages);

  Blame blame{.text = of_links.empty() ? "no rank stands out" : "no rank or link stands out"};
  if (!around.crowd.empty()) {
    blame.text = fmt::format(
        "no rank or link is judged: {}; minitaw screen measures each alone", around.crowd);
  } else {
    const Case c{program, layout, nodes, steps.front(), computing, messages};
    const Culprit slow =
        worst(ranks_and_nodes(ranks, nodes), of_ranks, steps.size() < 3 ? clear : least_of_ranks);
    const Culprit link = worst_link(messages, nodes, of_links, least_of_links);
    if (slow.peers > 0)
      blame = blame_rank(c, slow);
    const Blame of_link = link.peers > 0 ? blame_link(c, link, slow.subjects) : Blame{};
    if (!of_link.text.empty() && !(of_link.share <= blame.share))
      blame = of_link;
  }
  blame.ratios.resize(ranks, Blame::unknown);
  for (const auto& [rank, time] : of_ranks)
    blame.ratios[rank] = time.middle;
  return blame;
}
}  // namespace minitaw::trace
