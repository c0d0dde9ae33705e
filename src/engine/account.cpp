#include "engine/account.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "engine/unit_table.hpp"

namespace minitaw::engine {
namespace {

using schedule::Span;

constexpr int compute_lane = static_cast<int>(schedule::Lane::compute);

/// A time and the unit that begins then.
struct Beginning {
  double time = 0;
  UnitPlace place;
};

struct Interval {
  double begin = 0, end = 0;
};

/// Adds an interval to a list in order of their begins, joined with the last one where they touch.
void join(std::vector<Interval>& list, Interval next) {
  if (next.end <= next.begin) return;
  if (!list.empty() && next.begin <= list.back().end) list.back().end = std::max(list.back().end, next.end);
  else list.push_back(next);
}

double length(const std::vector<Interval>& list) {
  return std::accumulate(list.begin(), list.end(), 0.0,
                         [](double sum, const Interval& i) { return sum + (i.end - i.begin); });
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

class Accountant {
public:
  Accountant(const UnitTable& table, const StepSpans& spans)
      : table_(table), spans_(spans), last_of_collective_(table.collectives()),
        most_hops_(schedule::lanes * static_cast<int>(spans.size()) + 1) {}

  RankAccount of(int rank, double step) {
    current_ = {};
    for (int u = 0; u < units(rank, compute_lane); ++u) add_compute_unit({rank, compute_lane, u});
    add_communication(rank);
    current_.idle = std::max(0.0, step - current_.compute - current_.exposed_total());
    return current_;
  }

private:
  [[nodiscard]] int units(int rank, int lane) const {
    return static_cast<int>(table_.lane(rank, lane).units.size());
  }
  /// Of the last action: what a batch receives may be there before the batch is complete.
  [[nodiscard]] const Span& span(UnitPlace p) const {
    return spans_[p.rank][table_.lane(p.rank, p.lane).actions[table_.unit(p).end - 1]];
  }
  /// End of the unit in front of it.
  [[nodiscard]] double free_since(UnitPlace p) const {
    return p.unit > 0 ? span({p.rank, p.lane, p.unit - 1}).end : 0;
  }
  double& exposed(UnitPlace transfer) {
    return current_.exposed[static_cast<std::size_t>(traffic_of(table_.first_action(transfer).payload))];
  }

  void add_compute_unit(UnitPlace p) {
    const Span& s = span(p);
    if (table_.first_action(p).kind != schedule::Kind::join) current_.compute += s.end - s.begin;
    const double from = free_since(p);
    const UnitPlace needed = last_needed(p);
    if (s.begin <= from || needed.unit < 0 || span(needed).end <= from) return;
    explain_wait(p, from, s.begin, most_hops_);
    // The time that a lane takes to notice the end of a transfer belongs to it.
    exposed(needed) += std::max(0.0, s.begin - span(needed).end);
  }

  /// The unit of another lane that ends last of those that this one waits for; unit -1: none.
  [[nodiscard]] UnitPlace last_needed(UnitPlace p) const {
    UnitPlace last;
    const auto& needs = table_.unit(p).needs;
    for (int l = 0; l < schedule::lanes; ++l)
      if (const UnitPlace needed{p.rank, l, needs[l]}; needed.unit >= 0)
        if (last.unit < 0 || span(needed).end > span(last).end) last = needed;
    return last;
  }

  /// The side that began last of those that this transfer may have waited for.
  [[nodiscard]] Beginning last_side(UnitPlace p) {
    const Beginning own{span(p).begin, p};
    const double end = span(p).end;
    const std::int32_t collective = table_.collective_of(p);
    if (collective < 0) return latest(own, p, end);
    Beginning& last = last_of_collective_[collective];
    if (last.place.rank < 0) last = latest({-1, {}}, p, std::numeric_limits<double>::infinity());
    return last.time <= end ? last : latest(own, p, end);
  }

  /// The side of a transfer that begins last, but not after `end`; the first of several, `otherwise` if none
  /// begins later than that.
  [[nodiscard]] Beginning latest(Beginning otherwise, UnitPlace p, double end) const {
    Beginning last = otherwise;
    table_.for_each_side(p, [&](UnitPlace side) {
      if (const double begin = span(side).begin; begin > last.time && begin <= end) last = {begin, side};
    });
    return last;
  }

  /// In [from, to] a lane had come to `p` and waited for other lanes of its rank.
  void explain_wait(UnitPlace p, double from, double to, int hops) {
    const UnitPlace needed = last_needed(p);
    if (needed.unit >= 0) explain(needed, from, std::min(to, span(needed).end), hops - 1);
  }

  /// Charges [from, to] to what the lane of `until` did in that time, which had not finished `until`.
  void explain(UnitPlace until, double from, double to, int hops) {
    if (hops == 0) return;  // clocks that disagree can make a circle of waits
    for (UnitPlace p = unit_at(until, to); p.unit >= 0 && from < to; --p.unit) {
      const double began = std::max(from, span(p).begin);
      if (began < to) explain_run(p, began, std::min(to, span(p).end), hops);
      to = std::min(to, began);
      const double was_free = std::max(from, free_since(p));
      if (was_free < to) explain_wait(p, was_free, to, hops);
      to = std::min(to, was_free);
    }
  }

  /// The first unit of the lane of `until` that had not ended at `time`, or `until` itself.
  [[nodiscard]] UnitPlace unit_at(UnitPlace until, double time) const {
    int first = 0, last = until.unit;
    while (first < last) {
      const int middle = first + (last - first) / 2;
      if (span({until.rank, until.lane, middle}).end < time) first = middle + 1;
      else last = middle;
    }
    return {until.rank, until.lane, first};
  }

  /// In [from, to] the unit had begun and not ended.
  void explain_run(UnitPlace p, double from, double to, int hops) {
    if (p.lane == compute_lane) return;  // of another rank: idle time
    const Beginning last = last_side(p);
    exposed(p) += std::max(0.0, to - std::max(from, last.time));
    if (from < last.time) explain(last.place, from, std::min(to, last.time), hops - 1);
  }

  void add_communication(int rank) {
    std::vector<Interval> transfers;
    for (int l = 0; l < schedule::lanes; ++l) {
      if (l == compute_lane) continue;
      for (int u = 0; u < units(rank, l); ++u) {
        const UnitPlace p{rank, l, u};
        if (is_communication(table_.first_action(p).kind))
          transfers.push_back({last_side(p).time, span(p).end});
      }
    }
    std::ranges::sort(transfers, {}, &Interval::begin);
    std::vector<Interval> busy, computing;
    for (const Interval& transfer : transfers) join(busy, transfer);
    for (int u = 0; u < units(rank, compute_lane); ++u)
      if (const UnitPlace p{rank, compute_lane, u}; table_.first_action(p).kind != schedule::Kind::join)
        join(computing, {span(p).begin, span(p).end});
    current_.communication = length(busy);
    current_.hidden = common(busy, computing);
  }

  const UnitTable& table_;
  const StepSpans& spans_;
  std::vector<Beginning> last_of_collective_;  ///< of all its sides; found when first asked for
  int most_hops_;
  RankAccount current_;
};

}  // namespace

double RankAccount::exposed_total() const { return std::accumulate(exposed.begin(), exposed.end(), 0.0); }

StepAccount account(const schedule::Program& program, const StepSpans& spans) {
  const UnitTable table(program);
  StepAccount result;
  for (const auto& rank : spans)
    for (const Span& span : rank) result.length = std::max(result.length, span.end);
  Accountant accountant(table, spans);
  for (int r = 0; r < static_cast<int>(spans.size()); ++r)
    result.ranks.push_back(accountant.of(r, result.length));
  return result;
}

namespace {

/// When the units of each lane of a rank end.
using UnitEnds = std::array<std::vector<double>, schedule::lanes>;

UnitEnds unit_ends(const UnitTable& table, int rank, const std::vector<Span>& spans) {
  UnitEnds ends;
  for (int l = 0; l < schedule::lanes; ++l)
    for (const UnitTable::Unit& unit : table.lane(rank, l).units) {
      double& end = ends[l].emplace_back(0);
      for (int i = unit.begin; i < unit.end; ++i)
        end = std::max(end, spans[table.lane(rank, l).actions[i]].end);
    }
  return ends;
}

/// When a lane that is never late starts its unit number `u`.
double start(const UnitTable::Unit& unit, int lane, std::size_t u, const UnitEnds& ends) {
  double begin = u > 0 ? ends[lane][u - 1] : 0;
  for (int l = 0; l < schedule::lanes; ++l)
    if (unit.needs[l] >= 0) begin = std::max(begin, ends[l][unit.needs[l]]);
  return begin;
}

}  // namespace

StepSpans as_measured(const schedule::Program& program, StepSpans planned) {
  const UnitTable table(program);
  for (int r = 0; r < static_cast<int>(planned.size()); ++r) {
    const UnitEnds ends = unit_ends(table, r, planned[r]);
    for (int l = 0; l < schedule::lanes; ++l)
      for (std::size_t u = 0; u < ends[l].size(); ++u) {
        const UnitTable::Unit& unit = table.lane(r, l).units[u];
        for (int i = unit.begin; i < unit.end; ++i) {
          Span& span = planned[r][table.lane(r, l).actions[i]];
          span = {span.ready, start(unit, l, u, ends), ends[l][u]};
        }
      }
  }
  return planned;
}

}  // namespace minitaw::engine
