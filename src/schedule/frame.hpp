#pragma once

#include "schedule/draft.hpp"

namespace minitaw::schedule {

/// How the ends gradient comes together at the end of the step, unless the ends are split or one rank has
/// all.
enum class EndsUpdate {
  sliced,      ///< reduce-scatter, each rank updates its slice, all-gather (weight-passing family, FSDP)
  replicated,  ///< all-reduce, everyone updates everything (DDP)
};

/// What closes every step, at `tick`: ends gradients combined, all gradients summed over the copies, every
/// home shard and the ends updated, join.
void close_step(Draft& draft, int tick, EndsUpdate ends);

}  // namespace minitaw::schedule
