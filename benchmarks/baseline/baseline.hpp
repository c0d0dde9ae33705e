#pragma once

#include <vector>

#include "engine/session.hpp"

namespace minitaw::bench {

/// The serial step as a plain loop of calls of the model, written by hand: the same kernels in the same
/// order, in memory laid out alike. No program is interpreted, there are no lanes, threads, clocks or
/// watchdog. What engine::Session takes longer is what those cost.
class Baseline {
public:
  /// `c` has the schedule serial.
  explicit Baseline(const deck::Case& c);

  /// Readies the tokens of the next step, outside of its time.
  void prepare();
  /// Returns when it is complete.
  void step();
  [[nodiscard]] const engine::Arena& arena() const { return arena_; }

private:
  void micro_batch(const model::MicroBatch& batch, bool accumulate);
  void update();
  [[nodiscard]] int shards() const { return static_cast<int>(layout_.shards.size()); }

  deck::Case case_;
  schedule::Program program_;  ///< for the sizes of the memory only
  model::Layout layout_;
  engine::Arena arena_;
  engine::State state_;
  model::ExecutionSpace exec_;
  model::Model model_;
  model::TokenSource tokens_;
  std::vector<model::MicroBatch> batches_;
  model::Buffer hidden_state_;
  std::vector<model::Buffer> saved_;  ///< by shard
  int steps_ = 0;
};

/// What the last step has left in an arena.
[[nodiscard]] double loss_in(const engine::Arena& arena);

}  // namespace minitaw::bench
