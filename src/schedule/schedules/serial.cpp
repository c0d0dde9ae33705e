#include "schedule/builder.hpp"
#include "schedule/registry.hpp"

namespace minitaw::schedule {
namespace {

/// The reference: one rank, everything resident, nothing moves.
Program make(const Request& request) {
  Builder builder(request.groups, request.layers, request.micro_batches);
  for (int s = 0; s < request.layers; ++s) builder.own(0, s);
  Computer computer(builder, 0);
  int tick = 0;
  for (const Visit& v :
       micro_batch_after_micro_batch(request.layers, own_micro_batches(0, request.micro_batches), 0)) {
    v.backward ? computer.backward(v, builder.owned(0, v.shard), builder.accumulator(0, v.shard))
               : computer.forward(v, builder.owned(0, v.shard));
    tick = v.tick;
  }
  add_epilogue(builder, tick + 1, EmbeddingsUpdate::replicated);
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

}  // namespace minitaw::schedule
