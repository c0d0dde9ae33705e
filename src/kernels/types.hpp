#pragma once

#include <Kokkos_Core.hpp>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/bf16.hpp"

/// Every kernel takes the execution space first, then outputs, then inputs, then sizes that no extent tells.
/// It is asynchronous on that space, allocates nothing, and fences nothing. E is the type in memory;
/// arithmetic is float. "adds to" means that the output is read and added to; every other output may hold
/// anything before.
namespace minitaw::kernels {

using ExecutionSpace = Kokkos::DefaultExecutionSpace;
using MemorySpace = ExecutionSpace::memory_space;

/// Kernels run on the host: loops over a row belong to one thread, and the vector units do the rest.
inline constexpr bool on_host = std::is_same_v<MemorySpace, Kokkos::HostSpace>;

/// Row-major matrix and vector in memory that somebody else owns.
template <class E>
using Matrix = Kokkos::View<E**, Kokkos::LayoutRight, MemorySpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
template <class E>
using Vector = Kokkos::View<E*, Kokkos::LayoutRight, MemorySpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

/// The same as an input: takes no part in deducing E, so that a Matrix<E> converts.
template <class E>
using MatrixIn = Matrix<const std::type_identity_t<E>>;
template <class E>
using VectorIn = Vector<const std::type_identity_t<E>>;

/// Token numbers in device memory.
using TokensIn = Vector<const std::int32_t>;

}  // namespace minitaw::kernels
