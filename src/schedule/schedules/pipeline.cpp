// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <utility>
#include "base/error.hpp"
#include "schedule/builder.hpp"

namespace minitaw::schedule {
namespace {
/// Placement of the stages, `chunks` on each rank: round the ranks, or to the last rank and back, in a V.
struct Stages {
  int ranks, chunks;
  bool v;

  [[nodiscard]] int count() const { return ranks * chunks; }
  [[nodiscard]] int at(int rank, int chunk) const {
    return v && chunk == 1 ? count() - 1 - rank : chunk * ranks + rank;
  }
  [[nodiscard]] int rank_of(int stage) const { return v && stage >= ranks ? count() - 1 - stage : stage % ranks; }
};

/// Visits of one rank, shards being stages, in the order in which they are put. Rules may go on to round numbers of
/// micro-batches: visits of those that do not exist are left out, and all ranks can follow what is left.
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
  std::vector<Visit> visits() && { return std::move(visits_); }

private:
  void visit(Kind kind, int chunk, int micro_batch) {
    if (micro_batch < micro_batches_) visits_.push_back({0, stages_.at(rank_, chunk), micro_batch, kind});
  }

  Stages stages_;
  int rank_, micro_batches_;
  std::vector<std::array<int, 3>> next_;  ///< by chunk: micro-batch of the next F, B, W
  std::vector<Visit> visits_;
};

/// Order of the work of rank i of p. Activations pass from stage to stage. W(j): the weights' half of micro-batch j.
using StageRule = void (*)(Order& order, const Stages& stages, int i, int micro_batches);

/// 1F1B: p-i forward visits; then B+W(j), F; ... With v > 1 chunks (Narayanan et al., SC'21): 2(p-i-1) + (v-1)p + 1.
void order_1f1b(Order& order, const Stages& stages, int i, int micro_batches) {
  const int p = stages.ranks, v = stages.chunks, all = (micro_batches + p - 1) / p * p * v;
  const int ahead = v == 1 ? p - i : 2 * (p - i) - 1 + (v - 1) * p;
  for (int k = 0; k < all + ahead - 1; ++k) {
    if (k < all) order.forward(k / p % v);
    if (k >= ahead - 1) order.backward(v - 1 - (k - ahead + 1) / p % v);
  }
}

/// ZB-H1 and ZB-H2 (Qi et al., arXiv 2401.10241), k = 1, 2: k(p-i)-(k-1) forward; then B(j), W(j-ki), F; ...; last W.
template <int k> void order_zb_h(Order& order, const Stages& stages, int i, int micro_batches) {
  const int ahead = k * (stages.ranks - i) - (k - 1), delay = k * i;
  for (int j = 1 - ahead; j < micro_batches; ++j) {
    if (j + ahead - 1 < micro_batches) order.forward(0);
    if (j >= 0) order.backward_input(0);
    if (j >= delay) order.weight(0);
  }
  order.remaining_weights(0);
}

/// ZB-V (Qi et al., arXiv 2405.15362): fills its buffers down and up the V, then F B W of both chunks in turns.
void order_zb_v(Order& order, const Stages& stages, int i, int micro_batches) {
  const int p = stages.ranks;
  const auto backward = [&](int chunk) {
    order.backward_input(chunk);
    order.weight(chunk);
  };
  for (int k = 0; k < 2 * (p - i) - 1; ++k) order.forward(0);
  for (int k = 0; k < i; ++k) {
    order.forward(1);
    order.forward(0);
  }
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

/// When the visits of every rank begin if each takes a tick, messages none, and none waits longer than for its inputs.
void set_ticks(std::vector<std::vector<Visit>>& visits, int stages, int micro_batches) {
  // Ends by stage and micro-batch; -1: not known yet.
  std::vector<std::vector<int>> forward(stages, std::vector<int>(micro_batches, -1)), backward = forward;
  std::vector<std::size_t> next(visits.size());
  std::vector<int> free(visits.size());
  const auto needed = [&](const Visit& visit) {
    const int s = visit.shard;
    if (visit.kind == Kind::forward) return s == 0 ? 0 : forward[s - 1][visit.micro_batch];
    if (visit.kind == Kind::backward_weight || s + 1 == stages) return 0;
    return backward[s + 1][visit.micro_batch];
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < visits.size(); ++r)
      for (; next[r] < visits[r].size(); ++next[r], moved = true) {
        Visit& visit = visits[r][next[r]];
        if (needed(visit) < 0) break;
        visit.tick = std::max(needed(visit), free[r]);
        free[r] = visit.tick + 1;
        if (visit.kind == Kind::forward) forward[visit.shard][visit.micro_batch] = free[r];
        else if (visit.kind != Kind::backward_weight) backward[visit.shard][visit.micro_batch] = free[r];
      }
  }
  for (std::size_t r = 0; r < visits.size(); ++r)
    if (next[r] < visits[r].size()) throw LogicError("stages wait for one another");
}

/// Stage s is shard s; hidden states go from stage to stage and their gradients back.
class Pipeline {
public:
  Pipeline(Builder& builder, StageRule rule, const Stages& stages) : builder_(builder), stages_(stages) {
    std::vector<std::vector<Visit>> visits;
    for (int i = 0; i < stages.ranks; ++i) {
      for (int chunk = 0; chunk < stages.chunks; ++chunk) builder.own(i, stages.at(i, chunk));
      emitters_.emplace_back(builder, i);
      Order order(stages, i, builder.micro_batches());
      rule(order, stages, i, builder.micro_batches());
      visits.push_back(std::move(order).visits());
    }
    builder.place_embeddings(0, stages.rank_of(stages.count() - 1));
    set_ticks(visits, stages.count(), builder.micro_batches());
    for (const auto& of_rank : visits) visits_.insert(visits_.end(), of_rank.begin(), of_rank.end());
    std::ranges::stable_sort(visits_, {}, &Visit::tick);
  }

