// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <utility>
#include "base/checksum.hpp"
#include "base/error.hpp"
#include "schedule/orders.hpp"

namespace minitaw::schedule {
namespace {
/// Which rank has each stage, `chunks` on each: round the ranks, or to the last rank and back, in a
/// V.
struct Stages {
  int ranks, chunks;
  bool v;

  int count() const { return ranks * chunks; }

  int at(int r, int chunk) const { return v && chunk == 1 ? count() - 1 - r : chunk * ranks + r; }
};

/// The work of one rank, in the order in which a rule puts it. Each call appends the visit of a
/// chunk's next micro-batch, which are counted apart for F, for BW or B, and for W. A chunk is a
/// number from 0 to Stages::chunks - 1, for the stage that the rank has there; shards of visits are
/// stages, their ticks are 0 until set_ticks(). Rules may go on to round numbers of micro-batches:
/// visits of those that do not exist are left out, and all ranks can follow what is left. Slices of
/// a micro-batch count each; they come back in the reverse order.
struct Order {
  Stages stages;
  int rank, micro_batches, slices;
  /// By chunk: micro-batch of the next F, B, W.
  std::vector<std::array<int, 3>> next = std::vector<std::array<int, 3>>(stages.chunks);
  std::vector<Visit> visits = {};

  void forward(int chunk) { visit(Kind::forward, chunk, next[chunk][0]++); }

  void backward(int chunk) { visit(Kind::backward, chunk, reversed(next[chunk][1]++)); }

  void backward_input(int chunk) { visit(Kind::backward_input, chunk, reversed(next[chunk][1]++)); }

  void weight(int chunk) { visit(Kind::backward_weight, chunk, reversed(next[chunk][2]++)); }

  void remaining_weights(int chunk) {
    while (next[chunk][2] < next[chunk][1])
      weight(chunk);
  }

  int reversed(int slice) const { return slice + slices - 1 - 2 * (slice % slices); }

  void visit(Kind kind, int chunk, int micro_batch) {
    if (micro_batch < micro_batches)
      visits.push_back({0, stages.at(rank, chunk), micro_batch, kind});
  }
};

/// Puts the work of rank i of p in order. Activations pass from stage to stage. W(j): the weights'
/// half of micro-batch j.
using StageRule = void (*)(Order& order);

/// 1F1B: p-i forward visits; then B+W(j), F; ... With v > 1 chunks (Narayanan et al., SC'21):
/// 2(p-i-1) + (v-1)p + 1. With k > 1 slices (Seq1F1B, arXiv 2406.03488): p-i + k-1 of slices,
/// because the first one back is the last of its micro-batch.
void order_1f1b(Order& order) {
  const int p = order.stages.ranks, v = order.stages.chunks, i = order.rank;
  const int all = (order.micro_batches + p - 1) / p * p * v;
  const int ahead = v == 1 ? p - i + order.slices - 1 : 2 * (p - i) - 1 + (v - 1) * p;
  for (int k = 0; k < all + ahead - 1; ++k) {
    if (k < all)
      order.forward(k / p % v);
    if (k >= ahead - 1)
      order.backward(v - 1 - (k - ahead + 1) / p % v);
  }
}

/// ZB-H1 and ZB-H2 (Qi et al., arXiv 2401.10241), k = 1, 2: k(p-i)-(k-1) forward; then B(j),
/// W(j-ki), F; ...; last W. Of slices, as many more forward as in 1F1B.
template <int k>
void order_zb_h(Order& order) {
  const int p = order.stages.ranks, i = order.rank;
  const int ahead = k * (p - i) - (k - 1) + order.slices - 1;
  for (int j = 1 - ahead; j < order.micro_batches; ++j) {
    if (j + ahead - 1 < order.micro_batches)
      order.forward(0);
    if (j >= 0)
      order.backward_input(0);
    if (j >= k * i)
      order.weight(0);
  }
  order.remaining_weights(0);
}

/// ZB-V (Qi et al., arXiv 2405.15362): fills its buffers down and up the V, then F B W of both
/// chunks in turns.
void order_zb_v(Order& order) {
  const int p = order.stages.ranks, i = order.rank;
  const auto backward = [&](int chunk) {
    order.backward_input(chunk);
    order.weight(chunk);
  };
  for (int k = 0; k < 2 * (p - i) - 1; ++k)
    order.forward(0);
  for (int k = 0; k < i; ++k) {
    order.forward(1);
    order.forward(0);
  }
  for (int k = 0; k < p - i; ++k) {
    order.forward(1);
    backward(1);
  }
  const int all = std::max(order.micro_batches, 2 * p - 1);
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
  for (int k = 0; k < p - i; ++k)
    backward(0);
  order.remaining_weights(1);
  order.remaining_weights(0);
}

Orders orders_of(const Stages& stages, StageRule rule, int micro_batches, int slices) {
  Orders orders{Ranks(stages.count()), {}, micro_batches * slices};
  for (int i = 0; i < stages.ranks; ++i) {
    Order order{stages, i, orders.micro_batches, slices};
    rule(order);
    for (const Visit& visit : order.visits)
      orders.rank_of[visit.shard] = i;
    orders.visits.push_back(order.visits);
  }
  if (set_ticks(orders) != nullptr)
    throw LogicError("stages wait for one another");
  return orders;
}

/// Stage s is shard s, on a rank of the orders: a context group. Hidden states go from stage to
/// stage, from each rank to the one with the same part of their sequences, and their gradients
/// back.
class Pipeline {
public:
  Pipeline(Builder& builder, const Orders& orders) : builder_(builder), rank_of_(orders.rank_of) {
    for (const Ranks& group : builder.context_groups())
      emitters_.emplace_back(builder, group);
    for (int s = 0; s < orders.stages(); ++s)
      for (const int r : at(s).ranks())
        builder.own(r, s);
    builder.split_embeddings(at(0).ranks(), at(orders.stages() - 1).ranks());
    for (const auto& of_rank : orders.visits)
      visits_.insert(visits_.end(), of_rank.begin(), of_rank.end());
    std::ranges::stable_sort(visits_, {}, &Visit::tick);
  }

