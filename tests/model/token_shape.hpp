#pragma once

#include "model/layout.hpp"

namespace minitaw::test {

/// For tests of tokens, whom the model behind them does not concern.
inline model::Shape shape_of(std::int64_t vocab, std::int64_t seq, std::int64_t micro_batch) {
  return {.layers = 1,
          .hidden = 2,
          .heads = 1,
          .kv_heads = 1,
          .ffn = {1},
          .vocab = vocab,
          .seq = seq,
          .micro_batch = micro_batch};
}

}  // namespace minitaw::test
