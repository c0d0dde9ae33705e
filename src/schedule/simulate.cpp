#include "schedule/simulate.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "schedule/play.hpp"

namespace minitaw::schedule {
namespace {

/// Gives times to what happens, in whatever order it is played: when an action can happen, everything that it
/// waits for has its times.
class Stopwatch : public Listener {
public:
  Stopwatch(const Program& program, const std::vector<detail::LaneSequences>& sequences, const Costs& costs)
      : program_(program), sequences_(sequences), costs_(costs) {
    for (const RankProgram& rank : program.ranks) {
      spans_.emplace_back(rank.actions.size());
      ranks_.push_back({std::vector<double>(rank.actions.size()), {}});
    }
  }

  void local(Place action) override {
    const double begin = start(action);
    finish(action, begin, begin + seconds(action));
  }

  void message(Place send, Place receive) override {
    const double begin = std::max(start(send), start(receive)), end = begin + seconds(send);
    finish(send, begin, end);
    finish(receive, begin, end);
  }

  void collective(std::span<const Place> calls) override {
    double begin = 0;
    for (const Place call : calls) begin = std::max(begin, start(call));
    const double end = begin + seconds(calls.front());
    for (const Place call : calls) finish(call, begin, end);
  }

  [[nodiscard]] std::vector<std::vector<Span>> spans() && { return std::move(spans_); }

private:
  struct RankState {
    std::vector<double> finished;      ///< by action
    std::array<double, lanes> free{};  ///< when the lane's last action finished
  };

  [[nodiscard]] const Action& at(Place p) const { return program_.ranks[p.rank].actions[p.action]; }
  [[nodiscard]] double seconds(Place p) const { return costs_(p.rank, at(p)); }

  /// When the action started; a lane has one at a time.
  double start(Place p) {
    const Action& a = at(p);
    const double ready = ranks_[p.rank].free[static_cast<std::size_t>(a.lane)];
    spans_[p.rank][p.action].ready = ready;
    return std::max(ready, waits_met(p.rank, a));
  }

  [[nodiscard]] double waits_met(int r, const Action& a) const {
    double met = 0;
    for (std::size_t l = 0; l < lanes; ++l)
      if (a.waits[l] > 0) met = std::max(met, ranks_[r].finished[sequences_[r][l][a.waits[l] - 1]]);
    return met;
  }

  void finish(Place p, double begin, double end) {
    spans_[p.rank][p.action].begin = begin;
    spans_[p.rank][p.action].end = end;
    RankState& rank = ranks_[p.rank];
    rank.finished[p.action] = end;
    rank.free[static_cast<std::size_t>(at(p).lane)] = end;
  }

  const Program& program_;
  const std::vector<detail::LaneSequences>& sequences_;
  const Costs& costs_;
  std::vector<std::vector<Span>> spans_;
  std::vector<RankState> ranks_;
};

}  // namespace

std::vector<std::vector<Span>> simulate(const Program& program, const Costs& costs) {
  try {
    const std::vector<detail::LaneSequences> sequences = detail::lane_sequences(program);
    Stopwatch stopwatch(program, sequences, costs);
    detail::play(program, sequences, detail::match(program), stopwatch);
    return std::move(stopwatch).spans();
  } catch (const detail::Refusal& refusal) {
    throw LogicError("this program cannot be simulated: " + refusal.violation.message);
  }
}

namespace {

/// Sums of times may differ in their last digits.
double rest(double part, double whole) { return whole > 0 ? std::max(0.0, 1 - part / whole) : 0; }

}  // namespace

double Idle::share() const {
  return rest(std::accumulate(busy.begin(), busy.end(), 0.0), seconds * static_cast<double>(busy.size()));
}

double Idle::share(int rank) const { return rest(busy[rank], seconds); }

Idle idle(const Program& program, const std::vector<std::vector<Span>>& spans) {
  Idle result;
  for (std::size_t r = 0; r < spans.size(); ++r) {
    double& busy = result.busy.emplace_back(0);
    for (std::size_t i = 0; i < spans[r].size(); ++i) {
      result.seconds = std::max(result.seconds, spans[r][i].end);
      if (program.ranks[r].actions[i].lane == Lane::compute) busy += spans[r][i].end - spans[r][i].begin;
    }
  }
  return result;
}

}  // namespace minitaw::schedule
