// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "kernels/detail/loops.hpp"
#include "kernels/device_matrix.hpp"
#include "kernels/kernels.hpp"

/// The versions of attention, for typed tests.

namespace minitaw::kernels {
inline std::string text(const AttentionSizes& z) {
  return "B" + std::to_string(z.batch) + " S" + std::to_string(z.seq) + " h" +
         std::to_string(z.heads) + " g" + std::to_string(z.kv_heads) + " d" +
         std::to_string(z.head_dim);
}

/// What a test can choose; small tiles: on a host, as on a device whose fast memory has no room for
/// others.
template <class Element, Attention version, bool in_small_tiles = false>
struct Version {
  using E = Element;
  static constexpr Attention kernel = version;
  static constexpr bool small = in_small_tiles;
};

using Versions = ::testing::Types<Version<float, Attention::host>,
    Version<float, Attention::portable>,
    Version<Bf16, Attention::portable>,
    Version<float, Attention::portable, true>,
    Version<Bf16, Attention::portable, true>,
    Version<Bf16, Attention::cudnn>>;

struct VersionName {
  template <class V>
  static std::string GetName(int) {
    return name_of(V::kernel) + (V::small ? "_small" : "") +
           (std::is_same_v<typename V::E, Bf16> ? "_bf16" : "_float");
  }
};
}  // namespace minitaw::kernels
