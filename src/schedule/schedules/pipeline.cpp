#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "schedule/builder.hpp"
#include "schedule/registry.hpp"

namespace minitaw::schedule {
namespace {

/// How ranks order their work: all of them pass activations from stage to stage.
enum class StageRule {
  one_forward_one_backward,  ///< 1F1B, with several chunks interleaved (Narayanan et al., SC'21)
  zero_bubble_h1,            ///< ZB-H1 (Qi et al., arXiv 2401.10241): activations of p micro-batches
  zero_bubble_h2,            ///< ZB-H2: of 2 p - 1
  zero_bubble_v,             ///< ZB-V (Qi et al., arXiv 2405.15362): of p
};

/// Which rank has which of the model's stages: `chunks` each. They go round the ranks, or to the last one and
/// back, in the shape of a V.
struct Stages {
  int ranks, chunks;
  bool v;

  [[nodiscard]] int count() const { return ranks * chunks; }
  [[nodiscard]] int at(int rank, int chunk) const {
    return v && chunk == 1 ? count() - 1 - rank : chunk * ranks + rank;
  }
  [[nodiscard]] int rank_of(int stage) const {
    return v && stage >= ranks ? count() - 1 - stage : stage % ranks;
  }
};

/// One visit of a stage: forward, backward (both halves), backward_input or backward_weight.
struct StageVisit {
  Kind kind = Kind::forward;
  int stage = 0, micro_batch = 0;
};

/// Visits of one rank as they are put in order, the micro-batches of each chunk in theirs. Rules may go on to
/// round numbers of micro-batches: visits of those that there are not are left out, which keeps what is left
/// in an order that all ranks can follow.
class Order {
public:
  Order(const Stages& stages, int rank, int micro_batches)
      : stages_(stages), rank_(rank), micro_batches_(micro_batches), next_(stages.chunks) {}

  void forward(int chunk) { visit(Kind::forward, chunk, next_[chunk][0]++); }
  void backward(int chunk) { visit(Kind::backward, chunk, next_[chunk][1]++); }
  void backward_input(int chunk) { visit(Kind::backward_input, chunk, next_[chunk][1]++); }
  void weight(int chunk) { visit(Kind::backward_weight, chunk, next_[chunk][2]++); }
  void remaining_weights(int chunk) {
    while (next_[chunk][2] < next_[chunk][1]) weight(chunk);
  }
  std::vector<StageVisit> visits() && { return std::move(visits_); }

private:
  void visit(Kind kind, int chunk, int micro_batch) {
    if (micro_batch < micro_batches_) visits_.push_back({kind, stages_.at(rank_, chunk), micro_batch});
  }

