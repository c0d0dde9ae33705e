// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <bit>
#include <cstdint>
#include <type_traits>

namespace minitaw {
/// bfloat16 as stored and sent: the upper half of a float, two bytes. Arithmetic happens in float.
struct Bf16 {
  std::uint16_t bits = 0;
  friend constexpr bool operator==(Bf16, Bf16) = default;
};

static_assert(sizeof(Bf16) == 2);

constexpr float to_float(Bf16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

/// Round to nearest, ties to even; NaN stays NaN. Without branches, so that loops over it become
/// vector code.
constexpr Bf16 to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40u;
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return {static_cast<std::uint16_t>(nan ? quiet : rounded)};
}

constexpr float to_float(float value) {
  return value;
}

/// The value in the type E, float or Bf16.
template <class E>
constexpr E from_float(float value) {
  if constexpr (std::is_same_v<E, Bf16>)
    return to_bf16(value);
  else
    return value;
}

/// to [count] = from, rounded to its type, or with `adds` +=, in float. They do not overlap. Plain
/// loops: communication threads must not enter the parallel regions of the compute threads.
template <bool adds, class To, class From>
void convert(To* __restrict to, const From* __restrict from, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = to_float(from[i]);
    to[i] = from_float<To>(adds ? to_float(to[i]) + value : value);
  }
}
}  // namespace minitaw
