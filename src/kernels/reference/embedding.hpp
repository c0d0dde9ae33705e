#pragma once

#include "kernels/reference/types.hpp"

namespace minitaw::kernels::reference {

/// x [rows, width] = table [vocab, width] at tokens [rows].
inline void embedding_forward(Out x, In table, Tokens tokens, std::int64_t width) {
  for (std::size_t r = 0; r < tokens.size(); ++r)
    for (std::int64_t i = 0; i < width; ++i) x[r * width + i] = table[tokens[r] * width + i];
}

/// dtable adds to.
inline void embedding_backward(Out dtable, In dx, Tokens tokens, std::int64_t width) {
  for (std::size_t r = 0; r < tokens.size(); ++r)
    for (std::int64_t i = 0; i < width; ++i) dtable[tokens[r] * width + i] += dx[r * width + i];
}

}  // namespace minitaw::kernels::reference
