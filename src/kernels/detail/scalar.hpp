#pragma once

#include <Kokkos_Core.hpp>
#include <bit>
#include <cstdint>

namespace minitaw::kernels::detail {

/// From and to the type in memory. A new storage type adds its pair here.
KOKKOS_INLINE_FUNCTION float load(float value) { return value; }

template <class E>
KOKKOS_INLINE_FUNCTION E store(float value) {
  return static_cast<E>(value);
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
