#pragma once

#include <cstdint>
#include <vector>

#include "engine/memory.hpp"
#include "model/model.hpp"
#include "schedule/program.hpp"

namespace minitaw::engine {

/// The part of the ends that a rank holds; no elements if none.
[[nodiscard]] model::EndsPart ends_part_of(const schedule::Program& program, int rank,
                                           const model::Layout& layout);

/// What a rank carries from step to step: weights and optimiser state of its home shards, or of its slice of
/// each, the ends or its slice of them with the optimiser state of the slice that it updates, and the
/// gradients of the last step, all in the arena.
class State {
public:
  State(const schedule::Program& program, int rank, const model::Layout& layout, const Arena& arena);

  /// Initial weights (same on every rank and sharding), moments zero.
  void initialise(std::uint64_t seed);

  [[nodiscard]] const std::vector<int>& homes() const { return homes_; }
  [[nodiscard]] model::Buffer weights(int home) const;
  [[nodiscard]] model::Buffer total(int home) const;
  /// What the rank holds of each of those shards: slice slice() of slices().
  [[nodiscard]] int slice() const { return rank_.slice; }
  [[nodiscard]] int slices() const { return program_.home_slices; }
  /// Empty on a rank that holds no ends.
  [[nodiscard]] model::Buffer ends() const;
  [[nodiscard]] model::Buffer ends_total() const;
  [[nodiscard]] bool holds_ends() const { return ends_part_.elements > 0; }
  /// What those buffers hold.
  [[nodiscard]] const model::EndsPart& ends_part() const { return ends_part_; }
  [[nodiscard]] model::OptimiserState shard_optimiser(int home) const;
  [[nodiscard]] model::OptimiserState ends_optimiser() const;
  /// Slice of the ends that this rank updates.
  [[nodiscard]] int ends_slice() const { return ends_slice_; }

private:
  void initialise_shard(int home, std::uint64_t seed);
  void initialise_ends(std::uint64_t seed);
  [[nodiscard]] std::int64_t shard_elements(int home) const {
    return layout_.shards[homes_[home]].elements / slices();
  }

  const schedule::Program& program_;
  const schedule::RankProgram& rank_;
  const model::Layout& layout_;
  const Arena& arena_;
  std::vector<int> homes_;
  model::EndsPart ends_part_;
  int ends_slice_ = 0;
};

}  // namespace minitaw::engine
