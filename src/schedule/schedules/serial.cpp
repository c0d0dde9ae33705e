#include "schedule/builder.hpp"
#include "schedule/registry.hpp"

namespace minitaw::schedule {
namespace {

/// The reference: one rank, everything resident, nothing moves.
Program make(const Request& request) {
  Draft draft(request.groups, request.layers, request.micro_batches);
  for (int s = 0; s < request.layers; ++s) draft.own(0, s);
  Computer computer(draft, 0);
  int tick = 0;
  for (const Visit& v :
       micro_batch_after_micro_batch(request.layers, own_micro_batches(0, request.micro_batches), 0)) {
    v.backward ? computer.backward(v, draft.home(0, v.shard), draft.total(0, v.shard))
               : computer.forward(v, draft.home(0, v.shard));
    tick = v.tick;
  }
  close_step(draft, tick + 1, EndsUpdate::replicated);
  return std::move(draft).finish();
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
