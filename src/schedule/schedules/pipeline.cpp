#include <algorithm>
#include <map>
#include <vector>

#include "base/error.hpp"
#include "schedule/builder.hpp"
#include "schedule/registry.hpp"

namespace minitaw::schedule {
namespace {

/// How stages order their work: all of them pass activations from stage to stage.
enum class StageRule {
  one_forward_one_backward,  ///< 1F1B (Narayanan et al., SC'21)
  zero_bubble_h1,            ///< ZB-H1 (Qi et al., arXiv 2401.10241): activations of p micro-batches
  zero_bubble_h2,            ///< ZB-H2: of 2 p - 1
};

/// One visit of a stage: forward, backward (both halves), backward_input or backward_weight.
struct StageVisit {
  Kind kind = Kind::forward;
  int micro_batch = 0;
};

/// Visits of one stage as they are put in order.
class Stage {
public:
  Stage(int delay, int micro_batches, bool split) : delay_(delay), count_(micro_batches), split_(split) {}

  std::vector<StageVisit> run(int warm_up) {
    for (int i = 0; i < warm_up; ++i) forward();
    for (int j = 0; j < count_; ++j) {
      visits_.push_back({split_ ? Kind::backward_input : Kind::backward, j});
      if (j >= delay_) weight();
      forward();
    }
    while (split_ && weights_ < count_) weight();
    return std::move(visits_);
  }

private:
  void forward() {
    if (forwards_ < count_) visits_.push_back({Kind::forward, forwards_++});
  }
  void weight() {
    if (split_) visits_.push_back({Kind::backward_weight, weights_++});
  }

  int delay_;  ///< backward visits before the first W
  int count_;
  bool split_;
  int forwards_ = 0, weights_ = 0;
  std::vector<StageVisit> visits_;
};

/// When the visits of every stage begin if each takes one tick and messages none: [stage][visit]. A stage
/// continues as soon as what its next visit needs is over.
class Ticker {
public:
  Ticker(const std::vector<std::vector<StageVisit>>& visits, int micro_batches)
      : visits_(visits), ticks_(visits.size()), free_(visits.size()),
        forward_(visits.size(), std::vector<int>(micro_batches, -1)), backward_(forward_) {}

  std::vector<std::vector<int>> run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t s = 0; s < visits_.size(); ++s)
        while (advance(s)) moved = true;
    }
    for (std::size_t s = 0; s < visits_.size(); ++s)
      if (ticks_[s].size() < visits_[s].size()) throw LogicError("stages wait for one another");
    return std::move(ticks_);
  }

private:
  /// End of what the visit needs from a neighbour; -1: not known yet.
  [[nodiscard]] int needed(std::size_t stage, const StageVisit& visit) const {
    const bool last = stage + 1 == visits_.size();
    if (visit.kind == Kind::forward) return stage == 0 ? 0 : forward_[stage - 1][visit.micro_batch];
    if (visit.kind == Kind::backward_weight || last) return 0;
    return backward_[stage + 1][visit.micro_batch];
  }

  bool advance(std::size_t stage) {
    const std::size_t next = ticks_[stage].size();
    if (next == visits_[stage].size()) return false;
    const StageVisit& visit = visits_[stage][next];
    const int ready = needed(stage, visit);
    if (ready < 0) return false;
    const int tick = std::max(ready, free_[stage]);
    ticks_[stage].push_back(tick);
    free_[stage] = tick + 1;
    if (visit.kind == Kind::forward) forward_[stage][visit.micro_batch] = tick + 1;
    else if (visit.kind != Kind::backward_weight) backward_[stage][visit.micro_batch] = tick + 1;
    return true;
  }

  const std::vector<std::vector<StageVisit>>& visits_;
  std::vector<std::vector<int>> ticks_;
  std::vector<int> free_;
  std::vector<std::vector<int>> forward_, backward_;  ///< ends, by stage and micro-batch
};

