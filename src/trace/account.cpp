// SPDX-License-Identifier: BSD-3-Clause
#include "trace/account.hpp"
#include <algorithm>
#include <limits>
#include "schedule/execute.hpp"

namespace minitaw::trace {
namespace {
using schedule::Action, schedule::Span;

struct Interval {
  double begin = 0, end = 0;
};

/// Adds an interval to a list in order of their begins, joined with the last one where they touch.
void join(std::vector<Interval>& list, Interval next) {
  if (next.end <= next.begin)
    return;
  if (!list.empty() && next.begin <= list.back().end)
    list.back().end = std::max(list.back().end, next.end);
  else
    list.push_back(next);
}

double length(const std::vector<Interval>& list) {
  return std::accumulate(list.begin(), list.end(), 0.0, [](double sum, const Interval& i) {
    return sum + (i.end - i.begin);
  });
}

/// Time in both lists; each is in order and without overlaps.
double common(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  double sum = 0;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    sum += std::max(0.0, std::min(a[i].end, b[j].end) - std::max(a[i].begin, b[j].begin));
    a[i].end < b[j].end ? ++i : ++j;
  }
  return sum;
}

/// An action that has been executed. Those of a lane follow each other, in order.
struct Executed {
  const Action* action;
  Span span;
  std::int32_t rank, position;  ///< the position in its lane
  std::int32_t transfer;        ///< -1: none

  bool computes() const { return action->lane == schedule::Lane::compute; }
};

/// For a program that validate() accepts, which outlives it.
class Accountant {
public:
  Accountant(const schedule::Program& program, const StepSpans& spans)
      : matching_(schedule::detail::match(program, std::ssize(spans) / std::ssize(program.ranks))),
        lanes_(spans.size()),
        by_index_(spans.size()),
        last_of_collective_(matching_.transfers()),
        most_hops_(schedule::lanes * std::ssize(spans) + 1) {
    for (const int r : indices(spans)) {
      const std::vector<Action>& actions = program.ranks[program.rank_of(r)].actions;
      for (std::int32_t i = 0; const Action& a : actions) {
        std::vector<Executed>& lane = lanes_[r][index_of(a.lane)];
        const std::int32_t position = std::ssize(lane);
        lane.push_back({&a, spans[r][i], r, position, matching_.transfer_of({r, i})});
        ++i;
      }
      by_index_[r].resize(actions.size());
      for (const std::vector<Executed>& lane : lanes_[r])
        for (const Executed& e : lane)
          by_index_[r][e.action - actions.data()] = &e;
    }
  }

  RankTime of(int rank, double step) {
    current_ = {};
    for (const Executed& e : lanes_[rank][index_of(schedule::Lane::compute)])
      add_compute(e);
    add_communication(rank);
    current_.idle = std::max(0.0, step - current_.compute - current_.exposed_total());
    return current_;
  }

private:
  static double free_since(const Executed& e) { return e.position > 0 ? (&e - 1)->span.end : 0; }

  double& exposed(const Executed& transfer) {
    return current_.exposed[index_of(traffic_of(transfer.action->payload))];
  }

  void add_compute(const Executed& e) {
    if (e.action->kind != schedule::Kind::join)
      current_.compute += e.span.end - e.span.begin;
    const double from = free_since(e);
    const Executed* const needed = last_needed(e);
    if (e.span.begin <= from || needed == nullptr || needed->span.end <= from)
      return;
    explain_wait(e, from, e.span.begin, most_hops_);
    // The time that a lane takes to notice the end of a transfer belongs to it.
    exposed(*needed) += std::max(0.0, e.span.begin - needed->span.end);
  }

  /// The action of another lane that ends last of those that this one waits for; nullptr: none.
  const Executed* last_needed(const Executed& e) const {
    const Executed* last = nullptr;
    for_each_wait(lanes_[e.rank], *e.action, [&](const Executed& needed) {
      if (last == nullptr || needed.span.end > last->span.end)
        last = &needed;
    });
    return last;
  }

