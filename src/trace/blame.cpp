// SPDX-License-Identifier: BSD-3-Clause
#include "trace/blame.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>
#include <tuple>

#include "schedule/execute.hpp"

namespace minitaw::trace {
namespace {
using schedule::Action;
using schedule::Place;
using schedule::Span;

double quantile(std::vector<double> values, double q) {
  std::ranges::sort(values);
  const double at = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(at), above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}
double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

/// Subjects that have one cause in common if all of them are slow.
struct Suspect {
  std::string name;
  std::vector<int> subjects;
};

struct Finding {
  std::string name;
  std::vector<int> subjects;
  double ratio = 1;  ///< its time to the median of its peers
  int peers = 0;
};

/// The rule by which a suspect stands out from all subjects outside of it.
class Judge {
public:
  /// `least`: the smallest difference that is told, where there are peers and steps enough.
  Judge(const Observed& observed, double least)
      : o_(observed), least_(least), subjects_(static_cast<int>(o_.work.size())) {}

  /// The first one of those that take the longest.
  [[nodiscard]] Finding worst(const std::vector<Suspect>& suspects) {
    Finding worst;
    for (const Suspect& suspect : suspects)
      if (const Finding found = judge(suspect); found.ratio > worst.ratio) worst = found;
    return worst;
  }

  /// Median over steps of each subject's time to that of the others; NaN: it has no peer.
  [[nodiscard]] std::vector<double> ratios() {
    std::vector<double> all;
    for (int i = 0; i < subjects_; ++i) all.push_back(times({i})[i].middle);
    return all;
  }

private:
  static constexpr int few = 8;         ///< peers, of which the worst counts too
  static constexpr int singly = 64;     ///< up to so many subjects a reference leaves the suspect out
  static constexpr double clear = 0.2;  ///< the least difference with one peer, or one or two steps
  /// Over steps, relative to the reference.
  struct Time {
    double middle = Blame::unknown, low = Blame::unknown;
  };

  [[nodiscard]] Finding judge(const Suspect& suspect) {
    const std::vector<Time>& of = times(suspect.subjects);
    std::vector<double> peers, own, low;
    for (int i = 0; i < subjects_; ++i) {
      const bool inside = std::ranges::find(suspect.subjects, i) != suspect.subjects.end();
      if (std::isnan(of[i].middle)) {
        if (inside) return {};
        continue;
      }
      (inside ? own : peers).push_back(of[i].middle);
      if (inside) low.push_back(of[i].low);
    }
    if (peers.empty() || own.empty()) return {};
    const double centre = median(peers), excess = std::ranges::min(own) - centre;
    std::vector<double> deviations;
    for (const double peer : peers) deviations.push_back(std::abs(peer - centre));
    double spread = 1.4826 * median(deviations);
    if (peers.size() < few) spread = std::max(spread, 0.5 * (std::ranges::max(peers) - centre));
    const double least =
        centre * (peers.size() < 2 || o_.seconds.size() < 3 ? std::max(clear, least_) : least_);
    if (excess <= std::max(least, 4 * spread) || std::ranges::min(low) - centre <= least) return {};
    if (std::ranges::max(own) - centre > 2 * excess) return {};  // not one cause
    return {suspect.name, suspect.subjects, median(own) / centre, static_cast<int>(peers.size())};
  }

  [[nodiscard]] const std::vector<Time>& times(const std::vector<int>& excluded) {
    const bool all = subjects_ > singly;
    if (all && !times_.empty()) return times_;
    times_.assign(subjects_, {});
    std::vector<std::vector<double>> of_steps(subjects_);
    for (const auto& seconds : o_.seconds) add_step(seconds, all ? std::vector<int>() : excluded, of_steps);
    for (int i = 0; i < subjects_; ++i)
      if (!of_steps[i].empty()) times_[i] = {median(of_steps[i]), quantile(of_steps[i], 0.25)};
    return times_;
  }