  Stages stages_;
  int rank_, micro_batches_;
  std::vector<std::array<int, 3>> next_;  ///< by chunk: micro-batch of the next F, B, W
  std::vector<StageVisit> visits_;
};

/// Forward visits, `ahead` more than backward ones, then in turns. Chunks change after p micro-batches.
void one_by_one(Order& order, const Stages& stages, int micro_batches, int ahead) {
  const int p = stages.ranks, all = (micro_batches + p - 1) / p * p * stages.chunks;
  for (int k = 0; k < all + ahead - 1; ++k) {
    if (k < all) order.forward(k / p % stages.chunks);
    if (k >= ahead - 1) order.backward(stages.chunks - 1 - (k - ahead + 1) / p % stages.chunks);
  }
}

/// The same with halves: a weights' half follows `delay` visits behind its input half.
void halves_one_by_one(Order& order, int micro_batches, int ahead, int delay) {
  for (int k = 0; k < micro_batches + ahead - 1; ++k) {
    if (k < micro_batches) order.forward(0);
    if (k >= ahead - 1) order.backward_input(0);
    if (k >= ahead - 1 + delay) order.weight(0);
  }
  order.remaining_weights(0);
}

/// Down and up the V: each rank fills its buffers, then visits both chunks in turns, F B W each.
void zero_bubble_v(Order& order, int p, int i, int micro_batches) {
  const auto backward = [&](int chunk) {
    order.backward_input(chunk);
    order.weight(chunk);
  };
  const auto both_forward = [&] {
    order.forward(1);
    order.forward(0);
  };
  for (int k = 0; k < 2 * (p - i) - 1; ++k) order.forward(0);
  for (int k = 0; k < i; ++k) both_forward();
  for (int k = 0; k < p - i; ++k) {
    order.forward(1);
    backward(1);
  }
  const int all = std::max(micro_batches, 2 * p - 1);
  for (int k = p; k < all; ++k) {
    order.forward(0);  // the last ones are beyond the step
    backward(0);
    order.forward(1);
    backward(1);
  }
  for (int k = 0; k < i; ++k) {
    order.backward_input(0);
    order.backward_input(1);
  }
  for (int k = 0; k < p - i; ++k) backward(0);
  order.remaining_weights(1);
  order.remaining_weights(0);
}

/// What rank i of p does in a step, in order. With W(j) the weights' half of micro-batch j:
///   1F1B   p-i forward visits; then B+W(j), F; ...  With v > 1 chunks: 2(p-i-1) + (v-1)p + 1 forward visits
///   ZB-H1  p-i forward visits; then B(j), W(j-i) if j >= i, F; ...; the remaining W
///   ZB-H2  2(p-i)-1 forward visits; then B(j), W(j-2i) if j >= 2i, F; ...; the remaining W
///   ZB-V   see above
std::vector<StageVisit> visits_of(StageRule rule, const Stages& stages, int i, int micro_batches) {
  Order order(stages, i, micro_batches);
  const int p = stages.ranks, v = stages.chunks, left = p - i;
  switch (rule) {
  case StageRule::one_forward_one_backward:
    one_by_one(order, stages, micro_batches, v == 1 ? left : 2 * left - 1 + (v - 1) * p);
    break;
  case StageRule::zero_bubble_h1:
    halves_one_by_one(order, micro_batches, left, i);
    break;
  case StageRule::zero_bubble_h2:
    halves_one_by_one(order, micro_batches, 2 * left - 1, 2 * i);
    break;
  case StageRule::zero_bubble_v:
    zero_bubble_v(order, p, i, micro_batches);
    break;
  }
  return std::move(order).visits();
}

/// When the visits of every rank begin if each takes one tick and messages none: [rank][visit]. A rank
/// continues as soon as what its next visit needs is over.
class Ticker {
public:
  Ticker(const std::vector<std::vector<StageVisit>>& visits, int stages, int micro_batches)
      : visits_(visits), ticks_(visits.size()), free_(visits.size()),
        forward_(stages, std::vector<int>(micro_batches, -1)), backward_(forward_) {}

  std::vector<std::vector<int>> run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t r = 0; r < visits_.size(); ++r)
        while (advance(r)) moved = true;
    }
    for (std::size_t r = 0; r < visits_.size(); ++r)
      if (ticks_[r].size() < visits_[r].size()) throw LogicError("stages wait for one another");
    return std::move(ticks_);
  }

private:
  /// End of what the visit needs from a neighbour; -1: not known yet.
  [[nodiscard]] int needed(const StageVisit& visit) const {
    const int s = visit.stage;
    if (visit.kind == Kind::forward) return s == 0 ? 0 : forward_[s - 1][visit.micro_batch];
    if (visit.kind == Kind::backward_weight || s + 1 == static_cast<int>(backward_.size())) return 0;
    return backward_[s + 1][visit.micro_batch];
  }

  bool advance(std::size_t rank) {
    const std::size_t next = ticks_[rank].size();
    if (next == visits_[rank].size()) return false;
    const StageVisit& visit = visits_[rank][next];
    const int ready = needed(visit);
    if (ready < 0) return false;
    const int tick = std::max(ready, free_[rank]);
    ticks_[rank].push_back(tick);
    free_[rank] = tick + 1;
    if (visit.kind == Kind::forward) forward_[visit.stage][visit.micro_batch] = tick + 1;
    else if (visit.kind != Kind::backward_weight) backward_[visit.stage][visit.micro_batch] = tick + 1;
    return true;
  }

  const std::vector<std::vector<StageVisit>>& visits_;
  std::vector<std::vector<int>> ticks_;
  std::vector<int> free_;
  std::vector<std::vector<int>> forward_, backward_;  ///< ends, by stage and micro-batch
};

/// Stage s is shard s; hidden states go from stage to stage and their gradients back.
class Pipeline {
public:
  Pipeline(Builder& builder, StageRule rule, const Stages& stages) : builder_(builder), stages_(stages) {
    std::vector<std::vector<StageVisit>> visits;
    for (int i = 0; i < stages.ranks; ++i) {
      for (int chunk = 0; chunk < stages.chunks; ++chunk) builder.own(i, stages.at(i, chunk));
      computers_.emplace_back(builder, i);
      visits.push_back(visits_of(rule, stages, i, builder.micro_batches()));
    }
    builder.place_embeddings(0, stages.rank_of(stages.count() - 1));
    place(visits);
  }

