// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <compare>
#include "base/philox.hpp"

/// Constants and types that kernels, their plain references and the vendors' libraries share.
/// Without Kokkos.

namespace minitaw::kernels {
/// Sizes of causal attention with grouped query heads: query head i reads key/value head i h_kv /
/// h.
struct AttentionSizes {
  int batch = 0;     ///< B
  int seq = 0;       ///< S
  int heads = 0;     ///< h
  int kv_heads = 0;  ///< h_kv, divides h
  int head_dim = 0;  ///< d

  [[nodiscard]] MINITAW_HOST_DEVICE int group() const { return heads / kv_heads; }

  auto operator<=>(const AttentionSizes&) const = default;
};

/// AdamW (Loshchilov & Hutter 2019, algorithm 2).
struct AdamW {
  float learning_rate = 1e-3F, beta1 = 0.9F, beta2 = 0.95F, epsilon = 1e-8F, decay = 0.1F;
  float clip_norm = 0;  ///< a longer gradient is shortened to this norm; 0: none is
};

/// Factor that shortens a gradient of this norm to clip_norm, as torch.nn.utils.clip_grad_norm_
/// does; at most 1.
template <class Real>
[[nodiscard]] MINITAW_HOST_DEVICE Real clip_factor(Real clip_norm, Real norm) {
  return clip_norm < norm + Real(1e-6) ? clip_norm / (norm + Real(1e-6)) : Real(1);
}
}  // namespace minitaw::kernels
