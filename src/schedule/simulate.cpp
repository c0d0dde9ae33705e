// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/simulate.hpp"
#include <algorithm>
#include <numeric>
#include "model/plan.hpp"
#include "schedule/account.hpp"
#include "schedule/execute.hpp"

namespace minitaw::schedule {
std::vector<std::vector<Span>> simulate(const Program& program, const Costs& costs) {
  std::vector<std::vector<Span>> spans;
  for (const RankProgram& rank : program.ranks)
    spans.emplace_back(rank.actions.size());
  std::vector<Finished<double>> ends(program.ranks.size());

  detail::execute(program, [&](Sides sides) {
    double begin = 0;
    for (const Place side :
        sides) {  // starts when its lane is free and what it waits for has ended
      const Action& a = action_at(program, side);
      const std::vector<double>& lane = ends[side.rank][index_of(a.lane)];
      const double ready = lane.empty() ? 0 : lane.back();
      spans[side.rank][side.action].ready = ready;
      begin = std::max(begin, ready);
      for_each_wait(ends[side.rank], a, [&](double end) { begin = std::max(begin, end); });
    }
    const double end = begin + costs(sides[0].rank, action_at(program, sides[0]));
    for (const Place side : sides) {
      Span& span = spans[side.rank][side.action];
      span = {span.ready, begin, end};
      ends[side.rank][index_of(action_at(program, side).lane)].push_back(end);
    }
  });
  return spans;
}

double Idle::share(std::span<const double> of) const {
  const double all = seconds * std::ssize(of);
  return all > 0 ? std::max(0.0, 1 - std::accumulate(of.begin(), of.end(), 0.0) / all) : 0;
}

Idle idle(const Program& program, const std::vector<std::vector<Span>>& spans) {
  Idle result;
  for (const int r : indices(spans)) {
    double& busy = result.busy.emplace_back(0);
    for (const int i : indices(spans[r])) {
      result.seconds = std::max(result.seconds, spans[r][i].end);
      if (action_at(program, {r, i}).lane == Lane::compute)
        busy += spans[r][i].end - spans[r][i].begin;
    }
  }
  return result;
}

namespace {
/// Cost of what a visit, or a segment of one, computes of one block.
double cost_of_visit(const Action& a, const model::BlockCost& cost) {
  const auto of = [&](Segment segment, double whole) {
    return includes(a.segment, segment) ? whole : 0;
  };
  if (a.kind == Kind::forward) {
    // Attention to some of the heads; what follows it comes with the last of them.
    const double attend = a.part + 1 < a.parts ? cost.forward_attention / a.parts
                                               : cost.forward_attend - cost.forward_attention *
                                                                           (a.parts - 1) / a.parts;
    return of(Segment::keys, cost.forward_keys) + of(Segment::attend, attend);
  }
  const double towards_input = of(Segment::keys, cost.backward_keys) +
                               of(Segment::attend, cost.backward_attend) +
                               of(Segment::finish, cost.backward_finish);
  const double towards_weights = of(Segment::weights, cost.backward_attend_weights) +
                                 of(Segment::finish, cost.backward_finish_weights);
  return (a.kind != Kind::backward_weight ? towards_input : 0) +
         (a.kind != Kind::backward_input ? towards_weights : 0);
}
}  // namespace

double cost_of(const Action& a, const Layout& layout, const model::Price& price) {
  if (a.kind == Kind::loss)
    return cost_of_loss(layout.shape_of(a.micro_batch), price);
  if (!is_visit(a.kind))
    return 0;
  const int blocks = is_segment(a) ? 1 : layout.shards[a.shard].layers;
  return blocks * cost_of_visit(a, cost_of_block(layout.shape_of(a.micro_batch), price));
}

double flops(const Action& action, const Layout& layout) {
  return cost_of(action, layout, model::in_flops());
}

double touched_bytes(const Program& program, int rank, const Action& a, const Layout& layout) {
  const auto width = [&](Operand operand) {
    return 1.0 * bytes_of(dtype_of(a[operand].cls, layout.shape));
  };
  // Elements of the gradient that the rank holds.
  const auto held_elements = [&]() -> double {
    return of_embeddings(a.payload)
               ? layout.embeddings.part
               : held(program, rank, a[Operand::gradient].cls, a.shard, layout).count;
  };
  switch (a.kind) {
  case Kind::embed:
  case Kind::embed_backward: return 2.0 * model::hidden_bytes(layout.shape_of(a.micro_batch));
  case Kind::update:  // gradient, two moments and master weights, fp32; the weights themselves
    return held_elements() * (7 * sizeof(float) + bytes_of(layout.shape.dtype));
  case Kind::square:
  case Kind::zero: return held_elements() * width(Operand::gradient);
  case Kind::load:
  case Kind::accumulate:
    return moved(a, layout).count *
           (width(Operand::source) + (a.accumulates ? 2 : 1) * width(Operand::destination));
  default: return 0;
  }
}

double moved_bytes(const Action& action, const Layout& layout) {
  return 1.0 * moved(action, layout).count *
         bytes_of(dtype_of(action[Operand::buffer].cls, layout.shape));
}

Costs costs_of(const Program& program, const Layout& layout, const Device& device) {
  return [=, &program](int rank, const Action& a) {
    if (is_communication(a.kind))
      return 0.0;
    return flops(a, layout) / device.flops +
           touched_bytes(program, rank, a, layout) / device.memory;
  };
}
}  // namespace minitaw::schedule
