#pragma once

#include <vector>

#include "schedule/action.hpp"

namespace minitaw::schedule {

/// How stages order their work: all of them pass activations from stage to stage.
enum class StageRule {
  one_forward_one_backward,  ///< 1F1B (Narayanan et al., SC'21)
  zero_bubble_h1,            ///< ZB-H1 (Qi et al., arXiv 2401.10241): activations of p micro-batches
  zero_bubble_h2,            ///< ZB-H2: of 2 p - 1
};

/// One visit of a stage: forward, backward (both halves), backward_input or backward_weight.
struct StageVisit {
  Kind kind = Kind::forward;
  int micro_batch = 0;
};

/// What stage `stage` of `stages` does in a step, in order. With W(j) the weights' half of micro-batch j:
///   1F1B   p-i forward visits; then B+W(j), F; ...
///   ZB-H1  p-i forward visits; then B(j), W(j-i) if j >= i, F; ...; the remaining W
///   ZB-H2  2(p-i)-1 forward visits; then B(j), W(j-2i) if j >= 2i, F; ...; the remaining W
[[nodiscard]] std::vector<StageVisit> stage_visits(StageRule rule, int stage, int stages, int micro_batches);

/// When the visits of every stage begin if each takes one tick and messages none: [stage][visit].
[[nodiscard]] std::vector<std::vector<int>> stage_ticks(const std::vector<std::vector<StageVisit>>& visits,
                                                        int micro_batches);

}  // namespace minitaw::schedule
