#pragma once

#include <vector>

#include "schedule/draft.hpp"

namespace minitaw::schedule {

/// First choice of a schedule: what is computed when. One visit of a shard with one micro-batch.
struct Visit {
  int tick = 0;
  int shard = 0;
  int micro_batch = 0;
  bool backward = false;
};

/// `shards` forward visits, then as many backward ones, for each micro-batch in turn, a tick each from
/// `first_tick`.
[[nodiscard]] std::vector<Visit>
micro_batch_after_micro_batch(int shards, const std::vector<int>& micro_batches, int first_tick);

/// N consecutive micro-batches for rank `rank` of the data-parallel family.
[[nodiscard]] std::vector<int> own_micro_batches(int rank, int per_rank);

/// Emits the compute actions of one rank, embedding and loss included, and carries its hidden states and what
/// forward visits keep from one visit to the next.
class Computer {
public:
  Computer(Draft& draft, int rank);

  /// F (after embed on shard 0, before loss on the last shard).
  void forward(const Visit& visit, Value weights);
  /// BW (before dembed on shard 0). The gradient is written to a transit value and added to a total.
  void backward(const Visit& visit, Value weights, Value gradient);

private:
  [[nodiscard]] static Action action(Kind kind, const Visit& visit);

  Draft& draft_;
  int rank_;
  Value flow_;
  std::vector<Value> kept_;
};

}  // namespace minitaw::schedule