  void add_step(const std::vector<std::vector<double>>& seconds, const std::vector<int>& excluded,
      std::vector<std::vector<double>>& of_steps) const {
    std::vector<double> taken(subjects_), expected(subjects_), each;
    for (std::size_t c = 0; c < o_.work.front().size(); ++c) {
      each.clear();
      for (int i = 0; i < subjects_; ++i)
        if (o_.work[i][c] > 0 && std::ranges::find(excluded, i) == excluded.end())
          each.push_back(seconds[i][c] / o_.work[i][c]);
      if (each.empty()) continue;
      const double reference = median(each);
      for (int i = 0; i < subjects_; ++i) {
        // What a subject alone does is compared with nobody.
        if (o_.work[i][c] <= 0 || (each.size() == 1 && excluded.empty())) continue;
        taken[i] += seconds[i][c];
        expected[i] += reference * o_.work[i][c];
      }
    }
    for (int i = 0; i < subjects_; ++i)
      if (expected[i] > 0) of_steps[i].push_back(taken[i] / expected[i]);
  }

  const Observed& o_;
  double least_;
  int subjects_;
  std::vector<Time> times_;
};

/// Executes a measured step again.
class Replay : public schedule::Listener {
public:
  Replay(const schedule::Program& program, const StepSpans& spans, const Speedup& speedup)
      : program_(program), spans_(spans), speedup_(speedup), done_(program.ranks.size()) {}

  void local(Place p) override { finish(p, start(p) + shortened(p, span(p).end - span(p).begin)); }

  void message(Place send, Place receive) override {
    const double sent = start(send), asked = start(receive);
    if (span(receive).begin > span(send).end) {  // the data were there before they were asked for
      const double end = sent + shortened(send, span(send).end - span(send).begin);
      finish(send, end);
      return finish(receive, std::max(asked, end) + span(receive).end - span(receive).begin);
    }
    const double begin = std::max(span(send).begin, span(receive).begin);
    for (const Place side : {send, receive})
      finish(side, std::max(sent, asked) + shortened(side, span(side).end - begin));
  }

  void collective(std::span<const Place> calls) override {
    std::vector<double> starts;
    for (const Place call : calls) starts.push_back(start(call));
    const auto all = latest(calls, starts, std::numeric_limits<double>::infinity());
    for (const Place call : calls) {
      const double end = span(call).end;
      const auto [begin, again] = all.first <= end ? all : latest(calls, starts, end);
      finish(call, again + shortened(call, end - begin));
    }
  }

  [[nodiscard]] double length() const { return length_; }

private:
  struct Ends {
    double measured, again;
  };
  [[nodiscard]] const Span& span(Place p) const { return spans_[p.rank][p.action]; }
  [[nodiscard]] const Action& at(Place p) const { return program_.ranks[p.rank].actions[p.action]; }
  [[nodiscard]] double shortened(Place p, double seconds) const {
    return std::max(0.0, seconds) / speedup_(p.rank, p.action);
  }

  /// When the last side that had begun by `end` began: as measured, and again.
  [[nodiscard]] std::pair<double, double> latest(
      std::span<const Place> calls, const std::vector<double>& starts, double end) const {
    std::pair<double, double> last{0, 0};
    for (std::size_t i = 0; i < calls.size(); ++i)
      if (const double begin = span(calls[i]).begin; begin <= end)
        last = {std::max(last.first, begin), std::max(last.second, starts[i])};
    return last;
  }

  /// As long after the last of its causes as it was. Messages of a lane that overlapped do so again.
  [[nodiscard]] double start(Place p) const {
    const auto& lanes = done_[p.rank];
    const Action& a = at(p);
    const double begin = span(p).begin;
    Ends cause{0, 0};
    const auto add = [&](const Ends& e) {
      cause = {std::max(cause.measured, e.measured), std::max(cause.again, e.again)};
    };
    const std::vector<Ends>& own = lanes[index_of(a.lane)];
    const auto before =
        std::find_if(own.rbegin(), own.rend(), [&](const Ends& e) { return e.measured <= begin; });
    if (before != own.rend()) add(*before);
    for (std::size_t l = 0; l < schedule::lanes; ++l)
      if (a.waits[l] > 0) add(lanes[l][a.waits[l] - 1]);
    return cause.again + std::max(0.0, begin - cause.measured);
  }

  void finish(Place p, double end) {
    std::vector<Ends>& lane = done_[p.rank][index_of(at(p).lane)];
    if (!lane.empty()) end = std::max(end, lane.back().again);  // they count as finished in order
    lane.push_back({span(p).end, end});
    length_ = std::max(length_, end);
  }