  /// Emits the step; returns its last tick.
  int run() {
    int tick = 0;
    for (const Placed& placed : by_tick_) {
      if (placed.tick > tick) send(tick);
      tick = placed.tick;
      emit(placed.visit, tick);
    }
    return tick;
  }

private:
  struct Placed {
    int tick;
    StageVisit visit;
  };

  void place(const std::vector<std::vector<StageVisit>>& visits) {
    const auto ticks = Ticker(visits, stages_.count(), builder_.micro_batches()).run();
    for (std::size_t i = 0; i < visits.size(); ++i)
      for (std::size_t v = 0; v < visits[i].size(); ++v) by_tick_.push_back({ticks[i][v], visits[i][v]});
    std::ranges::stable_sort(by_tick_, {}, &Placed::tick);
  }

  void emit(const StageVisit& what, int tick) {
    const Visit visit{tick, what.stage, what.micro_batch, what.kind != Kind::forward};
    const int rank = stages_.rank_of(what.stage);
    Computer& computer = computers_[rank];
    const VirtualBuffer weights = builder_.owned(rank, what.stage),
                        total = builder_.accumulator(rank, what.stage);
    if (what.kind == Kind::backward_weight) return computer.backward_weight(visit, total);
    if (what.kind == Kind::forward) computer.forward(visit, weights);
    else if (what.kind == Kind::backward) computer.backward(visit, weights, total);
    else computer.backward_input(visit, weights);
    pass_on(visit);
  }

  /// What the tick leaves for other ranks, which need it in a later one.
  void send(int tick) {
    builder_.exchange(tick, Phase::give_inter, messages_);
    messages_.clear();
  }

  void pass_on(const Visit& visit) {
    const int to_stage = visit.shard + (visit.backward ? -1 : 1);
    if (to_stage < 0 || to_stage >= stages_.count()) return;
    const int from = stages_.rank_of(visit.shard), to = stages_.rank_of(to_stage);
    if (from == to) return;
    const Payload payload = visit.backward ? Payload::activation_grad : Payload::activation;
    const VirtualBuffer sent = computers_[from].hidden_state(visit.micro_batch);
    const VirtualBuffer received = builder_.value(to, SlotClass::hidden);
    messages_.push_back({{payload, visit.backward ? visit.shard : to_stage, visit.micro_batch, {}},
                         {from, sent},
                         {to, received}});
    computers_[to].hidden_state(visit.micro_batch) = received;
  }

  Builder& builder_;
  Stages stages_;
  std::vector<Computer> computers_;
  std::vector<Placed> by_tick_;
  std::vector<Builder::Message> messages_;
};

Program build_pipeline(const Request& request, StageRule rule) {
  const Stages stages{request.ranks_of_copy(), shards_per_rank(request.spec),
                      rule == StageRule::zero_bubble_v};
  Builder builder(request.groups, stages.count(), request.micro_batches, request.replicas);
  const int last_tick = Pipeline(builder, rule, stages).run();
  add_epilogue(builder, last_tick + 1, EmbeddingsUpdate::replicated);
  return std::move(builder).finish(!request.spec.options.contains("blocking"));
}

template <StageRule rule>
Entry entry(const char* name, const char* doc, int shards_per_rank = 1) {
  return {.name = name,
          .doc = doc,
          .options = {{"blocking",
                       {"off", "on"},
                       "on: transfers and computation take turns, as in the published baseline"}},
          .build = [](const Request& request) { return build_pipeline(request, rule); },
          .shards_per_rank = shards_per_rank,
          .passes_activations = true};
}

}  // namespace

Entry schedules::one_forward_one_backward() {
  Entry result = entry<StageRule::one_forward_one_backward>(
      "1f1b", "pipeline that passes activations: one forward, one backward");
  result.options.push_back({"chunks",
                            {"1", "1..16"},
                            "stages of each rank, interleaved (virtual stages of Megatron-LM): gaps are as "
                            "many times shorter, activations pass as many times as often"});
  return result;
}

Entry schedules::zero_bubble_1() {
  return entry<StageRule::zero_bubble_h1>(
      "zb1", "zero bubble ZB-H1 (arXiv 2401.10241): weight gradients fill the pipeline's gaps");
}

Entry schedules::zero_bubble_2() {
  return entry<StageRule::zero_bubble_h2>(
      "zb2", "zero bubble ZB-H2: smaller gaps for the activations of twice as many micro-batches");
}

Entry schedules::zero_bubble_v() {
  return entry<StageRule::zero_bubble_v>(
      "zbv",
      "zero bubble ZB-V (arXiv 2405.15362): two stages on each rank, down and up a V; no gaps where F, "
      "B and W take as long, with the activations of 1F1B",
      2);
}

}  // namespace minitaw::schedule
