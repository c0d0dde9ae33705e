#include "schedule/builder.hpp"
#include "schedule/registry.hpp"

namespace minitaw::schedule {
namespace {

/// Sum of a block's gradient over all ranks, as soon as its last backward pass is over.
void all_reduce(Builder& builder, int tick, int shard) {
  Action a = make_action(Kind::all_reduce, tick, Payload::gradient, shard);
  a.communicator = builder.world();
  std::vector<VirtualBuffer> totals;
  for (int r = 0; r < builder.ranks(); ++r) totals.push_back(builder.accumulator(r, shard));
  builder.collective(tick, Phase::give_intra, a, totals);
}

/// Data parallelism: everything on every rank, own micro-batches; a bucket is one block. On one rank nothing
/// moves: the reference.
Program make(const Request& request) {
  Builder builder(request.groups, request.layers, request.micro_batches);
  int last_tick = 0;
  for (int r = 0; r < builder.ranks(); ++r) {
    for (int s = 0; s < request.layers; ++s) builder.own(r, s);
    Computer computer(builder, r);
    for (const Visit& v : micro_batch_after_micro_batch(
             request.layers, own_micro_batches(r, request.micro_batches_of_rank()), 0)) {
      v.backward ? computer.backward(v, builder.owned(r, v.shard), builder.accumulator(r, v.shard))
                 : computer.forward(v, builder.owned(r, v.shard));
      last_tick = v.tick;
    }
  }
  if (builder.ranks() > 1)
    for (int s = 0; s < request.layers; ++s) all_reduce(builder, last_tick - s + 1, s);
  add_epilogue(builder, last_tick + 1, EmbeddingsUpdate::replicated);
  return std::move(builder).finish();
}

}  // namespace

Entry schedules::serial() {
  return {.name = "serial",
          .doc = "one rank, the reference",
          .build = make,
          .one_rank = true,
          .replicable = false};
}

Entry schedules::ddp() {
  return {.name = "ddp",
          .doc = "data parallelism: everything on every rank, gradients all-reduced at the end of the step",
          .build = make,
          .replicable = false};
}

}  // namespace minitaw::schedule