  const schedule::Program& program_;
  const StepSpans& spans_;
  const Speedup& speedup_;
  std::vector<std::array<std::vector<Ends>, schedule::lanes>> done_;
  double length_ = 0;
};

/// Links of one sort, and how long transfers were under way on each.
struct Links {
  const char *one, *all_of_an_end;           ///< names: with two numbers, with one; nullptr: there is none
  std::map<std::pair<int, int>, int> known;  ///< subjects by their ends
  Observed observed;

  /// Pairs of ends with all links between them, or ends with all of their links if these are several.
  [[nodiscard]] std::vector<Suspect> suspects(bool of_ends) const {
    std::map<std::pair<int, int>, std::vector<int>> found;
    std::map<int, std::set<int>> others;
    for (const auto& [link, subject] : known) {
      const auto [a, b] = std::minmax(link.first, link.second);
      others[a].insert(b);
      others[b].insert(a);
      for (const std::pair<int, int>& ends :
          of_ends ? std::set<std::pair<int, int>>{{a, a}, {b, b}} : std::set<std::pair<int, int>>{{a, b}})
        found[ends].push_back(subject);
    }
    std::vector<Suspect> all;
    for (const auto& [ends, subjects] : found)
      if (!of_ends || (all_of_an_end != nullptr && others[ends.first].size() > 1))
        all.push_back(
            {fmt::format(fmt::runtime(of_ends ? all_of_an_end : one), ends.first, ends.second), subjects});
    return all;
  }
};

/// Transfers of a program by the link that they pass: messages between nodes and inside, and collectives
/// inside a node. A collective of several nodes passes links of all of them, and tells of none.
class Transfers {
public:
  Transfers(const schedule::Program& program, const model::Layout& layout, const std::vector<Site>& sites)
      : program_(program), matching_(schedule::detail::match(program)) {
    const auto node = [&](int rank) { return sites.empty() ? 0 : sites[rank].node; };
    for (int r = 0; r < static_cast<int>(program.ranks.size()); ++r)
      for (int i = 0; i < static_cast<int>(program.ranks[r].actions.size()); ++i)
        if (const Action& a = program.ranks[r].actions[i]; a.kind == schedule::Kind::send) {
          const bool inside = node(r) == node(a.peer);
          add({{r, i}, {a.peer, matching_.other[matching_.number({r, i})]}}, inside ? 1 : 0,
              inside ? std::pair{r, a.peer} : std::pair{node(r), node(a.peer)},
              schedule::moved_bytes(a, layout));
        }
    for (int c = 0; c < matching_.collectives(); ++c) {
      const std::span<const Place> calls = matching_.calls_of(c);
      const int first = node(calls.front().rank);
      if (calls.size() > 1 && std::ranges::all_of(calls, [&](Place p) { return node(p.rank) == first; }))
        add({calls.begin(), calls.end()}, 2, {calls.front().rank, calls.back().rank},
            schedule::moved_bytes(action(calls.front()), layout));
    }
    for (const Transfer& t : transfers_) {
      auto& work = links_[t.sort].observed.work;
      work.resize(links_[t.sort].known.size(), std::vector<double>(classes_.size()));
      work[t.link][t.cls] += 1;
    }
  }

  void observe(const StepSpans& spans) {
    std::map<std::tuple<int, int, int>, std::vector<std::pair<double, double>>> busy;
    for (const Transfer& t : transfers_) busy[{t.sort, t.link, t.cls}].push_back(under_way(t, spans));
    for (Links& links : links_) links.observed.seconds.push_back(links.observed.work);
    for (auto& [key, intervals] : busy) {
      const auto& [sort, link, cls] = key;
      std::ranges::sort(intervals);
      double sum = 0, until = 0;
      for (const auto& [begin, end] : intervals) {
        sum += std::max(0.0, end - std::max(begin, until));
        until = std::max(until, end);
      }
      links_[sort].observed.seconds.back()[link][cls] = sum;
    }
  }

  /// The link that stands out most; of a sort, an end that does goes before a pair.
  [[nodiscard]] Finding worst() {
    Finding worst;
    for (int sort = 0; sort < 3; ++sort)
      for (const bool of_ends : {true, false}) {
        Finding found = Judge(links_[sort].observed, least).worst(links_[sort].suspects(of_ends));
        if (found.peers == 0) continue;
        if (found.ratio > worst.ratio) worst = found, sort_ = sort;
        break;
      }
    return worst;
  }