  /// Emits all visits and messages; returns the last tick.
  int run() {
    for (const Visit& visit : visits_) {
      ComputeEmitter& emitter = at(visit.shard);
      emitter.visit(visit,
          builder_.owned(emitter.ranks(), visit.shard),
          builder_.accumulators(emitter.ranks(), visit.shard));
      if (visit.kind != Kind::backward_weight)
        pass_on(visit);
    }
    for (const ComputeEmitter& emitter : emitters_)
      builder_.sum_over_context(emitter.ranks(), visits_.back().tick);
    return visits_.back().tick;
  }

private:
  ComputeEmitter& at(int stage) { return emitters_[rank_of_[stage]]; }

  /// The hidden state, or its gradient, to the ranks that need it in a later tick.
  void pass_on(const Visit& visit) {
    const int to_stage = visit.shard + (visit.backward() ? -1 : 1);
    if (to_stage < 0 || to_stage >= std::ssize(rank_of_) ||
        rank_of_[visit.shard] == rank_of_[to_stage])
      return;
    ComputeEmitter &from = at(visit.shard), &to = at(to_stage);
    const Payload payload = visit.backward() ? Payload::activation_grad : Payload::activation;
    Action send = make_action(Kind::send, visit.tick, payload, std::max(visit.shard, to_stage));
    send.micro_batch = visit.micro_batch;
    const RankBuffers received = builder_.new_buffers(to.ranks(), SlotClass::hidden);
    for (const int i : indices(received))
      builder_.transfer(Phase::push_inter,
          send,
          {from.ranks()[i], from.hidden_state(visit.micro_batch)[i]},
          {to.ranks()[i], received[i]});
    to.hidden_state(visit.micro_batch) = received;
  }

