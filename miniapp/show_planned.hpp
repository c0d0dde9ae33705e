#pragma once

#include "record/columns.hpp"
#include "trace/timeline.hpp"

namespace minitaw::app {

/// The plan of a case of a result file, with durations from a measured step of it (trace::mean_costs), so
/// that both can be laid side by side. Throws InputError if this version plans the case otherwise.
[[nodiscard]] trace::Timeline planned_timeline(const record::Row& row, const trace::Timeline& measured);

/// "tawpipe: 4 ranks in groups 2+2, S = 256\nstep 12.3 ms: ...": how a measured step is headed.
[[nodiscard]] std::string measured_title(const record::Row& row, const trace::Timeline& measured);

}  // namespace minitaw::app
