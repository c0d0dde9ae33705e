#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <type_traits>

#include "kernels/detail/scalar.hpp"
#include "kernels/types.hpp"

/// Elements that one thread reads or writes at a time. A device's memory runs at full speed only when each
/// thread moves 16 bytes.
namespace minitaw::kernels::detail {

/// n floats in registers.
template <int n>
struct Floats {
  float value[n];

  KOKKOS_INLINE_FUNCTION float& operator[](int i) { return value[i]; }
  KOKKOS_INLINE_FUNCTION const float& operator[](int i) const { return value[i]; }
};

/// Two bf16 in one word, the first in the low half.
KOKKOS_INLINE_FUNCTION std::uint32_t bf16_pair(float first, float second) {
#ifdef MINITAW_DEVICE_ROUNDS_TO_BF16
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
#else
  return portable_bf16_bits(first) | std::uint32_t{portable_bf16_bits(second)} << 16;
#endif
}

/// n neighbouring elements as they are in memory, moved as one access; aligned to their size, at most 16
/// bytes. A single element is moved as such.
template <class E, int n>
struct Pack {
  static constexpr std::size_t bytes = n * sizeof(E);
  static_assert(bytes == 4 || bytes % 8 == 0);
  static constexpr std::size_t access = bytes % 16 == 0 ? 16 : bytes;
  struct alignas(access) Words {
    std::uint32_t word[access / 4];
  };
  Words words[bytes / access];

  // A device's memory has no types: words need no copy through bytes, which its compiler may split.
  KOKKOS_INLINE_FUNCTION static Pack read(const E* from) {
    Pack pack;
    KOKKOS_IF_ON_HOST((std::memcpy(&pack, static_cast<const void*>(from), bytes);))
    KOKKOS_IF_ON_DEVICE((for (std::size_t i = 0; i < bytes / access; ++i) pack.words[i] =
                             reinterpret_cast<const Words*>(from)[i];))
    return pack;
  }
  KOKKOS_INLINE_FUNCTION void write(E* to) const {
    KOKKOS_IF_ON_HOST((std::memcpy(static_cast<void*>(to), this, bytes);))
    KOKKOS_IF_ON_DEVICE(
        (for (std::size_t i = 0; i < bytes / access; ++i) reinterpret_cast<Words*>(to)[i] = words[i];))
  }
  KOKKOS_INLINE_FUNCTION std::uint32_t& word(int i) { return words[i / (access / 4)].word[i % (access / 4)]; }
  KOKKOS_INLINE_FUNCTION std::uint32_t word(int i) const {
    return words[i / (access / 4)].word[i % (access / 4)];
  }

  KOKKOS_INLINE_FUNCTION static Pack of(const Floats<n>& values) {
    Pack pack;
    for (std::size_t i = 0; i < bytes / 4; ++i) {
      if constexpr (std::is_same_v<E, Bf16>) pack.word(i) = bf16_pair(values[2 * i], values[2 * i + 1]);
      else pack.word(i) = Kokkos::bit_cast<std::uint32_t>(values[i]);
    }
    return pack;
  }
  [[nodiscard]] KOKKOS_INLINE_FUNCTION Floats<n> floats() const {
    Floats<n> values;
    for (std::size_t i = 0; i < bytes / 4; ++i) {
      if constexpr (std::is_same_v<E, Bf16>) {
        values[2 * i] = Kokkos::bit_cast<float>(word(i) << 16);
        values[2 * i + 1] = Kokkos::bit_cast<float>(word(i) & 0xffff0000U);
      } else {
        values[i] = Kokkos::bit_cast<float>(word(i));
      }
    }
    return values;
  }
};

template <class E>
struct Pack<E, 1> {
  E element;

  KOKKOS_INLINE_FUNCTION static Pack read(const E* from) { return {*from}; }
  KOKKOS_INLINE_FUNCTION void write(E* to) const { *to = element; }
  KOKKOS_INLINE_FUNCTION static Pack of(const Floats<1>& values) { return {store<E>(values[0])}; }
  [[nodiscard]] KOKKOS_INLINE_FUNCTION Floats<1> floats() const { return {{load(element)}}; }
};

/// Pack i of a row.
template <int n, class E>
KOKKOS_INLINE_FUNCTION Floats<n> load_pack(const E* row, int i) {
  return Pack<E, n>::read(row + n * i).floats();
}
template <int n, class E>
KOKKOS_INLINE_FUNCTION void store_pack(E* row, int i, const Floats<n>& values) {
  Pack<E, n>::of(values).write(row + n * i);
}

/// On a host, plain loops over single elements become the better vector code. Tests set this, so that the
/// loops over packs run there too.
inline bool packs_on_host = false;

inline bool aligned(std::initializer_list<const void*> addresses) {
  for (const void* address : addresses)
    if (reinterpret_cast<std::uintptr_t>(address) % 16 != 0) return false;
  return true;
}

/// launch(n), n a compile-time constant: elements per access that rows of `width` elements of type E at these
/// addresses allow.
template <class E, class Launch>
void with_packs(std::int64_t width, std::initializer_list<const void*> addresses, const Launch& launch) {
  constexpr int widest = 16 / sizeof(E);
  if ((!on_host || packs_on_host) && width % widest == 0 && aligned(addresses))
    return launch(std::integral_constant<int, widest>());
  launch(std::integral_constant<int, 1>());
}

}  // namespace minitaw::kernels::detail
