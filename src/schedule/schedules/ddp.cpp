// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/visits.hpp"

namespace minitaw::schedule {
namespace {
/// Data parallelism: everything on every rank, own micro-batches; the gradients of a block are
/// summed over all ranks as soon as its last backward pass is over. On one rank nothing moves: the
/// reference.
Program make_ddp(const Request& request) {
  Builder builder(request, request.layers);
  const Ranks all = builder.everyone();
  for (int s = 0; s < builder.shards(); ++s)
    for (const int r : all)
      builder.own(r, s);
  LockstepRanks lockstep(builder, all, request.micro_batches_of_rank());
  for (const int i : indices(lockstep.visits())) {
    const int shard = lockstep.visits()[i].shard;
    lockstep.compute(i, builder.owned(all, shard), builder.accumulators(all, shard));
  }
  for (int s = 0; builder.ranks() > 1 && s < builder.shards(); ++s)
    builder.collective(Phase::push_intra,
        builder.world(),
        make_action(Kind::all_reduce, lockstep.last_tick() - s + 1, Payload::gradient, s),
        builder.accumulators(all, s));
  return std::move(builder).finish(lockstep.last_tick() + 1);
}
}  // namespace

namespace schedules {
Entry serial() {
  return {.name = "serial",
      .doc = "one rank, the reference",
      .build = make_ddp,
      .one_rank = true,
      .replicable = false};
}

Entry ddp() {
  return {.name = "ddp",
      .doc = "data parallelism: everything on every rank, gradients all-reduced during the last "
             "backward pass",
      .build = make_ddp,
      .replicable = false};
}
}  // namespace schedules
}  // namespace minitaw::schedule