/// What stage `stage` of `stages` does in a step, in order. With W(j) the weights' half of micro-batch j:
///   1F1B   p-i forward visits; then B+W(j), F; ...
///   ZB-H1  p-i forward visits; then B(j), W(j-i) if j >= i, F; ...; the remaining W
///   ZB-H2  2(p-i)-1 forward visits; then B(j), W(j-2i) if j >= 2i, F; ...; the remaining W
std::vector<StageVisit> stage_visits(StageRule rule, int stage, int stages, int micro_batches) {
  const int left = stages - stage;
  switch (rule) {
  case StageRule::one_forward_one_backward:
    return Stage(0, micro_batches, false).run(left);
  case StageRule::zero_bubble_h1:
    return Stage(stage, micro_batches, true).run(left);
  case StageRule::zero_bubble_h2:
    return Stage(2 * stage, micro_batches, true).run(2 * left - 1);
  }
  return {};
}

/// Stage i is rank i with shard i; hidden states go from stage to stage and their gradients back.
class Pipeline {
public:
  Pipeline(Builder& builder, StageRule rule) : builder_(builder) {
    std::vector<std::vector<StageVisit>> visits;
    for (int i = 0; i < builder.ranks(); ++i) {
      builder.own(i, i);
      computers_.emplace_back(builder, i);
      visits.push_back(stage_visits(rule, i, builder.ranks(), builder.micro_batches()));
    }
    builder.split_embeddings(0, builder.ranks() - 1);
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
    const auto ticks = Ticker(visits, builder_.micro_batches()).run();
    for (int i = 0; i < builder_.ranks(); ++i)
      for (std::size_t v = 0; v < visits[i].size(); ++v) by_tick_.push_back({ticks[i][v], i, visits[i][v]});
    std::ranges::stable_sort(by_tick_, {}, &Placed::tick);
  }

  void emit(int stage, const StageVisit& what, int tick) {
    const Visit visit{tick, stage, what.micro_batch, what.kind != Kind::forward};
    Computer& computer = computers_[stage];
    const VirtualBuffer weights = builder_.owned(stage, stage), total = builder_.accumulator(stage, stage);
    if (what.kind == Kind::backward_weight) return computer.backward_weight(visit, total);
    if (what.kind == Kind::forward) computer.forward(visit, weights);
    else if (what.kind == Kind::backward) computer.backward(visit, weights, total);
    else computer.backward_input(visit, weights);
    pass_on(visit);
  }

  /// What the tick leaves for other stages, which need it in a later one.
  void send(int tick) {
    builder_.exchange(tick, Phase::give_inter, messages_);
    messages_.clear();
  }

  void pass_on(const Visit& visit) {
    const int to = visit.shard + (visit.backward ? -1 : 1);
    if (to < 0 || to >= builder_.ranks()) return;
    const Payload payload = visit.backward ? Payload::activation_grad : Payload::activation;
    const VirtualBuffer sent = computers_[visit.shard].hidden_state(visit.micro_batch);
    const VirtualBuffer received = builder_.value(to, SlotClass::hidden);
    messages_.push_back({{payload, visit.backward ? visit.shard : to, visit.micro_batch, {}},
                         {visit.shard, sent},
                         {to, received}});
    computers_[to].hidden_state(visit.micro_batch) = received;
  }

  Builder& builder_;
  std::vector<Computer> computers_;
  std::vector<Placed> by_tick_;
  std::vector<Builder::Message> messages_;
};

Program build_pipeline(const Request& request, StageRule rule) {
  Builder builder(request.groups, request.ranks_of_copy(), request.micro_batches, request.replicas);
  Pipeline pipeline(builder, rule);
  const int last_tick = pipeline.run();
  add_epilogue(builder, last_tick + 1, EmbeddingsUpdate::replicated);
  return std::move(builder).finish(!request.spec.options.contains("blocking"));
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
