#pragma once

#include <Kokkos_Core.hpp>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "base/bf16.hpp"

namespace minitaw::kernels::detail {

/// Where the device rounds to bf16 in one instruction. Inline assembly, because the header with its name is
/// the vendor's.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define MINITAW_DEVICE_ROUNDS_TO_BF16
#endif

/// The same as to_bf16 for device code, which may not call constexpr functions of the host.
KOKKOS_INLINE_FUNCTION std::uint16_t portable_bf16_bits(float value) {
  const auto bits = Kokkos::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40U;
  return static_cast<std::uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? quiet : rounded);
}

KOKKOS_INLINE_FUNCTION std::uint16_t bf16_bits(float value) {
#ifdef MINITAW_DEVICE_ROUNDS_TO_BF16
  std::uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#else
  return portable_bf16_bits(value);
#endif
}

/// From and to the type in memory. A new storage type adds its pair here.
KOKKOS_INLINE_FUNCTION float load(float value) { return value; }
KOKKOS_INLINE_FUNCTION float load(Bf16 value) {
  return Kokkos::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

template <class E>
KOKKOS_INLINE_FUNCTION E store(float value) {
  if constexpr (std::is_same_v<E, Bf16>) return Bf16{bf16_bits(value)};
  else return static_cast<E>(value);
}

/// exp(x) to about 1e-7 relative, without a branch or a call, so that loops over it become vector code: C
/// libraries' expf does not. 0 below -87, infinity above 88.
inline float host_exponential(float x) {
  constexpr float to_integer = 0x1.8p23F;  // adding it leaves the nearest integer in the low bits
  const float shifted = x * 1.44269504F + to_integer;
  const float n = shifted - to_integer;
  const float r = (x - n * 0x1.62e4p-1F) - n * 0x1.7f7d1cp-20F;  // ln 2 in two parts
  float p = 1.0F / 5040;
  p = p * r + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  const float power = std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) << 23) + 0x3f800000U);
  const float result = p * power;
  return x < -87.0F ? 0.0F : (x > 88.0F ? __builtin_huge_valf() : result);
}

KOKKOS_INLINE_FUNCTION float exponential(float x) {
  KOKKOS_IF_ON_HOST((return host_exponential(x);))
  KOKKOS_IF_ON_DEVICE((return Kokkos::exp(x);))
}

}  // namespace minitaw::kernels::detail
