// SPDX-License-Identifier: BSD-3-Clause
#include "values.hpp"

#include <limits>

namespace minitaw::bench {
namespace {
using Range = Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<std::int64_t>>;

template <class E>
struct Fill {
  E* values;
  std::uint32_t salt;
  Spread spread;

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    values[i] = value_at<E>(i, salt, spread);
  }
};

template <class E>
struct Set {
  E* values;
  E value;

  KOKKOS_FUNCTION void operator()(std::int64_t i) const { values[i] = value; }
};

/// Matrices differ; but those of one run are the same in the next.
std::uint32_t next_salt() {
  static std::uint32_t salt = 0;
  return salt += 0x9E3779B9U;
}

template <class E>
std::shared_ptr<E> allocate(std::int64_t count) {
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(E);
  return {static_cast<E*>(Kokkos::kokkos_malloc<kernels::MemorySpace>("benchmark", bytes)),
      [](E* memory) { Kokkos::kokkos_free<kernels::MemorySpace>(memory); }};
}
}  // namespace

template <class E>
Values<E>::Values(std::int64_t rows, std::int64_t cols, Spread spread)
    : rows_(rows),
      cols_(cols),
      memory_(allocate<E>(rows * cols)),
      salt_(next_salt()),
      spread_(spread) {
  reset();
}

template <class E>
void Values<E>::reset() const {
  Kokkos::parallel_for(
      "benchmark values", Range(0, rows_ * cols_), Fill<E>{memory_.get(), salt_, spread_});
  Kokkos::fence();
}

template <class E>
void Values<E>::poison() const {
  const E none = kernels::detail::store<E>(std::numeric_limits<float>::quiet_NaN());
  Kokkos::parallel_for("benchmark poison", Range(0, rows_ * cols_), Set<E>{memory_.get(), none});
  Kokkos::fence();
}

template <class E>
std::vector<double> Values<E>::given_row(std::int64_t row) const {
  std::vector<double> values;
  for (std::int64_t col = 0; col < cols_; ++col)
    values.push_back(given(row, col));
  return values;
}

template <class E>
std::vector<double> Values<E>::row(std::int64_t row) const {
  std::vector<double> values;
  for (const E value : download(row * cols_, cols_))
    values.push_back(to_double(value));
  return values;
}

template <class E>
std::vector<E> Values<E>::download(std::int64_t begin, std::int64_t count) const {
  using Host = Kokkos::View<E*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  using Device =
      Kokkos::View<const E*, kernels::MemorySpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  std::vector<E> values(static_cast<std::size_t>(count));
  Kokkos::deep_copy(
      Host(values.data(), values.size()), Device(memory_.get() + begin, values.size()));
  return values;
}

template class Values<float>;
template class Values<double>;
template class Values<Bf16>;
template class Values<std::int32_t>;
}  // namespace minitaw::bench
