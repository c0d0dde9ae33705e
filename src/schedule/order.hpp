#pragma once

#include <map>
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

/// Emits the compute actions of one rank, embedding and loss included, and carries hidden states and what
/// visits leave for later ones from visit to visit.
class Computer {
public:
  Computer(Draft& draft, int rank);

  /// F (after embed on shard 0, before loss on the last shard).
  void forward(const Visit& visit, Value weights);
  /// BW (before dembed on shard 0). The gradient is written to a transit value, or added to it, and added to
  /// a total.
  void backward(const Visit& visit, Value weights, Value gradient, bool accumulate = false);
  /// B (before dembed on shard 0), and W later.
  void backward_input(const Visit& visit, Value weights);
  void backward_weight(const Visit& visit, Value gradient);

  /// The hidden state of a micro-batch, or its gradient, as it is passed on; it comes from elsewhere if its
  /// first visit here is not of shard 0.
  [[nodiscard]] Value& flow(int micro_batch) { return flows_[micro_batch]; }

private:
  [[nodiscard]] static Action action(Kind kind, const Visit& visit, int shard);
  [[nodiscard]] Value& kept(const Visit& visit) { return kept_[{visit.micro_batch, visit.shard}]; }
  void embed_backward(const Visit& visit);

  Draft& draft_;
  int rank_;
  std::map<int, Value> flows_;                    ///< by micro-batch
  std::map<std::pair<int, int>, Value> kept_;     ///< by micro-batch and shard
  std::map<std::pair<int, int>, Value> stashed_;  ///< the same
};

}  // namespace minitaw::schedule
