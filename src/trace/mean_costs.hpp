#pragma once

#include "schedule/simulate.hpp"
#include "trace/timeline.hpp"

namespace minitaw::trace {

/// Durations for a plan, taken from a measured step: of a compute or local action the mean over all actions
/// of the same kind, lane, payload and shard on any rank; of a transfer the mean time from when the last of
/// its sides began until the last one ended. Asked for an action that the step did not have, it throws
/// InputError.
[[nodiscard]] schedule::Costs mean_costs(const Timeline& measured, bool rank_by_rank = false);

}  // namespace minitaw::trace
