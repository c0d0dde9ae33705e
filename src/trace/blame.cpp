// SPDX-License-Identifier: BSD-3-Clause
#include "trace/blame.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <tuple>

#include "schedule/execute.hpp"

namespace minitaw::trace {
namespace {
using schedule::Action;
using schedule::Place;
using schedule::Span;

/// Of an even number, the mean of the two in the middle.
double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? Blame::unknown : 0.5 * (values[(values.size() - 1) / 2] + values[values.size() / 2]);
}

bool contains(const std::vector<int>& numbers, int number) {
  return std::ranges::find(numbers, number) != numbers.end();
}

/// Subjects that have one cause in common if all of them are slow.
struct Suspect {
  std::string name;
  std::vector<int> subjects;
  double ratio = 1;  ///< its time to the median of its peers
  int peers = 0;     ///< 0: it does not stand out
};

/// The rule by which a suspect stands out from all subjects outside of it.
class Judge {
public:
  Judge(const Observed& observed, double least)
      : o_(observed), least_(observed.seconds.size() < 3 ? std::max(clear, least) : least) {
    if (o_.work.size() > many) shared_ = timed({});
  }

  /// The one of most subjects, of these the slowest, of these the last.
  [[nodiscard]] Suspect worst(const std::vector<Suspect>& suspects) const {
    Suspect worst;
    for (const Suspect& suspect : suspects)
      if (Suspect one = judged(suspect);
          one.peers > 0 && std::pair(one.subjects.size(), one.ratio) >= std::pair(worst.subjects.size(), worst.ratio))
        worst = std::move(one);
    return worst;
  }

  /// Of each subject to the others; NaN: nobody does what it does.
  [[nodiscard]] std::vector<double> ratios() const {
    std::vector<double> all;
    for (int i = 0; i < static_cast<int>(o_.work.size()); ++i) all.push_back(times({i})[i].middle);
    return all;
  }

private:
  static constexpr std::size_t few = 8;    ///< peers, of which the oddest counts too
  static constexpr std::size_t many = 64;  ///< subjects, of whose median one suspect is no part to speak of
  static constexpr double clear = 0.2;     ///< the least difference with one peer, or one or two steps
  /// Relative to the median of all but the suspect: median and lower quartile over steps.
  struct Time {
    double middle = Blame::unknown, low = Blame::unknown;
  };

  [[nodiscard]] std::vector<Time> times(const std::vector<int>& suspect) const {
    return shared_.empty() ? timed(suspect) : shared_;
  }

  [[nodiscard]] std::vector<Time> timed(const std::vector<int>& suspect) const {
    std::vector<std::vector<double>> of_steps(o_.work.size());
    for (const auto& seconds : o_.seconds) add_step(seconds, suspect, of_steps);
    std::vector<Time> all(o_.work.size());
    for (std::size_t i = 0; i < all.size(); ++i)
      if (std::vector<double>& steps = of_steps[i]; !steps.empty()) {
        std::ranges::sort(steps);
        all[i] = {median(steps), steps[(steps.size() - 1) / 4]};
      }
    return all;
  }

  void add_step(const std::vector<std::vector<double>>& seconds, const std::vector<int>& suspect,
      std::vector<std::vector<double>>& of_steps) const {
    const int count = static_cast<int>(o_.work.size());
    std::vector<double> taken(o_.work.size()), expected(o_.work.size());
    for (std::size_t c = 0; count > 0 && c < o_.work.front().size(); ++c) {
      std::vector<double> each;
      for (int i = 0; i < count; ++i)
        if (o_.work[i][c] > 0 && !contains(suspect, i)) each.push_back(seconds[i][c] / o_.work[i][c]);
      if (each.size() < (suspect.empty() ? 2 : 1)) continue;
      const double usual = median(std::move(each));
      for (int i = 0; i < count; ++i) {
        taken[i] += o_.work[i][c] > 0 ? seconds[i][c] : 0;
        expected[i] += usual * o_.work[i][c];
      }
    }
    for (int i = 0; i < count; ++i)
      if (expected[i] > 0) of_steps[i].push_back(taken[i] / expected[i]);
  }