  /// The sides of transfers on the links that worst() has found.
  [[nodiscard]] std::set<std::pair<int, int>> sides(const Finding& found) const {
    std::set<std::pair<int, int>> all;
    for (const Transfer& t : transfers_)
      if (t.sort == sort_ && std::ranges::find(found.subjects, t.link) != found.subjects.end())
        for (const Place side : t.sides) all.emplace(side.rank, side.action);
    return all;
  }

private:
  static constexpr double least = 0.25;  ///< schedules load even equal links unlike
  struct Transfer {
    std::vector<Place> sides;  ///< of a message the sender comes first
    int sort, link, cls;
  };
  [[nodiscard]] const Action& action(Place p) const { return program_.ranks[p.rank].actions[p.action]; }

  void add(std::vector<Place> sides, int sort, std::pair<int, int> ends, double bytes) {
    auto& known = links_[sort].known;
    const int link = known.try_emplace(ends, static_cast<int>(known.size())).first->second;
    const auto cls = std::tuple(action(sides.front()).kind, sides.size(), bytes);
    const int number = classes_.try_emplace(cls, static_cast<int>(classes_.size())).first->second;
    transfers_.push_back({std::move(sides), sort, link, number});
  }

  /// From the last side's begin; a receive that begins when the send is over has delayed nobody.
  [[nodiscard]] std::pair<double, double> under_way(const Transfer& t, const StepSpans& spans) const {
    const Span& first = spans[t.sides[0].rank][t.sides[0].action];
    std::pair<double, double> found{first.begin, first.end};
    for (const Place side : t.sides) {
      const Span& span = spans[side.rank][side.action];
      if (action(side).kind == schedule::Kind::recv && span.begin > first.end) continue;
      found = {std::max(found.first, span.begin), std::max(found.second, span.end)};
    }
    return found;
  }

