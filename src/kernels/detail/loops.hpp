// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <cstring>
#include <initializer_list>
#include "kernels/kernels.hpp"

/// Instantiates a function template for each type of elements.
#define MINITAW_INSTANTIATE(function)                                                              \
  template decltype(function<float>) function<float>;                                              \
  template decltype(function<Bf16>) function<Bf16>;

namespace minitaw::kernels::detail {
/// Two bf16 in one word, the first in the low half: as to_bf16, for device code, which may not call
/// constexpr functions of the host. Assembly where the device rounds in one instruction: the header
/// with its name is the vendor's.
KOKKOS_INLINE_FUNCTION std::uint32_t bf16_pair(float first, float second) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
#else
  const auto rounded = [](float value) {
    const auto bits = Kokkos::bit_cast<std::uint32_t>(value);
    const std::uint32_t quiet = (bits >> 16) | 0x40U;
    return (bits & 0x7fffffffU) > 0x7f800000U ? quiet
                                              : (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  };
  return rounded(first) | rounded(second) << 16;
#endif
}

/// `load` and `store` convert from and to the type in memory. A new storage type adds its pair.
KOKKOS_INLINE_FUNCTION float load(float value) {
  return value;
}

KOKKOS_INLINE_FUNCTION float load(Bf16 value) {
  return Kokkos::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

template <class E>
KOKKOS_INLINE_FUNCTION E store(float value) {
  if constexpr (std::is_same_v<E, Bf16>)
    return Bf16{static_cast<std::uint16_t>(bf16_pair(value, 0))};
  else
    return static_cast<E>(value);
}

/// exp(x) to about 1e-7, without branch or call, for vector code, which expf is not. 0 below -87,
/// infinity above 88.
inline float host_exponential(float x) {
  constexpr float to_integer = 0x1.8p23F;  // adding it leaves the nearest integer in the low bits
  const float shifted = x * 1.44269504F + to_integer, n = shifted - to_integer;
  const float r = (x - n * 0x1.62e4p-1F) - n * 0x1.7f7d1cp-20F;  // ln 2 in two parts
  float p = 1.0F / 5040;
  p = p * r + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  const float power =
      std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) << 23) + 0x3f800000U);
  const float result = p * power;
  return x < -87.0F ? 0.0F : (x > 88.0F ? __builtin_huge_valf() : result);
}

KOKKOS_INLINE_FUNCTION float exponential(float x) {
  KOKKOS_IF_ON_HOST((return host_exponential(x);))
  KOKKOS_IF_ON_DEVICE((return Kokkos::exp(x);))
}

// A thread moves 16 bytes at a time, which lets a device's memory run at full speed.

template <int n>
struct Floats {
  float value[n];

  KOKKOS_INLINE_FUNCTION float& operator[](int i) { return value[i]; }

  KOKKOS_INLINE_FUNCTION const float& operator[](int i) const { return value[i]; }

  KOKKOS_INLINE_FUNCTION void operator+=(const Floats& other) {
    for (int i = 0; i < n; ++i)
      value[i] += other[i];
  }

  KOKKOS_INLINE_FUNCTION void operator*=(const Floats& other) {
    for (int i = 0; i < n; ++i)
      value[i] *= other[i];
  }
};

/// n neighbouring elements as they are in memory, moved as one access; aligned to their size, at
/// most 16 bytes.
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
    KOKKOS_IF_ON_DEVICE((for (std::size_t i = 0; i < bytes / access; ++i) reinterpret_cast<Words*>(
                             to)[i] = words[i];))
  }

  KOKKOS_INLINE_FUNCTION std::uint32_t& word(int i) {
    return words[i / (access / 4)].word[i % (access / 4)];
  }

  KOKKOS_INLINE_FUNCTION std::uint32_t word(int i) const {
    return words[i / (access / 4)].word[i % (access / 4)];
  }

  KOKKOS_INLINE_FUNCTION static Pack of(const Floats<n>& values) {
    Pack pack;
    for (std::size_t i = 0; i < bytes / 4; ++i) {
      if constexpr (std::is_same_v<E, Bf16>)
        pack.word(i) = bf16_pair(values[2 * i], values[2 * i + 1]);
      else
        pack.word(i) = Kokkos::bit_cast<std::uint32_t>(values[i]);
    }
    return pack;
  }

  KOKKOS_INLINE_FUNCTION Floats<n> floats() const {
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

  KOKKOS_INLINE_FUNCTION Floats<1> floats() const { return {{load(element)}}; }
};