  Builder& builder_;
  Ranks rank_of_;  ///< by stage
  std::vector<ComputeEmitter> emitters_;
  std::vector<Visit> visits_;  ///< of all ranks, by tick
};

Program build_pipeline(const Request& request, const Orders& orders) {
  Builder builder(request, orders.stages());
  const int last_tick = Pipeline(builder, orders).run();
  return std::move(builder).finish(
      last_tick + 1, request.spec.options.contains("blocking") ? Overlap::none : Overlap::full);
}

Program build_by(StageRule rule, const Request& request) {
  const Stages stages{
      request.sharers_of_replica(), shards_per_rank(request.spec), rule == order_zb_v};
  return build_pipeline(request,
      orders_of(stages,
          rule,
          request.micro_batches / request.replicas,
          number_of(request.spec, "slices")));
}

/// The text of the file that a request of `csv` names. It is looked for in the folder of the deck,
/// and in the working folder, from which `--set` names it.
std::string file_text(const Request& request) {
  const std::string name = request.spec.value("file");
  if (name.empty())
    throw InputError("schedule: csv needs a file; write for example csv:file=a.csv");
  std::vector<std::filesystem::path> places{std::filesystem::path(request.folder) / name};
  if (places.front() != name)
    places.emplace_back(name);
  for (const std::filesystem::path& path : places) {
    std::ifstream file(path, std::ios::binary);
    std::error_code error;
    if (file && !std::filesystem::is_directory(path, error))
      return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string names = places.front().string();
  if (places.size() > 1)
    names += " or " + places.back().string();
  throw InputError("schedule: {} cannot be read: no such file, or no permission", names);
}

Orders orders_of(const Request& request) {
  const std::string text = file_text(request), name = request.spec.value("file"),
                    sum = request.spec.value("sum"), found = Checksum().add(text).text();
  if (!sum.empty() && sum != found)
    throw InputError("schedule: {} has the sum {}, not {}: it has changed", name, found, sum);
  return read_torch_csv(text, name);
}

void check_orders(const Request& request) {
  const Orders orders = orders_of(request);
  const std::string& name = request.spec.options.at("file");
  const auto compare = [&](const char* key, int given, int wanted) {
    if (given != wanted)
      throw InputError("{0}: {1} is for {2}, not {3}; use {0} = {2}", key, name, wanted, given);
  };
  compare("ranks", request.groups.ranks(), orders.ranks() * request.replicas * request.context);
  compare("micro_batches", request.micro_batches, orders.micro_batches * request.replicas);
  if (request.layers < orders.stages())
    compare("layers", request.layers, orders.stages());
}

/// Interleaved stages would need orders of slices of their own.
void check_slices(const Request& request) {
  if (number_of(request.spec, "slices") > 1 && number_of(request.spec, "chunks") > 1)
    throw InputError("schedule: slices and chunks do not go together; use one of them");
}

const OptionDoc slices = {"slices",
    {"1", "1..64"},
    "slices in which the sequences of a micro-batch pass, one after the other (Seq1F1B, arXiv "
    "2406.03488): gaps shrink by that factor, and so do most activations; keys and values of "
    "earlier slices stay"};
const OptionDoc cut = {"cut",
    {"cost", "even"},
    "where slices end: cost: all have equal FLOPs, as later tokens attend to more; even: all have "
    "equal numbers of tokens",
    [](const Request& request) {
      return std::string(
          number_of(request.spec, "slices") == 1 ? "sequences pass whole, without slices" : "");
    }};
const OptionDoc chunks = {"chunks",
    {"1", "1..16"},
    "stages of each rank, interleaved (virtual stages of Megatron-LM): gaps shrink by that "
    "factor, and activations are sent as many times as often"};
const OptionDoc file = {"file",
    {},
    "the file, from the folder of the deck or the working folder (_dump_csv of "
    "torch.distributed.pipelining)"};
const OptionDoc sum = {
    "sum", {}, "check sum of the file, which tables and records show; a changed file is refused"};

/// A schedule of pipelines, with options beside those of all.
template <StageRule rule>
Entry entry(const char* name, const char* doc, const std::vector<OptionDoc>& options = {}) {
  Entry result = {.name = name,
      .doc = doc,
      .options = {{"blocking",
          {"off", "on"},
          "on: transfers and computation take turns, as in the published baseline",
          [](const Request& request) {
            return std::string(request.groups.ranks() == 1 ? "one rank sends nothing" : "");
          }}},
      .build = [](const Request& request) { return build_by(rule, request); },
      .shards_per_rank = rule == order_zb_v ? 2 : 1,
      .passes_activations = true,
      .check = check_slices};
  result.options.insert(result.options.end(), options.begin(), options.end());
  return result;
}
}  // namespace

namespace schedules {
Entry one_forward_one_backward() {
  return entry<order_1f1b>(
      "1f1b", "pipeline that passes activations: one forward, one backward", {slices, cut, chunks});
}

Entry zero_bubble_1() {
  return entry<order_zb_h<1>>("zb1",
      "zero bubble ZB-H1 (arXiv 2401.10241): weight gradients fill the pipeline's gaps",
      {slices, cut});
}

Entry zero_bubble_2() {
  return entry<order_zb_h<2>>(
      "zb2", "zero bubble ZB-H2: smaller gaps, with activations of twice as many micro-batches");
}

Entry zero_bubble_v() {
  return entry<order_zb_v>("zbv",
      "zero bubble ZB-V (arXiv 2405.15362): two stages on each rank, down and up a V; "
      "no gaps if F, B and W take equal time, with the activations of 1F1B");
}

Entry from_csv() {
  Entry result = entry<order_1f1b>("csv",
      "pipeline whose order and placement of stages are in a CSV file of PyTorch",
      {file, sum});
  result.build = [](const Request& request) { return build_pipeline(request, orders_of(request)); };
  result.shards_per_rank = 0;
  result.needs_file = true;
  result.check = check_orders;
  result.settle = [](Request& request, int) {
    request.spec.options["sum"] = Checksum().add(file_text(request)).text();
  };
  return result;
}
}  // namespace schedules
}  // namespace minitaw::schedule
