#pragma once

#include "kernels/detail/pack.hpp"

/// Kernels over whole buffers, without rows.
namespace minitaw::kernels::detail {

/// body.template at<n>(i) for the n elements from i on.
template <class Body, int n>
struct FlatPacks {
  Body body;
  std::int64_t count;

  KOKKOS_FUNCTION void operator()(std::int64_t pack) const {
    const std::int64_t begin = n * pack;
    if (begin + n <= count) return body.template at<n>(begin);
    for (std::int64_t i = begin; i < count; ++i) body.template at<1>(i);
  }
};

template <class Body>
struct FlatPacks<Body, 1> {
  Body body;
  std::int64_t count;

  KOKKOS_FUNCTION void operator()(std::int64_t i) const { body.template at<1>(i); }
};

/// On a host a thread takes a run of elements, with a copy of the body that no store can reach: the loop is
/// vector code then. Elements do not depend on each other, though the same one may be read and written.
template <class Body>
struct FlatRuns {
  static constexpr std::int64_t length = 1024;
  Body body;
  std::int64_t count;

  KOKKOS_FUNCTION void operator()(std::int64_t run) const {
    const Body own = body;
    const std::int64_t begin = run * length, end = begin + length < count ? begin + length : count;
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i) own.template at<1>(i);
  }
};

/// Runs `body` over `count` elements, in packs of E where the addresses allow it.
template <class E, class Body>
void flat_for(const char* label, const ExecutionSpace& exec, std::int64_t count,
              std::initializer_list<const void*> addresses, const Body& body) {
  using Range = Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<std::int64_t>>;
  with_packs<E>(0, addresses, [&](auto n) {  // the end is cut into single elements: any count will do
    using Work = std::conditional_t<on_host && n == 1, FlatRuns<Body>, FlatPacks<Body, n>>;
    constexpr std::int64_t each = on_host && n == 1 ? FlatRuns<Body>::length : n;
    Kokkos::parallel_for(label, Range(exec, 0, (count + each - 1) / each), Work{body, count});
  });
}

}  // namespace minitaw::kernels::detail
