#pragma once

#include <cstdint>
#include <vector>

#include "engine/memory.hpp"
#include "model/model.hpp"
#include "schedule/program.hpp"

namespace minitaw::engine {

/// The part of the embeddings that a rank holds; no elements if none.
[[nodiscard]] model::EmbeddingsPart embeddings_part_of(const schedule::Program& program, int rank,
                                                       const model::Layout& layout);

/// What a rank carries from step to step: weights and optimiser state of its owned shards, or of its slice of
/// each, the embeddings or its slice of them with the optimiser state of the slice that it updates, and the
/// gradients of the last step, all in the arena.
class State {
public:
  State(const schedule::Program& program, int rank, const model::Layout& layout, const Arena& arena);

  /// Initial weights (same on every rank and sharding), moments zero.
  void initialise(std::uint64_t seed);

  [[nodiscard]] const std::vector<int>& owned_shards() const { return owned_shards_; }
  [[nodiscard]] model::Buffer weights(int owned) const;
  [[nodiscard]] model::Buffer accumulator(int owned) const;
  /// What the rank holds of each of those shards: slice slice() of slices().
  [[nodiscard]] int slice() const { return rank_.slice; }
  [[nodiscard]] int slices() const { return program_.owned_slices; }
  /// Empty on a rank that holds no embeddings.
  [[nodiscard]] model::Buffer embeddings() const;
  [[nodiscard]] model::Buffer embeddings_accumulator() const;
  [[nodiscard]] bool holds_embeddings() const { return embeddings_part_.elements > 0; }
  /// What those buffers hold.
  [[nodiscard]] const model::EmbeddingsPart& embeddings_part() const { return embeddings_part_; }
  [[nodiscard]] model::OptimiserState shard_optimiser(int owned) const;
  [[nodiscard]] model::OptimiserState embeddings_optimiser() const;
  /// Slice of the embeddings that this rank updates.
  [[nodiscard]] int embeddings_slice() const { return embeddings_slice_; }

private:
  void initialise_shard(int owned, std::uint64_t seed);
  void initialise_embeddings(std::uint64_t seed);
  [[nodiscard]] std::int64_t shard_elements(int owned) const {
    return layout_.shards[owned_shards_[owned]].elements / slices();
  }

  const schedule::Program& program_;
  const schedule::RankProgram& rank_;
  const model::Layout& layout_;
  const Arena& arena_;
  std::vector<int> owned_shards_;
  model::EmbeddingsPart embeddings_part_;
  int embeddings_slice_ = 0;
};

}  // namespace minitaw::engine
