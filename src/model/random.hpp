#pragma once

#include <array>
#include <cstdint>

namespace minitaw::model {

/// Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"): four random words that
/// depend on nothing but key and counter, so that every rank draws the same numbers wherever it starts.
inline std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                           std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(product0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

/// Streams that must not repeat each other's numbers for one seed.
enum class Stream : std::uint32_t { weights = 0, tokens = 0x746F6B73 };

inline std::array<std::uint32_t, 2> philox_key(std::uint64_t seed, Stream stream) {
  return {static_cast<std::uint32_t>(seed),
          static_cast<std::uint32_t>(seed >> 32) ^ static_cast<std::uint32_t>(stream)};
}

/// Exactly representable number in [-1, 1), a multiple of 2^-23.
inline float signed_unit(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-23F - 1.0F; }

}  // namespace minitaw::model
