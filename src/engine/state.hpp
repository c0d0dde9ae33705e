#pragma once

#include <cstdint>
#include <vector>

#include "engine/arena.hpp"
#include "model/layout.hpp"
#include "schedule/program.hpp"

namespace minitaw::engine {

/// What a rank carries from step to step: weights and optimiser state of its home shards, the ends with the
/// optimiser state of its slice, and the gradients of the last step, all in the arena.
class State {
public:
  State(const schedule::Program& program, int rank, const model::Layout& layout, const Arena& arena);

  /// Initial weights (same on every rank and sharding), moments zero.
  void initialise(std::uint64_t seed);

  [[nodiscard]] const std::vector<int>& homes() const { return homes_; }
  [[nodiscard]] model::Buffer weights(int home) const;
  [[nodiscard]] model::Buffer total(int home) const;
  [[nodiscard]] model::Buffer ends() const;
  [[nodiscard]] model::Buffer ends_total() const;
  [[nodiscard]] model::OptimiserState shard_optimiser(int home) const;
  [[nodiscard]] model::OptimiserState ends_optimiser() const;
  /// Slice of the ends that this rank updates.
  [[nodiscard]] int ends_slice() const { return ends_slice_; }

private:
  const model::Layout& layout_;
  const Arena& arena_;
  std::vector<int> homes_;
  int ends_slice_ = 0;
};

}  // namespace minitaw::engine
