#include "engine/account.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "schedule/execute.hpp"

namespace minitaw::engine {
namespace {

using schedule::Action;
using schedule::Span;

constexpr int compute_lane = static_cast<int>(schedule::Lane::compute);

/// An action by its position in a lane of a rank; -1: none.
struct LaneAction {
  std::int32_t rank = -1, lane = -1, position = -1;
};

/// The actions of all lanes of all ranks, what each waits for and who takes part in its transfer. For a
/// program that validate() accepts, which outlives it.
class LaneTable {
public:
  explicit LaneTable(const schedule::Program& program)
      : program_(program), matching_(schedule::detail::match(program)) {
    for (const schedule::RankProgram& rank : program.ranks) {
      RankActions& found = ranks_.emplace_back();
      found.position_of.resize(rank.actions.size());
      for (int l = 0; l < schedule::lanes; ++l) {
        found.lanes[l] = schedule::actions_of(rank, static_cast<schedule::Lane>(l));
        for (std::int32_t i = 0; const int action : found.lanes[l]) found.position_of[action] = i++;
      }
    }
  }

  [[nodiscard]] int size(int rank, int lane) const {
    return static_cast<int>(ranks_[rank].lanes[lane].size());
  }
  /// The last action of another lane that this one waits for; position -1: none.
  [[nodiscard]] LaneAction needed(LaneAction p, int lane) const {
    // A count of actions is the position behind the last. Its own lane is in order anyway.
    return {p.rank, lane, lane == p.lane ? -1 : action(p).waits[lane] - 1};
  }
  /// Index into RankProgram::actions.
  [[nodiscard]] int index(LaneAction p) const { return ranks_[p.rank].lanes[p.lane][p.position]; }
  [[nodiscard]] const Action& action(LaneAction p) const { return program_.ranks[p.rank].actions[index(p)]; }

  /// Number of the collective that an action is a call of; -1: it is none.
  [[nodiscard]] std::int32_t collective_of(LaneAction p) const {
    return is_collective(action(p).kind) ? other(p) : -1;
  }
  [[nodiscard]] std::size_t collectives() const { return matching_.collectives(); }

  /// Calls visit(LaneAction) for the other side of a message, or every call of a collective.
  template <class Visit>
  void for_each_side(LaneAction p, const Visit& visit) const {
    const Action& a = action(p);
    if (is_point_to_point(a.kind)) visit(lane_action_of(a.peer, other(p)));
    if (!is_collective(a.kind)) return;
    for (const schedule::Place call : matching_.calls_of(other(p)))
      visit(lane_action_of(call.rank, call.action));
  }

private:
  struct RankActions {
    std::array<std::vector<int>, schedule::lanes> lanes;  ///< indices into RankProgram::actions
    std::vector<std::int32_t> position_of;                ///< by action: in its lane
  };
  [[nodiscard]] std::int32_t other(LaneAction p) const {
    return matching_.other[matching_.number({p.rank, index(p)})];
  }
  [[nodiscard]] LaneAction lane_action_of(int rank, int action) const {
    return {rank, static_cast<std::int32_t>(program_.ranks[rank].actions[action].lane),
            ranks_[rank].position_of[action]};
  }

  const schedule::Program& program_;
  schedule::Matching matching_;
  std::vector<RankActions> ranks_;
};

/// A time and the action that begins then.
struct Beginning {
  double time = 0;
  LaneAction place;
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
  Accountant(const LaneTable& table, const StepSpans& spans)
      : table_(table), spans_(spans), last_of_collective_(table.collectives()),
        most_hops_(schedule::lanes * static_cast<int>(spans.size()) + 1) {}

  trace::RankTime of(int rank, double step) {
    current_ = {};
    for (int i = 0; i < table_.size(rank, compute_lane); ++i) add_compute({rank, compute_lane, i});
    add_communication(rank);
    current_.idle = std::max(0.0, step - current_.compute - current_.exposed_total());
    return current_;
  }

private:
  [[nodiscard]] const Span& span(LaneAction p) const { return spans_[p.rank][table_.index(p)]; }
  /// End of the action in front of it.
  [[nodiscard]] double free_since(LaneAction p) const {
    return p.position > 0 ? span({p.rank, p.lane, p.position - 1}).end : 0;
  }
  double& exposed(LaneAction transfer) {
    return current_.exposed[static_cast<std::size_t>(traffic_of(table_.action(transfer).payload))];
  }

