// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/simulate.hpp"
#include <algorithm>
#include <limits>
#include <numeric>
#include "base/error.hpp"
#include "model/plan.hpp"
#include "schedule/account.hpp"
#include "schedule/execute.hpp"

namespace minitaw::schedule {
namespace {
/// Computes the times of actions as execute() reaches them: what they wait for has its times by
/// then.
class Stopwatch : public Listener {
public:
  Stopwatch(const Program& program, const Costs& costs)
      : Listener(program),
        costs_(costs),
        finished_(program.ranks.size()) {
    for (const RankProgram& rank : program.ranks)
      spans_.emplace_back(rank.actions.size());
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
    for (const Place call : calls)
      begin = std::max(begin, start(call));
    const double end = begin + seconds(calls.front());
    for (const Place call : calls)
      finish(call, begin, end);
  }

  [[nodiscard]] std::vector<std::vector<Span>> spans() && { return std::move(spans_); }

private:
  [[nodiscard]] double seconds(Place p) const { return costs_(p.rank, at(p)); }

  /// Returns when the action starts; a lane has one at a time.
  double start(Place p) {
    const Action& a = at(p);
    const auto& finished = finished_[p.rank];
    const std::vector<double>& lane = finished[index_of(a.lane)];
    double begin = spans_[p.rank][p.action].ready = lane.empty() ? 0 : lane.back();
    for (std::size_t l = 0; l < lanes; ++l)
      if (a.waits[l] > 0)
        begin = std::max(begin, finished[l][a.waits[l] - 1]);
    return begin;
  }

  void finish(Place p, double begin, double end) {
    spans_[p.rank][p.action].begin = begin;
    spans_[p.rank][p.action].end = end;
    finished_[p.rank][index_of(at(p).lane)].push_back(end);
  }

  const Costs& costs_;
  std::vector<std::vector<Span>> spans_;
  std::vector<std::array<std::vector<double>, lanes>>
      finished_;  ///< ends of each lane's actions, in order
};

/// Sums of times may differ in their last digits.
double rest(double part, double whole) {
  return whole > 0 ? std::max(0.0, 1 - part / whole) : 0;
}

using model::Layout;
}  // namespace

std::vector<std::vector<Span>> simulate(const Program& program, const Costs& costs) {
  try {
    Stopwatch stopwatch(program, costs);
    detail::execute(program, stopwatch);
    return std::move(stopwatch).spans();
  } catch (const detail::Refusal& refusal) {
    throw LogicError("this program cannot be simulated: " + refusal.violation.message);
  }
}

double Idle::share() const {
  return rest(
      std::accumulate(busy.begin(), busy.end(), 0.0), seconds * static_cast<double>(busy.size()));
}

double Idle::share(int rank) const {
  return rest(busy[rank], seconds);
}

Idle idle(const Program& program, const std::vector<std::vector<Span>>& spans) {
  Idle result;
  for (std::size_t r = 0; r < spans.size(); ++r) {
    double& busy = result.busy.emplace_back(0);
    for (std::size_t i = 0; i < spans[r].size(); ++i) {
      result.seconds = std::max(result.seconds, spans[r][i].end);
      if (program.ranks[r].actions[i].lane == Lane::compute)
        busy += spans[r][i].end - spans[r][i].begin;
    }
  }
  return result;
}

double seconds_of(
    const Action& a, const Layout& layout, const model::Speed& speed, double memory_rate) {
  const model::Shape& shape = layout.shape;
  if (a.kind == Kind::loss)
    return cost_of_loss(shape, speed, memory_rate);
  if (!is_visit(a.kind))
    return 0;
  const model::Shard& shard = layout.shards[a.shard];
  double sum = 0;
  for (int layer = shard.first_layer; layer < shard.first_layer + shard.layers; ++layer) {
    const model::BlockCost cost = cost_of_block(shape, shape.ffn[layer], speed, memory_rate);
    sum += a.kind == Kind::forward           ? cost.forward
           : a.kind == Kind::backward_input  ? cost.backward_input
           : a.kind == Kind::backward_weight ? cost.backward_weight
                                             : cost.backward_input + cost.backward_weight;
  }
  return sum;
}

double flops(const Action& action, const Layout& layout) {
  static const model::Curve one = {{{1, 1}}};
  static const model::Speed counting = {one, one, one};
  return seconds_of(action, layout, counting, std::numeric_limits<double>::infinity());
}

double touched_bytes(const Program& program, int rank, const Action& a, const Layout& layout) {
  const auto compute = static_cast<double>(model::bytes_of(layout.shape.dtype));
  constexpr double fp32 = sizeof(float);
  const auto width = [&](Slot slot) {
    return static_cast<double>(bytes_of(dtype_of(slot.cls, layout.shape)));
  };
  const auto kept = [&](Slot slot) { return held(program, rank, slot.cls, a.shard, layout).count; };
  switch (a.kind) {
  case Kind::embed:
  case Kind::embed_backward: return 2 * static_cast<double>(model::hidden_bytes(layout.shape));
  case Kind::update:  // gradient, two moments and master weights; the weights themselves
    return static_cast<double>(
               of_embeddings(a.payload) ? layout.embeddings.slice : kept(a[Operand::gradient])) *
           (7 * fp32 + compute);
  case Kind::square:
    return static_cast<double>(
               of_embeddings(a.payload) ? layout.embeddings.slice : kept(a[Operand::gradient])) *
           fp32;
  case Kind::zero:
    return static_cast<double>(kept(a[Operand::gradient])) * width(a[Operand::gradient]);
  case Kind::load:
  case Kind::accumulate:
    return static_cast<double>(moved(a, layout).count) *
           (width(a[Operand::source]) + (a.accumulates ? 2 : 1) * width(a[Operand::destination]));
  default: return 0;
  }
}

double moved_bytes(const Action& action, const Layout& layout) {
  return static_cast<double>(moved(action, layout).count) *
         static_cast<double>(bytes_of(dtype_of(action[Operand::buffer].cls, layout.shape)));
}

Costs costs_of(const Program& program,
    const Layout& layout,
    const Device& device,
    const std::vector<std::int64_t>& micro_batch_per_rank) {
  return [=, &program](int rank, const Action& a) {
    if (is_communication(a.kind))
      return 0.0;
    // All that is done with a micro-batch is proportional to B.
    const double factor = micro_batch_per_rank.empty() || a.micro_batch < 0
                              ? 1
                              : static_cast<double>(micro_batch_per_rank[rank]) /
                                    static_cast<double>(layout.shape.micro_batch);
    return factor * (flops(a, layout) / device.flops +
                        touched_bytes(program, rank, a, layout) / device.memory);
  };
}
}  // namespace minitaw::schedule