  int run() {
    int tick = 0;
    for (const Visit& visit : visits_) {
      if (visit.tick > tick) send(tick);
      tick = visit.tick;
      emit(visit);
    }
    return tick;
  }

private:
  void emit(const Visit& visit) {
    const int rank = stages_.rank_of(visit.shard);
    emitters_[rank].visit(visit, builder_.owned(rank, visit.shard), builder_.accumulator(rank, visit.shard));
    if (visit.kind != Kind::backward_weight) pass_on(visit);
  }

  /// Messages of the tick, which other ranks need in a later one.
  void send(int tick) {
    builder_.exchange(tick, Phase::push_inter, messages_);
    messages_.clear();
  }

  void pass_on(const Visit& visit) {
    const int to_stage = visit.shard + (visit.backward() ? -1 : 1);
    if (to_stage < 0 || to_stage >= stages_.count()) return;
    const int from = stages_.rank_of(visit.shard), to = stages_.rank_of(to_stage);
    if (from == to) return;
    const Payload payload = visit.backward() ? Payload::activation_grad : Payload::activation;
    const VirtualBuffer sent = emitters_[from].hidden_state(visit.micro_batch);
    const VirtualBuffer received = builder_.new_buffer(to, SlotClass::hidden);
    messages_.push_back(
        {{payload, visit.backward() ? visit.shard : to_stage, visit.micro_batch, {}}, {from, sent}, {to, received}});
    emitters_[to].hidden_state(visit.micro_batch) = received;
  }

  Builder& builder_;
  Stages stages_;
  std::vector<ComputeEmitter> emitters_;
  std::vector<Visit> visits_;  ///< of all ranks, by tick
  std::vector<Builder::Message> messages_;
};

Program build_pipeline(const Request& request, StageRule rule) {
  const Stages stages{request.ranks_of_replica(), shards_per_rank(request.spec), rule == order_zb_v};
  Builder builder(request, stages.count());
  const int last_tick = Pipeline(builder, rule, stages).run();
  return std::move(builder).finish(last_tick + 1, EmbeddingsUpdate::replicated,
      request.spec.options.contains("blocking") ? Overlap::none : Overlap::full);
}

template <StageRule rule> Entry entry(const char* name, const char* doc, int shards_per_rank = 1) {
  return {.name = name,
      .doc = doc,
      .options = {{"blocking", {"off", "on"},
          "on: transfers and computation take turns, as in the published baseline"}},
      .build = [](const Request& request) { return build_pipeline(request, rule); },
      .shards_per_rank = shards_per_rank,
      .passes_activations = true};
}
}  // namespace

namespace schedules {
Entry one_forward_one_backward() {
  Entry result = entry<order_1f1b>("1f1b", "pipeline that passes activations: one forward, one backward");
  result.options.push_back({"chunks", {"1", "1..16"},
      "stages of each rank, interleaved (virtual stages of Megatron-LM): gaps are as "
      "many times shorter, activations pass as many times as often"});
  return result;
}

Entry zero_bubble_1() {
  return entry<order_zb_h<1>>("zb1", "zero bubble ZB-H1 (arXiv 2401.10241): weight gradients fill the pipeline's gaps");
}

Entry zero_bubble_2() {
  return entry<order_zb_h<2>>(
      "zb2", "zero bubble ZB-H2: smaller gaps for the activations of twice as many micro-batches");
}

Entry zero_bubble_v() {
  return entry<order_zb_v>("zbv",
      "zero bubble ZB-V (arXiv 2405.15362): two stages on each rank, down and up a V; "
      "no gaps where F, B and W take as long, with the activations of 1F1B",
      2);
}
}  // namespace schedules
}  // namespace minitaw::schedule