  [[nodiscard]] Suspect judged(Suspect one) const {
    const std::vector<Time> all = times(one.subjects);
    std::vector<double> own, peers, deviations;
    for (int i = 0; i < static_cast<int>(all.size()); ++i)
      if (!std::isnan(all[i].middle)) (contains(one.subjects, i) ? own : peers).push_back(all[i].middle);
    if (peers.empty() || own.size() < one.subjects.size()) return {};
    const double centre = median(peers), most = std::ranges::max(own) - centre;
    for (const double peer : peers) deviations.push_back(std::abs(peer - centre));
    const double least = centre * (peers.size() < 2 ? std::max(clear, least_) : least_);
    const double oddest = peers.size() < few ? std::ranges::max(deviations) : 0;
    // More than twice the least of its own: not one cause.
    const double needed = std::max({4 * 1.4826 * median(deviations), 2 * oddest, least, most / 2});
    // The lower quartile is 0.67 standard deviations away; the median has 1.25 of them / sqrt(steps).
    const double of_steps = 4 * 1.4826 * 1.25 / std::sqrt(static_cast<double>(o_.seconds.size()));
    for (const int i : one.subjects)
      if (const auto [middle, low] = all[i];
          low - centre <= least || middle - centre <= std::max(needed, of_steps * (middle - low)))
        return {};
    one.ratio = median(own) / centre;
    one.peers = static_cast<int>(peers.size());
    return one;
  }

  const Observed& o_;
  double least_;
  std::vector<Time> shared_;  ///< of many subjects
};

/// Executes a measured step again.
class Replay : public schedule::Listener {
public:
  Replay(const schedule::Program& program, const StepSpans& spans, const Speedup& speedup)
      : program_(program), spans_(spans), speedup_(speedup), done_(program.ranks.size()) {}

  void local(Place p) override { collective({&p, 1}); }
  void message(Place send, Place receive) override { collective(std::array{send, receive}); }

  /// A side that had ended before the last one began waited for nobody; what comes after waits for its data.
  void collective(std::span<const Place> sides) override {
    std::vector<double> starts;
    double last = 0, again = 0;
    for (const Place side : sides) {
      starts.push_back(start(side));
      last = std::max(last, span(side).begin);
      again = std::max(again, starts.back());
    }
    for (std::size_t i = 0; i < sides.size(); ++i)
      if (const Span& s = span(sides[i]); s.end < last)
        again = std::max(again, finish(sides[i], starts[i], s.end - s.begin));
    for (const Place side : sides)
      if (const Span& s = span(side); s.end >= last) (void)finish(side, again, s.end - last);
  }

  double length = 0;

private:
  struct Ends {
    double measured = 0, again = 0;
    void join(const Ends& e) { *this = {std::max(measured, e.measured), std::max(again, e.again)}; }
  };
  [[nodiscard]] const Span& span(Place p) const { return spans_[p.rank][p.action]; }
  [[nodiscard]] const Action& at(Place p) const { return program_.ranks[p.rank].actions[p.action]; }

  /// As long after the last of its causes as it was. Messages of a lane that overlapped do so again.
  [[nodiscard]] double start(Place p) const {
    const auto& lanes = done_[p.rank];
    const std::vector<Ends>& own = lanes[index_of(at(p).lane)];
    Ends cause;
    const auto free =
        std::find_if(own.rbegin(), own.rend(), [&](const Ends& e) { return e.measured <= span(p).begin; });
    if (free != own.rend()) cause = *free;
    for (std::size_t l = 0; l < schedule::lanes; ++l)
      if (const int count = at(p).waits[l]; count > 0) cause.join(lanes[l][count - 1]);
    return cause.again + std::max(0.0, span(p).begin - cause.measured);
  }

  /// Returns its end; actions of a lane count as finished in order.
  double finish(Place p, double begin, double seconds) {
    std::vector<Ends>& lane = done_[p.rank][index_of(at(p).lane)];
    const double end = begin + seconds / speedup_(p.rank, p.action);
    lane.push_back({span(p).end, lane.empty() ? end : std::max(end, lane.back().again)});
    length = std::max(length, end);
    return end;
  }

