#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "deck/settings.hpp"

namespace minitaw::deck {

/// A case as the user wrote it: one value per key, each valid by itself. Empty: the default depends on other
/// keys or on the job, or the key must be given.
struct Draft {
  std::optional<std::string> schedule, groups, dtype, recompute, data, attention, transport;
  std::optional<std::int64_t> ranks, replicas, layers, hidden, heads, head_dim, kv_heads, vocab, ffn, seq;
  std::optional<std::int64_t> micro_batch, micro_batches, steps, repeats, warmup, seed;
  std::optional<std::vector<std::int64_t>> ffn_per_layer, micro_batch_per_rank;
  std::optional<double> learning_rate;
};

/// Fills in what depends on other keys and on the job, and checks the whole. Throws InputError "key: ...".
[[nodiscard]] Case complete(const Draft& draft, const Job& job);

}  // namespace minitaw::deck
