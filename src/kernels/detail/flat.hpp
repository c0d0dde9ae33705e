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

/// Runs `body` over `count` elements, in packs of E where the addresses allow it.
template <class E, class Body>
void flat_for(const char* label, const ExecutionSpace& exec, std::int64_t count,
              std::initializer_list<const void*> addresses, const Body& body) {
  using Range = Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<std::int64_t>>;
  with_packs<E>(0, addresses, [&](auto n) {  // the end is cut into single elements: any count will do
    Kokkos::parallel_for(label, Range(exec, 0, (count + n - 1) / n), FlatPacks<Body, n>{body, count});
  });
}

}  // namespace minitaw::kernels::detail
