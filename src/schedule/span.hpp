#pragma once

namespace minitaw::schedule {

/// When an action of a step was ready to run, began and ended, measured or planned, in seconds since the step
/// began. Between `ready` (its lane got to it) and `begin` it waited for other lanes.
struct Span {
  double ready = 0;
  double begin = 0;
  double end = 0;
};

}  // namespace minitaw::schedule
