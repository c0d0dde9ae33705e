#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/reference/types.hpp"

namespace minitaw::kernels::reference {

/// Sum over the rows of -log softmax(logits [rows, vocab])[target].
inline double cross_entropy_forward(In logits, Tokens targets, std::int64_t vocab) {
  double loss = 0;
  for (std::size_t r = 0; r < targets.size(); ++r) {
    const In row = logits.subspan(r * vocab, vocab);
    const double largest = *std::max_element(row.begin(), row.end());
    double sum = 0;
    for (const double value : row) sum += std::exp(value - largest);
    loss += largest + std::log(sum) - row[targets[r]];
  }
  return loss;
}

/// dlogits [rows, vocab] = scale (softmax - one at the target).
inline void cross_entropy_backward(Out dlogits, In logits, Tokens targets, double scale, std::int64_t vocab) {
  for (std::size_t r = 0; r < targets.size(); ++r) {
    const In row = logits.subspan(r * vocab, vocab);
    const double largest = *std::max_element(row.begin(), row.end());
    double sum = 0;
    for (const double value : row) sum += std::exp(value - largest);
    for (std::int64_t i = 0; i < vocab; ++i)
      dlogits[r * vocab + i] = scale * (std::exp(row[i] - largest) / sum - (i == targets[r] ? 1 : 0));
  }
}

}  // namespace minitaw::kernels::reference
