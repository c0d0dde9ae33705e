#include <algorithm>
#include <map>

#include "schedule/frame.hpp"
#include "schedule/order.hpp"
#include "schedule/registry.hpp"
#include "schedule/stages.hpp"

namespace minitaw::schedule {
namespace {

/// Stage i is rank i with shard i; hidden states go from stage to stage and their gradients back.
class Pipeline {
public:
  Pipeline(Draft& draft, StageRule rule) : draft_(draft) {
    std::vector<std::vector<StageVisit>> visits;
    for (int i = 0; i < draft.ranks(); ++i) {
      draft.own(i, i);
      computers_.emplace_back(draft, i);
      visits.push_back(stage_visits(rule, i, draft.ranks(), draft.micro_batches()));
    }
    draft.split_ends(0, draft.ranks() - 1);
    place(visits);
  }

  /// Emits the step; returns its last tick.
  int run() {
    int tick = 0;
    for (const Placed& placed : by_tick_) {
      if (placed.tick > tick) send(tick);
      tick = placed.tick;
      emit(placed.stage, placed.visit, tick);
    }
    return tick;
  }

private:
  struct Placed {
    int tick, stage;
    StageVisit visit;
  };

  void place(const std::vector<std::vector<StageVisit>>& visits) {
    const auto ticks = stage_ticks(visits, draft_.micro_batches());
    for (int i = 0; i < draft_.ranks(); ++i)
      for (std::size_t v = 0; v < visits[i].size(); ++v) by_tick_.push_back({ticks[i][v], i, visits[i][v]});
    std::ranges::stable_sort(by_tick_, {}, &Placed::tick);
  }

  void emit(int stage, const StageVisit& what, int tick) {
    const Visit visit{tick, stage, what.micro_batch, what.kind != Kind::forward};
    Computer& computer = computers_[stage];
    const Value weights = draft_.home(stage, stage), total = draft_.total(stage, stage);
    if (what.kind == Kind::backward_weight) return computer.backward_weight(visit, total);
    if (what.kind == Kind::forward) computer.forward(visit, weights);
    else if (what.kind == Kind::backward) computer.backward(visit, weights, total);
    else computer.backward_input(visit, weights);
    pass_on(visit);
  }

  /// What the tick leaves for other stages, which need it in a later one.
  void send(int tick) {
    draft_.exchange(tick, Phase::give_inter, messages_);
    messages_.clear();
  }

  void pass_on(const Visit& visit) {
    const int to = visit.shard + (visit.backward ? -1 : 1);
    if (to < 0 || to >= draft_.ranks()) return;
    const Payload payload = visit.backward ? Payload::activation_grad : Payload::activation;
    const Value sent = computers_[visit.shard].flow(visit.micro_batch);
    const Value received = draft_.value(to, SlotClass::flow);
    messages_.push_back({{payload, visit.backward ? visit.shard : to, visit.micro_batch, {}},
                         {visit.shard, sent},
                         {to, received}});
    computers_[to].flow(visit.micro_batch) = received;
  }

  Draft& draft_;
  std::vector<Computer> computers_;
  std::vector<Placed> by_tick_;
  std::vector<Draft::Message> messages_;
};

Program build_pipeline(const Request& request, StageRule rule) {
  Draft draft(request.groups, request.ranks_of_copy(), request.micro_batches, request.replicas);
  Pipeline pipeline(draft, rule);
  const int last_tick = pipeline.run();
  close_step(draft, last_tick + 1, EndsUpdate::replicated);
  return std::move(draft).finish(!request.spec.options.contains("blocking"));
}

template <StageRule rule>
Entry entry(const char* name, const char* doc) {
  return {.name = name,
          .doc = doc,
          .options = {{"blocking",
                       {"off", "on"},
                       "on: transfers and computation take turns, as in the published baseline"}},
          .build = [](const Request& request) { return build_pipeline(request, rule); },
          .shard_per_rank = true,
          .passes_activations = true};
}

}  // namespace

Entry schedules::one_forward_one_backward() {
  return entry<StageRule::one_forward_one_backward>(
      "1f1b", "pipeline that passes activations: one forward, one backward");
}

Entry schedules::zero_bubble_1() {
  return entry<StageRule::zero_bubble_h1>(
      "zb1", "zero bubble ZB-H1 (arXiv 2401.10241): weight gradients fill the pipeline's gaps");
}

Entry schedules::zero_bubble_2() {
  return entry<StageRule::zero_bubble_h2>(
      "zb2", "zero bubble ZB-H2: smaller gaps for the activations of twice as many micro-batches");
}

}  // namespace minitaw::schedule