  /// The side that began last of those that this transfer may have waited for.
  const Executed& last_side(const Executed& e) {
    if (!is_collective(e.action->kind))
      return latest(e, e.span.end);
    const Executed*& last = last_of_collective_[e.transfer];
    if (last == nullptr) {
      const schedule::Place first = matching_.sides_of(e.transfer)[0];
      last = &latest(*by_index_[first.rank][first.action], std::numeric_limits<double>::infinity());
    }
    return last->span.begin <= e.span.end ? *last : latest(e, e.span.end);
  }

  /// The side of a transfer that begins last, but not after `end`; else this one.
  const Executed& latest(const Executed& e, double end) const {
    const Executed* last = &e;
    for (const auto& [rank, action] : matching_.sides_of(e.transfer)) {
      const Executed* const side = by_index_[rank][action];
      if (side->span.begin > last->span.begin && side->span.begin <= end)
        last = side;
    }
    return *last;
  }

  /// In [from, to] a lane had come to `e` and waited for other lanes of its rank.
  void explain_wait(const Executed& e, double from, double to, int hops) {
    const Executed* const needed = last_needed(e);
    if (needed != nullptr)
      explain(*needed, from, std::min(to, needed->span.end), hops - 1);
  }

  /// Charges [from, to] to what the lane of `until` did in that time, which had not finished
  /// `until`.
  void explain(const Executed& until, double from, double to, int hops) {
    if (hops == 0)
      return;  // clocks that disagree can make a circle of waits
    // From the first action that had not ended at `to`, or `until` itself, backwards.
    const Executed* const first = &until - until.position;
    const auto ended = [&](const Executed& e) { return e.span.end < to; };
    for (auto at = std::partition_point(first, &until, ended) - first; at >= 0 && from < to; --at) {
      const Executed& e = first[at];
      const double began = std::max(from, e.span.begin);
      if (began < to)
        explain_run(e, began, std::min(to, e.span.end), hops);
      to = std::min(to, began);
      const double was_free = std::max(from, free_since(e));
      if (was_free < to)
        explain_wait(e, was_free, to, hops);
      to = std::min(to, was_free);
    }
  }

  /// In [from, to] the action had begun and not ended.
  void explain_run(const Executed& e, double from, double to, int hops) {
    if (e.computes())
      return;  // of another rank: idle time
    const Executed& last = last_side(e);
    exposed(e) += std::max(0.0, to - std::max(from, last.span.begin));
    if (from < last.span.begin)
      explain(last, from, std::min(to, last.span.begin), hops - 1);
  }

  void add_communication(int rank) {
    std::vector<Interval> transfers, busy, computing;
    for (const std::vector<Executed>& lane : lanes_[rank])
      for (const Executed& e : lane)
        if (is_communication(e.action->kind))
          transfers.push_back({last_side(e).span.begin, e.span.end});
        else if (e.computes() && e.action->kind != schedule::Kind::join)
          join(computing, {e.span.begin, e.span.end});
    std::ranges::sort(transfers, {}, &Interval::begin);
    for (const Interval& transfer : transfers)
      join(busy, transfer);
    current_.communication = length(busy);
    current_.hidden = common(busy, computing);
  }

  schedule::Matching matching_;
  std::vector<schedule::Finished<Executed>> lanes_;     ///< by rank
  std::vector<std::vector<const Executed*>> by_index_;  ///< by rank, as RankProgram::actions
  std::vector<const Executed*>
      last_of_collective_;  ///< of all its sides; found when first asked for
  int most_hops_;
  RankTime current_;
};
}  // namespace

RankTime total_of(const std::vector<RankTime>& ranks) {
  RankTime sum;
  for (const RankTime& rank : ranks) {
    sum.compute += rank.compute;
    sum.idle += rank.idle;
    sum.communication += rank.communication;
    sum.hidden += rank.hidden;
    for (const int k : indices(sum.exposed))
      sum.exposed[k] += rank.exposed[k];
  }
  return sum;
}

StepAccount account(const schedule::Program& program, const StepSpans& spans) {
  StepAccount result{schedule::idle(program, spans).seconds, {}};
  Accountant accountant(program, spans);
  for (const int r : indices(spans))
    result.ranks.push_back(accountant.of(r, result.length));
  return result;
}
}  // namespace minitaw::trace