  const schedule::Program& program_;
  schedule::Matching matching_;
  std::array<Links, 3> links_{{{"the link of nodes {} and {}", "the adapter of node {}", {}, {}},
      {"the link of ranks {} and {}", "the links of rank {} inside its node", {}, {}},
      {"the collectives of ranks {} to {}", nullptr, {}, {}}}};
  std::map<std::tuple<schedule::Kind, std::size_t, double>, int> classes_;
  std::vector<Transfer> transfers_;
  int sort_ = 0;
};

/// "rank 17 (node 4, device 1)"
std::string name_of(int rank, const std::vector<Site>& sites) {
  const bool apart = std::ranges::any_of(sites, [&](const Site& s) { return s.node != sites.front().node; });
  std::string where = apart ? fmt::format("node {}", sites[rank].node) : "";
  if (!sites.empty() && sites[rank].device >= 0)
    where += fmt::format("{}device {}", apart ? ", " : "", sites[rank].device);
  return fmt::format("rank {}{}", rank, where.empty() ? "" : " (" + where + ")");
}

/// Nodes of several ranks where there are several, or ranks.
std::vector<Suspect> computing_suspects(bool of_nodes, int ranks, const std::vector<Site>& sites) {
  std::vector<Suspect> all;
  std::map<int, std::vector<int>> nodes;
  for (int r = 0; r < ranks; ++r) {
    if (of_nodes && !sites.empty()) nodes[sites[r].node].push_back(r);
    if (!of_nodes) all.push_back({name_of(r, sites), {r}});
  }
  for (const auto& [node, members] : nodes)
    if (members.size() > 1) all.push_back({fmt::format("node {}", node), members});
  return all;
}

/// What the step would be without it: a share of its length; NaN if it cannot be executed again.
double share_of(const schedule::Program& program, const StepSpans& spans, const Speedup& speedup) {
  double length = 0;
  for (const auto& rank : spans)
    for (const Span& span : rank) length = std::max(length, span.end);
  const double again = replay(program, spans, [](int, int) { return 1; });
  if (!(std::abs(again / length - 1) < 0.03)) return Blame::unknown;
  return 1 - replay(program, spans, speedup) / again;
}

std::string sentence(const Finding& found, double share, bool computes) {
  const int all = found.peers + static_cast<int>(found.subjects.size());
  const std::string peers = computes ? "ranks" : "links";
  const std::string rate = computes ? fmt::format("computes {:.0f} % slower than the median of {} {}",
                                          100 * (found.ratio - 1), all, peers)
                                    : fmt::format("moves data at {:.0f} % of the median rate of {} {}",
                                          100 / found.ratio, all, peers);
  return fmt::format("{} {}{}", found.name, rate,
      std::isnan(share) ? ""
      : share < 0.005   ? "; the step would be as long without it"
                        : fmt::format("; without it the step would be {:.0f} % shorter", 100 * share));
}
}  // namespace

Works::Works(const schedule::Program& program, const model::Layout& layout,
    const std::vector<std::int64_t>& micro_batch_per_rank) {
  std::map<std::tuple<schedule::Kind, double, double>, int> classes;
  std::vector<std::vector<double>> amount_of;  // of each action
  for (int r = 0; r < static_cast<int>(program.ranks.size()); ++r) {
    std::vector<int>& of_rank = class_of_.emplace_back();
    std::vector<double>& amounts = amount_of.emplace_back();
    for (const Action& a : program.ranks[r].actions) {
      const double blocks = schedule::is_visit(a.kind) ? layout.shards[a.shard].layers : 1;
      const double part =
          micro_batch_per_rank.empty() || a.micro_batch < 0
              ? 1
              : static_cast<double>(micro_batch_per_rank[r]) / static_cast<double>(layout.shape.micro_batch);
      const std::tuple cls(a.kind, part * schedule::flops(a, layout) / blocks,
          part * schedule::touched_bytes(program, r, a, layout));
      const bool computes = a.lane == schedule::Lane::compute && std::get<1>(cls) + std::get<2>(cls) > 0;
      of_rank.push_back(
          computes ? classes.try_emplace(cls, static_cast<int>(classes.size())).first->second : -1);
      amounts.push_back(blocks);
    }
  }
  amounts_.assign(class_of_.size(), std::vector<double>(classes.size()));
  for (std::size_t r = 0; r < class_of_.size(); ++r)
    for (std::size_t i = 0; i < class_of_[r].size(); ++i)
      if (class_of_[r][i] >= 0) amounts_[r][class_of_[r][i]] += amount_of[r][i];
}

std::vector<double> Works::seconds(int rank, const std::vector<Span>& spans) const {
  std::vector<double> sums(amounts_[rank].size());
  for (std::size_t i = 0; i < spans.size(); ++i)
    if (const int cls = class_of_[rank][i]; cls >= 0) sums[cls] += spans[i].end - spans[i].begin;
  return sums;
}

double replay(const schedule::Program& program, const StepSpans& spans, const Speedup& speedup) {
  Replay again(program, spans, speedup);
  schedule::detail::execute(program, again);
  return again.length();
}

Blame find_blame(const schedule::Program& program, const model::Layout& layout,
    const std::vector<Site>& sites, const Observed& computing, std::span<const StepSpans> steps) {
  constexpr double least = 0.05;
  Blame blame;
  const int ranks = static_cast<int>(program.ranks.size());
  if (ranks < 2 || steps.empty()) return blame;
  Judge judge(computing, least);
  blame.ratios = judge.ratios();
  blame.text = "no rank or link stands out";
  const auto tell = [&](const Finding& found, bool computes, const Speedup& speedup) {
    const double share = share_of(program, steps.front(), speedup);
    if (!blame.culprit.empty() && !(share > blame.share)) return;
    blame = {sentence(found, share, computes), found.name, found.ratio - 1, share, std::move(blame.ratios)};
  };
  Finding slow = judge.worst(computing_suspects(true, ranks, sites));
  if (slow.peers == 0) slow = judge.worst(computing_suspects(false, ranks, sites));
  const auto is_slow = [&](int rank) {
    return std::ranges::find(slow.subjects, rank) != slow.subjects.end();
  };
  if (slow.peers > 0)
    tell(slow, true, [&](int rank, int action) {
      const Action& a = program.ranks[rank].actions[action];
      return is_slow(rank) && a.lane == schedule::Lane::compute ? slow.ratio : 1;
    });
  Transfers transfers(program, layout, sites);
  for (const StepSpans& spans : steps) transfers.observe(spans);
  const Finding link = transfers.worst();
  const std::set<std::pair<int, int>> sides = transfers.sides(link);
  // Data move slowly to and from a rank that is slow itself.
  if (link.peers > 0 && std::ranges::none_of(sides, is_slow, &std::pair<int, int>::first))
    tell(link, false, [&](int rank, int action) { return sides.contains({rank, action}) ? link.ratio : 1; });
  return blame;
}
}  // namespace minitaw::trace