template <int n, class E>
KOKKOS_INLINE_FUNCTION Floats<n> load_pack(const E* row, int i) {
  return Pack<E, n>::read(row + n * i).floats();
}

template <int n, class E>
KOKKOS_INLINE_FUNCTION void store_pack(E* row, int i, const Floats<n>& values) {
  Pack<E, n>::of(values).write(row + n * i);
}

/// Single elements make the better vector code on a host; tests set this flag to run the loops over
/// packs there too.
inline bool packs_on_host = false;

/// Packs `to` = packs `from` in their type, or with `adds` +=.
template <int n, bool adds, class To, class From>
KOKKOS_INLINE_FUNCTION void convert_pack(To* to, const From* from, int i) {
  Floats<n> result = load_pack<n>(from, i);
  if constexpr (adds)
    result += load_pack<n>(to, i);
  store_pack<n>(to, i, result);
}

inline bool aligned(std::initializer_list<const void*> addresses) {
  for (const void* address : addresses)
    if (reinterpret_cast<std::uintptr_t>(address) % 16 != 0)
      return false;
  return true;
}

/// launch(n), a compile-time constant: elements E per access that rows of `width` at these
/// addresses allow.
template <class E, class Launch>
void with_packs(
    std::int64_t width, std::initializer_list<const void*> addresses, const Launch& launch) {
  constexpr int widest = 16 / sizeof(E);
  if ((!on_host || packs_on_host) && width % widest == 0 && aligned(addresses))
    return launch(std::integral_constant<int, widest>());
  launch(std::integral_constant<int, 1>());
}

// Loops over one row, shared by a team's threads on a device, by one thread's vector lanes on a
// host.

inline constexpr int most_threads = 256;

/// Threads of a team on a host, at most as many as the execution space has. One thread alone has
/// the better vector code. Tests set this, so that the loops, sums and barriers of several threads
/// run there too.
inline int threads_on_host = 1;

using RowPolicy = Kokkos::TeamPolicy<ExecutionSpace, Kokkos::LaunchBounds<most_threads>>;
using RowTeam = RowPolicy::member_type;
using Scratch = Kokkos::
    View<float*, ExecutionSpace::scratch_memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

/// Threads for a row of `items`: no more passes than `most` threads need, none of them nearly
/// empty.
inline int team_threads(int items, int most = most_threads) {
  if constexpr (on_host)
    return threads_on_host;
  constexpr int warp = 32;
  const int passes = (items + most - 1) / most;
  const int share = passes > 0 ? (items + passes - 1) / passes : 1;
  return (share + warp - 1) / warp * warp;
}

/// One team per row of `items` elements or packs.
inline RowPolicy row_policy(
    const ExecutionSpace& exec, std::int64_t rows, int items = most_threads) {
  return RowPolicy(exec, static_cast<int>(rows), team_threads(items));
}

/// The thread is the whole team: its loops become vector code.
template <class Team>
KOKKOS_INLINE_FUNCTION bool alone([[maybe_unused]] const Team& team) {
  if constexpr (on_host)
    return team.team_size() == 1;
  else
    return false;
}

/// body(i) for i in [0, count), in order for each thread, so that the body may sum.
template <class Team, class Body>
KOKKOS_INLINE_FUNCTION void row_each(const Team& team, int count, const Body& body) {
  for (int i = team.team_rank(); i < count; i += team.team_size())
    body(i);
}

/// body(i) for i in [0, count), independent; the same thread gets the same i in every call.
template <class Team, class Body>
KOKKOS_INLINE_FUNCTION void row_for(const Team& team, int count, const Body& body) {
  if (alone(team)) [[likely]] {
#pragma GCC ivdep
    for (int i = 0; i < count; ++i)
      body(i);
  } else {
    row_each(team, count, body);
  }
}

