#include "schedule/stages.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace minitaw::schedule {
namespace {

/// Visits of one stage as they are put in order.
class Stage {
public:
  Stage(int delay, int micro_batches, bool split) : delay_(delay), count_(micro_batches), split_(split) {}

  std::vector<StageVisit> run(int warm_up) {
    for (int i = 0; i < warm_up; ++i) forward();
    for (int j = 0; j < count_; ++j) {
      visits_.push_back({split_ ? Kind::backward_input : Kind::backward, j});
      if (j >= delay_) weight();
      forward();
    }
    while (split_ && weights_ < count_) weight();
    return std::move(visits_);
  }

private:
  void forward() {
    if (forwards_ < count_) visits_.push_back({Kind::forward, forwards_++});
  }
  void weight() {
    if (split_) visits_.push_back({Kind::backward_weight, weights_++});
  }

  int delay_;  ///< backward visits before the first W
  int count_;
  bool split_;
  int forwards_ = 0, weights_ = 0;
  std::vector<StageVisit> visits_;
};

/// Finds out when visits begin: a stage goes on as soon as what its next visit needs is over.
class Ticker {
public:
  Ticker(const std::vector<std::vector<StageVisit>>& visits, int micro_batches)
      : visits_(visits), ticks_(visits.size()), free_(visits.size()),
        forward_(visits.size(), std::vector<int>(micro_batches, -1)), backward_(forward_) {}

  std::vector<std::vector<int>> run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t s = 0; s < visits_.size(); ++s)
        while (advance(s)) moved = true;
    }
    for (std::size_t s = 0; s < visits_.size(); ++s)
      if (ticks_[s].size() < visits_[s].size()) throw LogicError("stages wait for one another");
    return std::move(ticks_);
  }

private:
  /// End of what the visit needs from a neighbour; -1: not known yet.
  [[nodiscard]] int needed(std::size_t stage, const StageVisit& visit) const {
    const bool last = stage + 1 == visits_.size();
    if (visit.kind == Kind::forward) return stage == 0 ? 0 : forward_[stage - 1][visit.micro_batch];
    if (visit.kind == Kind::backward_weight || last) return 0;
    return backward_[stage + 1][visit.micro_batch];
  }

  bool advance(std::size_t stage) {
    const std::size_t next = ticks_[stage].size();
    if (next == visits_[stage].size()) return false;
    const StageVisit& visit = visits_[stage][next];
    const int ready = needed(stage, visit);
    if (ready < 0) return false;
    const int tick = std::max(ready, free_[stage]);
    ticks_[stage].push_back(tick);
    free_[stage] = tick + 1;
    if (visit.kind == Kind::forward) forward_[stage][visit.micro_batch] = tick + 1;
    else if (visit.kind != Kind::backward_weight) backward_[stage][visit.micro_batch] = tick + 1;
    return true;
  }

  const std::vector<std::vector<StageVisit>>& visits_;
  std::vector<std::vector<int>> ticks_;
  std::vector<int> free_;
  std::vector<std::vector<int>> forward_, backward_;  ///< ends, by stage and micro-batch
};

}  // namespace

std::vector<StageVisit> stage_visits(StageRule rule, int stage, int stages, int micro_batches) {
  const int left = stages - stage;
  switch (rule) {
  case StageRule::one_forward_one_backward:
    return Stage(0, micro_batches, false).run(left);
  case StageRule::zero_bubble_h1:
    return Stage(stage, micro_batches, true).run(left);
  case StageRule::zero_bubble_h2:
    return Stage(2 * stage, micro_batches, true).run(2 * left - 1);
  }
  return {};
}

std::vector<std::vector<int>> stage_ticks(const std::vector<std::vector<StageVisit>>& visits,
                                          int micro_batches) {
  return Ticker(visits, micro_batches).run();
}

}  // namespace minitaw::schedule