  const schedule::Program& program_;
  const StepSpans& spans_;
  const Speedup& speedup_;
  std::vector<std::array<std::vector<Ends>, schedule::lanes>> done_;
};

/// Messages of a program by the link that they pass, between nodes or between ranks of one. Collectives pass
/// many, and tell of none.
class Links {
public:
  Links(const schedule::Program& program, const model::Layout& layout, const std::vector<Site>& sites, bool inside,
      std::span<const StepSpans> steps)
      : what_(inside ? "rank" : "node") {
    const schedule::Matching matching = schedule::detail::match(program);
    std::map<double, int> classes;
    for (int r = 0; r < static_cast<int>(program.ranks.size()); ++r)
      for (int i = -1; const Action& a : program.ranks[r].actions) {
        if (++i; a.kind != schedule::Kind::send) continue;
        const int from = sites.empty() ? 0 : sites[r].node, to = sites.empty() ? 0 : sites[a.peer].node;
        if ((from == to) != inside) continue;
        const std::pair ends = inside ? std::pair{r, a.peer} : std::pair{from, to};
        const int link = links_.try_emplace(ends, static_cast<int>(links_.size())).first->second;
        const Place receive{a.peer, matching.other[matching.number({r, i})]};
        link_of[{r, i}] = link_of[{receive.rank, receive.action}] = link;
        messages_.push_back({{r, i}, receive, link,
            classes.try_emplace(moved_bytes(a, layout), static_cast<int>(classes.size())).first->second});
      }
    observed_.work.assign(links_.size(), std::vector<double>(classes.size()));
    for (const Message& m : messages_) observed_.work[m.link][m.cls] += 1;
    for (const StepSpans& spans : steps) observe(spans);
  }

  /// Schedules load even equal links unlike: small differences say nothing.
  [[nodiscard]] Suspect worst() const {
    std::map<std::pair<int, int>, std::vector<int>> both_ways, of_end;
    for (const auto& [ends, link] : links_) {
      both_ways[std::minmax(ends.first, ends.second)].push_back(link);
      for (const int end : {ends.first, ends.second}) of_end[{end, end}].push_back(link);
    }
    std::vector<Suspect> all;
    for (const auto& [end, links] : of_end)
      all.push_back({fmt::format("the {} of {} {}", what_ == "node" ? "adapter" : "links", what_, end.first), links});
    for (const auto& [ends, links] : both_ways)
      all.push_back({fmt::format("the link of {}s {} and {}", what_, ends.first, ends.second), links});
    return Judge(observed_, 0.25).worst(all);
  }

  std::map<std::pair<int, int>, int> link_of;  ///< by rank and action, of both sides

private:
  struct Message {
    Place send, receive;
    int link, cls;
  };

  /// The time in which messages of a class were under way on a link, one or more of them.
  void observe(const StepSpans& spans) {
    std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> busy;
    for (const Message& m : messages_) {
      const Span &sent = spans[m.send.rank][m.send.action], &got = spans[m.receive.rank][m.receive.action];
      const bool late = got.begin > sent.end;  // the data were there before they were asked for
      busy[{m.link, m.cls}].emplace_back(
          late ? sent.begin : std::max(sent.begin, got.begin), late ? sent.end : std::max(sent.end, got.end));
    }
    auto& seconds = observed_.seconds.emplace_back(observed_.work);
    for (auto& [at, intervals] : busy) {
      double sum = 0, until = 0;
      std::ranges::sort(intervals);
      for (const auto& [begin, end] : intervals) {
        sum += std::max(0.0, end - std::max(begin, until));
        until = std::max(until, end);
      }
      seconds[at.first][at.second] = sum;
    }
  }

  std::string what_;                          ///< the ends are
  std::map<std::pair<int, int>, int> links_;  ///< numbers, by ends
  std::vector<Message> messages_;
  Observed observed_;
};

/// Nodes of several ranks, and ranks: "rank 17 (node 4, device 1)".
std::vector<Suspect> computing_suspects(int ranks, const std::vector<Site>& sites) {
  std::map<int, std::vector<int>> nodes;
  for (int r = 0; r < ranks; ++r) nodes[sites.empty() ? 0 : sites[r].node].push_back(r);
  std::vector<Suspect> all;
  for (const auto& [node, members] : nodes) all.push_back({fmt::format("node {}", node), members});
  for (int r = 0; r < ranks; ++r) {
    std::string where = nodes.size() > 1 ? fmt::format(" (node {})", sites[r].node) : "";
    if (!sites.empty() && sites[r].device >= 0)
      where = fmt::format(" (node {}, device {})", sites[r].node, sites[r].device);
    all.push_back({fmt::format("rank {}{}", r, where), {r}});
  }
  return all;
}

/// Share of the step that `speedup` saves; NaN if it cannot be executed again.
double saved(const schedule::Program& program, const StepSpans& spans, const Speedup& speedup) {
  double length = 0;
  for (const auto& rank : spans)
    for (const Span& span : rank) length = std::max(length, span.end);
  const double again = replay(program, spans, [](int, int) { return 1; });
  return std::abs(again / length - 1) < 0.03 ? 1 - replay(program, spans, speedup) / again : Blame::unknown;
}

Blame told(const Suspect& who, bool computes, double share) {
  const int all = who.peers + static_cast<int>(who.subjects.size());
  std::string text =
      computes
          ? fmt::format("{} computes {:.0f} % slower than the median of {} ranks", who.name, 100 * (who.ratio - 1), all)
          : fmt::format("{} moves data at {:.0f} % of the median rate of {} links", who.name, 100 / who.ratio, all);
  if (share >= 0.005) text += fmt::format("; without it the step would be {:.0f} % shorter", 100 * share);
  else if (!std::isnan(share)) text += "; the step would be as long without it";
  return {std::move(text), who.name, who.ratio - 1, share};
}
}  // namespace