/// start joined with term(i) for i in [0, count) on one thread, by join(a, b), of which `start` is
/// the neutral element or a lower bound: independent parts keep vector units busy and rounding
/// small. Their order depends on count alone.
template <class T, class Term, class Join>
KOKKOS_INLINE_FUNCTION T lane_reduce(int count, T start, const Term& term, const Join& join) {
  constexpr int lanes = 16;
  T parts[lanes];
  for (T& part : parts)
    part = start;
  int i = 0;
  for (; i + lanes <= count; i += lanes)
    for (int lane = 0; lane < lanes; ++lane)
      parts[lane] = join(parts[lane], term(i + lane));
  for (int lane = 0; i + lane < count; ++lane)
    parts[lane] = join(parts[lane], term(i + lane));
  for (int width = lanes / 2; width > 0; width /= 2)
    for (int lane = 0; lane < width; ++lane)
      parts[lane] = join(parts[lane], parts[lane + width]);
  return parts[0];
}

template <class Sum, class Term>
KOKKOS_INLINE_FUNCTION Sum lane_sum(int count, const Term& term) {
  return lane_reduce(count, Sum{0}, term, [](Sum a, Sum b) { return a + b; });
}

/// Returns the sum to the whole team; the order depends only on count and the size of the team.
template <class Sum, class Term>
KOKKOS_INLINE_FUNCTION Sum row_sum(const RowTeam& team, int count, const Term& term) {
  if (alone(team)) [[likely]]
    return lane_sum<Sum>(count, term);
  Sum sum = 0;
  row_each(team, count, [&](int i) { sum += term(i); });
  team.team_reduce(Kokkos::Sum<Sum>(sum));
  return sum;
}

/// Runs kernel(n), made for packs of n elements E: a team for each of `rows` rows of `width`
/// elements at these addresses.
template <class E, class Kernel>
void for_rows(const char* label,
    const ExecutionSpace& exec,
    std::size_t rows,
    int width,
    std::initializer_list<const void*> addresses,
    const Kernel& kernel) {
  with_packs<E>(width, addresses, [&](auto n) {
    Kokkos::parallel_for(
        label, row_policy(exec, static_cast<std::int64_t>(rows), width / n), kernel(n));
  });
}

// Kernels over whole buffers, without rows.

using FlatPolicy = Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<std::int64_t>>;

/// body.template at<n>(i) for the n elements from i on. On a host that takes single elements a
/// thread has a run of them, with a copy of the body that no store can reach, for vector code.
/// Elements do not depend on each other.
template <class Body, int n>
struct Flat {
  static constexpr std::int64_t each = on_host && n == 1 ? 1024 : n;
  Body body;
  std::int64_t count;

  KOKKOS_FUNCTION void operator()(std::int64_t item) const {
    const Body own = body;
    const std::int64_t begin = item * each, end = begin + each < count ? begin + each : count;
    if constexpr (n > 1)
      if (end - begin == n)
        return own.template at<n>(begin);
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i)
      own.template at<1>(i);
  }
};

/// Runs `body` over `count` elements, in packs of E where the addresses allow it.
template <class E, class Body>
void flat_for(const char* label,
    const ExecutionSpace& exec,
    std::int64_t count,
    std::initializer_list<const void*> addresses,
    const Body& body) {
  with_packs<E>(
      0, addresses, [&](auto n) {  // the end is cut into single elements: any count will do
        using Work = Flat<Body, n>;
        Kokkos::parallel_for(
            label, FlatPolicy(exec, 0, (count + Work::each - 1) / Work::each), Work{body, count});
      });
}

/// use(constant), which is `value` known to the compiler.
template <class Use>
void with_constant(bool value, const Use& use) {
  if (value)
    use(std::true_type());
  else
    use(std::false_type());
}

struct Nothing {
  template <class Team>
  KOKKOS_FUNCTION void operator()(const Team&) const {}
};

/// Lets Kokkos allocate the scratch memory of `policy` now, and not in a step.
template <class Policy>
void reserve_scratch(const Policy& policy) {
  Kokkos::parallel_for("minitaw::reserve_scratch", policy, Nothing{});
}
}  // namespace minitaw::kernels::detail