  void add_compute(LaneAction p) {
    const Span& s = span(p);
    if (table_.action(p).kind != schedule::Kind::join) current_.compute += s.end - s.begin;
    const double from = free_since(p);
    const LaneAction needed = last_needed(p);
    if (s.begin <= from || needed.position < 0 || span(needed).end <= from) return;
    explain_wait(p, from, s.begin, most_hops_);
    // The time that a lane takes to notice the end of a transfer belongs to it.
    exposed(needed) += std::max(0.0, s.begin - span(needed).end);
  }

  /// The action of another lane that ends last of those that this one waits for; position -1: none.
  [[nodiscard]] LaneAction last_needed(LaneAction p) const {
    LaneAction last;
    for (int l = 0; l < schedule::lanes; ++l)
      if (const LaneAction needed = table_.needed(p, l); needed.position >= 0)
        if (last.position < 0 || span(needed).end > span(last).end) last = needed;
    return last;
  }

  /// The side that began last of those that this transfer may have waited for.
  [[nodiscard]] Beginning last_side(LaneAction p) {
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
  [[nodiscard]] Beginning latest(Beginning otherwise, LaneAction p, double end) const {
    Beginning last = otherwise;
    table_.for_each_side(p, [&](LaneAction side) {
      if (const double begin = span(side).begin; begin > last.time && begin <= end) last = {begin, side};
    });
    return last;
  }

  /// In [from, to] a lane had come to `p` and waited for other lanes of its rank.
  void explain_wait(LaneAction p, double from, double to, int hops) {
    const LaneAction needed = last_needed(p);
    if (needed.position >= 0) explain(needed, from, std::min(to, span(needed).end), hops - 1);
  }

  /// Charges [from, to] to what the lane of `until` did in that time, which had not finished `until`.
  void explain(LaneAction until, double from, double to, int hops) {
    if (hops == 0) return;  // clocks that disagree can make a circle of waits
    for (LaneAction p = action_at(until, to); p.position >= 0 && from < to; --p.position) {
      const double began = std::max(from, span(p).begin);
      if (began < to) explain_run(p, began, std::min(to, span(p).end), hops);
      to = std::min(to, began);
      const double was_free = std::max(from, free_since(p));
      if (was_free < to) explain_wait(p, was_free, to, hops);
      to = std::min(to, was_free);
    }
  }

  /// The first action of the lane of `until` that had not ended at `time`, or `until` itself.
  [[nodiscard]] LaneAction action_at(LaneAction until, double time) const {
    int first = 0, last = until.position;
    while (first < last) {
      const int middle = first + (last - first) / 2;
      if (span({until.rank, until.lane, middle}).end < time) first = middle + 1;
      else last = middle;
    }
    return {until.rank, until.lane, first};
  }

  /// In [from, to] the action had begun and not ended.
  void explain_run(LaneAction p, double from, double to, int hops) {
    if (p.lane == compute_lane) return;  // of another rank: idle time
    const Beginning last = last_side(p);
    exposed(p) += std::max(0.0, to - std::max(from, last.time));
    if (from < last.time) explain(last.place, from, std::min(to, last.time), hops - 1);
  }

  void add_communication(int rank) {
    std::vector<Interval> transfers;
    for (int l = 0; l < schedule::lanes; ++l) {
      if (l == compute_lane) continue;
      for (int i = 0; i < table_.size(rank, l); ++i) {
        const LaneAction p{rank, l, i};
        if (is_communication(table_.action(p).kind)) transfers.push_back({last_side(p).time, span(p).end});
      }
    }
    std::ranges::sort(transfers, {}, &Interval::begin);
    std::vector<Interval> busy, computing;
    for (const Interval& transfer : transfers) join(busy, transfer);
    for (int i = 0; i < table_.size(rank, compute_lane); ++i)
      if (const LaneAction p{rank, compute_lane, i}; table_.action(p).kind != schedule::Kind::join)
        join(computing, {span(p).begin, span(p).end});
    current_.communication = length(busy);
    current_.hidden = common(busy, computing);
  }

  const LaneTable& table_;
  const StepSpans& spans_;
  std::vector<Beginning> last_of_collective_;  ///< of all its sides; found when first asked for
  int most_hops_;
  trace::RankTime current_;
};

}  // namespace

StepAccount account(const schedule::Program& program, const StepSpans& spans) {
  const LaneTable table(program);
  StepAccount result;
  for (const auto& rank : spans)
    for (const Span& span : rank) result.length = std::max(result.length, span.end);
  Accountant accountant(table, spans);
  for (int r = 0; r < static_cast<int>(spans.size()); ++r)
    result.ranks.push_back(accountant.of(r, result.length));
  return result;
}

}  // namespace minitaw::engine