Works::Works(const schedule::Program& program, model::Layout layout, const std::vector<std::int64_t>& own)
    : amounts(program.ranks.size()), class_of(program.ranks.size()) {
  if (!own.empty()) layout.shape.micro_batch = std::ranges::max(own);
  std::map<std::tuple<schedule::Kind, double, double>, int> classes;
  for (std::size_t r = 0; r < amounts.size(); ++r)
    for (const Action& a : program.ranks[r].actions) {
      const double part = own.empty() || a.micro_batch < 0
                              ? 1
                              : static_cast<double>(own[r]) / static_cast<double>(layout.shape.micro_batch);
      const double blocks = schedule::is_visit(a.kind) ? layout.shards[a.shard].layers : 1,
                   work = part * schedule::flops(a, layout) / blocks,
                   bytes = part * touched_bytes(program, static_cast<int>(r), a, layout);
      class_of[r].push_back(-1);
      if (a.lane != schedule::Lane::compute || work + bytes == 0) continue;
      const int cls = classes.try_emplace({a.kind, work, bytes}, static_cast<int>(classes.size())).first->second;
      class_of[r].back() = cls;
      amounts[r].resize(classes.size());
      amounts[r][cls] += blocks;
    }
  for (std::vector<double>& rank : amounts) rank.resize(classes.size());
}

std::vector<double> Works::seconds(int rank, const std::vector<Span>& spans) const {
  std::vector<double> sums(amounts[rank].size());
  for (std::size_t i = 0; i < spans.size(); ++i)
    if (const int cls = class_of[rank][i]; cls >= 0) sums[cls] += spans[i].end - spans[i].begin;
  return sums;
}

double replay(const schedule::Program& program, const StepSpans& spans, const Speedup& speedup) {
  Replay again(program, spans, speedup);
  schedule::detail::execute(program, again);
  return again.length;
}

Blame find_blame(const schedule::Program& program, const model::Layout& layout, const std::vector<Site>& sites,
    const Observed& computing, std::span<const StepSpans> steps) {
  const int ranks = static_cast<int>(program.ranks.size());
  if (ranks < 2 || steps.empty()) return {};
  Blame blame{.text = "no rank or link stands out"};
  const Judge judge(computing, 0.05);
  const Suspect slow = judge.worst(computing_suspects(ranks, sites));
  const auto is_slow = [&](int rank) { return contains(slow.subjects, rank); };
  if (slow.peers > 0)
    blame = told(slow, true, saved(program, steps.front(), [&](int rank, int action) {
      return is_slow(rank) && program.ranks[rank].actions[action].lane == schedule::Lane::compute ? slow.ratio : 1;
    }));
  for (const bool inside : {false, true}) {
    const Links links(program, layout, sites, inside, steps);
    const Suspect link = links.worst();
    // Data move slowly to and from a rank that is slow itself.
    if (link.peers == 0 || std::ranges::any_of(links.link_of, [&](const auto& side) {
          return contains(link.subjects, side.second) && is_slow(side.first.first);
        }))
      continue;
    const double share = saved(program, steps.front(), [&](int rank, int action) {
      const auto at = links.link_of.find({rank, action});
      return at != links.link_of.end() && contains(link.subjects, at->second) ? link.ratio : 1;
    });
    if (share >= 0.005 && !(share <= blame.share)) blame = told(link, false, share);
  }
  blame.ratios = judge.ratios();
  return blame;
}
}  // namespace minitaw::trace
