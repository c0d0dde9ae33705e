// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <cstdint>

/// Marks functions that kernels call as well.
#if defined(__CUDACC__) || defined(__HIPCC__)
#define MINITAW_HOST_DEVICE __host__ __device__
#else
#define MINITAW_HOST_DEVICE
#endif

namespace minitaw {
template <int n>
struct Words {
  std::uint32_t word[n];

  MINITAW_HOST_DEVICE std::uint32_t operator[](int i) const { return word[i]; }

  friend bool operator==(const Words&, const Words&) = default;
};

/// Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3") of n counters
/// at once, whose words are a, b, c and d: random words that depend on key and counter alone, the
/// same wherever a rank starts.
template <int n>
MINITAW_HOST_DEVICE inline void philox(
    Words<n>& a, Words<n>& b, Words<n>& c, Words<n>& d, Words<2> key) {
  for (int round = 0; round < 10; ++round) {
#pragma GCC ivdep
    for (int k = 0; k < n; ++k) {
      const std::uint64_t product0 = std::uint64_t{0xD2511F53} * a.word[k];
      const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * c.word[k];
      a.word[k] = static_cast<std::uint32_t>(product1 >> 32) ^ b.word[k] ^ key.word[0];
      b.word[k] = static_cast<std::uint32_t>(product1);
      c.word[k] = static_cast<std::uint32_t>(product0 >> 32) ^ d.word[k] ^ key.word[1];
      d.word[k] = static_cast<std::uint32_t>(product0);
    }
    key = {{key[0] + 0x9E3779B9U, key[1] + 0xBB67AE85U}};
  }
}

MINITAW_HOST_DEVICE inline Words<4> philox(Words<4> counter, Words<2> key) {
  Words<1> a{{counter[0]}}, b{{counter[1]}}, c{{counter[2]}}, d{{counter[3]}};
  philox(a, b, c, d, key);
  return {{a[0], b[0], c[0], d[0]}};
}

/// Streams that must not repeat each other's numbers for one seed.
enum class Stream : std::uint32_t { weights = 0, tokens = 0x746F6B73 };

inline Words<2> philox_key(std::uint64_t seed, Stream stream) {
  return {{static_cast<std::uint32_t>(seed),
      static_cast<std::uint32_t>(seed >> 32) ^ static_cast<std::uint32_t>(stream)}};
}

/// Exactly representable number in [-1, 1), a multiple of 2^-23.
MINITAW_HOST_DEVICE inline float signed_unit(std::uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-23F - 1.0F;
}

/// Number i is center + amplitude u, in fp32; u: word i mod 4 of philox({i / 4 low, high, row[0],
/// row[1]}, key).
struct UniformRow {
  Words<2> key, row;
  float center, amplitude;

  /// Numbers 4 block .. 4 block + 3, as words.
  MINITAW_HOST_DEVICE Words<4> words(std::uint64_t block) const {
    return philox({{static_cast<std::uint32_t>(block),
                      static_cast<std::uint32_t>(block >> 32),
                      row[0],
                      row[1]}},
        key);
  }

  /// Exact in double, so that it is rounded once, with or without fused multiply-add.
  MINITAW_HOST_DEVICE float number(std::uint32_t word) const {
    return static_cast<float>(double{center} + double{amplitude} * double{signed_unit(word)});
  }
};
}  // namespace minitaw
