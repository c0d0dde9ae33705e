#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "comparison.hpp"
#include "kernel.hpp"
#include "kernels/detail/scalar.hpp"
#include "kernels/types.hpp"
#include "samples.hpp"

namespace minitaw::bench {

using kernels::ExecutionSpace;

/// scale [offset, offset + 1), or whole numbers of [0, scale).
struct Spread {
  float scale = 1, offset = -0.5F;
};

/// Value of an element from its place. Host and device get the same bits, so inputs never have to be copied
/// to be known.
template <class E>
struct Fill {
  E* values;
  std::uint32_t salt;  ///< matrices differ
  Spread spread;

  KOKKOS_FUNCTION static E value(std::int64_t i, std::uint32_t salt, const Spread& spread) {
    auto bits = (static_cast<std::uint32_t>(i) ^ salt) * 2654435761U;
    bits = (bits ^ (bits >> 15)) * 2246822519U;
    const float x = static_cast<float>((bits ^ (bits >> 13)) >> 8) * 0x1p-24F;  // of [0, 1)
    if constexpr (std::is_integral_v<E>)
      return Kokkos::min(static_cast<E>(spread.scale * x), static_cast<E>(spread.scale) - 1);
    else return kernels::detail::store<E>(spread.scale * (x + spread.offset));
  }
  KOKKOS_FUNCTION void operator()(std::int64_t i) const { values[i] = value(i, salt, spread); }
};

/// The same for each matrix of a run, another for the next.
inline std::uint32_t next_salt() {
  static std::uint32_t salt = 0;
  return salt += 0x9E3779B9U;
}

template <class E>
double to_double(E value) {
  if constexpr (std::is_same_v<E, Bf16>) return to_float(value);
  else return static_cast<double>(value);
}

/// A matrix in device memory with values that are neither zero nor equal (zeros run faster than data), and
/// that the host can compute again. Copies share the memory.
template <class E>
class Values {
public:
  using View = Kokkos::View<E**, Kokkos::LayoutRight, kernels::MemorySpace>;

  explicit Values(std::int64_t rows, std::int64_t cols = 1, Spread spread = {})
      : view_(Kokkos::view_alloc("benchmark", Kokkos::WithoutInitializing), rows, cols), salt_(next_salt()),
        spread_(spread) {
    reset();
  }

  void reset() const {
    using Range = Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<std::int64_t>>;
    const auto count = static_cast<std::int64_t>(view_.size());
    Kokkos::parallel_for("benchmark values", Range(0, count), Fill<E>{view_.data(), salt_, spread_});
    Kokkos::fence();
  }
  /// Not a number, everywhere: what an output holds before.
  void poison() const {
    Kokkos::deep_copy(view_, kernels::detail::store<E>(std::numeric_limits<float>::quiet_NaN()));
  }

  [[nodiscard]] std::int64_t rows() const { return static_cast<std::int64_t>(view_.extent(0)); }
  [[nodiscard]] std::int64_t cols() const { return static_cast<std::int64_t>(view_.extent(1)); }
  [[nodiscard]] kernels::Matrix<E> matrix() const {
    return kernels::Matrix<E>(view_.data(), view_.extent(0), view_.extent(1));
  }
  [[nodiscard]] kernels::Vector<E> vector() const { return kernels::Vector<E>(view_.data(), view_.size()); }

  /// What reset() put there.
  [[nodiscard]] double given(std::int64_t row, std::int64_t col = 0) const {
    return to_double(Fill<E>::value(row * cols() + col, salt_, spread_));
  }
  [[nodiscard]] std::vector<double> given_row(std::int64_t row) const {
    std::vector<double> values(static_cast<std::size_t>(cols()));
    for (std::int64_t col = 0; col < cols(); ++col) values[static_cast<std::size_t>(col)] = given(row, col);
    return values;
  }
  /// What is there now; waits for the device.
  [[nodiscard]] std::vector<double> row(std::int64_t row) const {
    const auto part = Kokkos::subview(view_, row, Kokkos::ALL);
    const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), part);
    std::vector<double> values(host.extent(0));
    for (std::size_t col = 0; col < values.size(); ++col) values[col] = to_double(host(col));
    return values;
  }
  [[nodiscard]] auto on_host() const {
    return Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), view_);
  }

private:
  View view_;
  std::uint32_t salt_;
  Spread spread_;
};

/// Error of sampled rows against expected(row), a whole row each.
template <class E, class Expected>
double error_of_rows(const Values<E>& values, const Expected& expected) {
  Comparison found;
  for (const std::int64_t row : samples(values.rows(), 8)) found.add(values.row(row), expected(row));
  return found.error();
}

/// Error of sampled elements against expected(row, col), where each costs a sum.
template <class E, class Expected>
double error_of_elements(const Values<E>& values, const Expected& expected) {
  Comparison found;
  for (const std::int64_t row : samples(values.rows(), 12)) {
    const std::vector<double> now = values.row(row);
    for (const std::int64_t col : samples(values.cols(), 24))
      found.add(now[static_cast<std::size_t>(col)], expected(row, col));
  }
  return found.error();
}

/// What a result of type E may be off by, as Comparison counts: some roundings to bf16, or a sum of many
/// thousand terms in float.
template <class E>
inline constexpr double tolerance = std::is_same_v<E, Bf16> ? 1e-2 : 1e-4;

template <class E>
inline constexpr double bytes_of = sizeof(E);

template <class E>
inline constexpr model::Dtype dtype_of = std::is_same_v<E, Bf16> ? model::Dtype::bf16 : model::Dtype::fp32;

}  // namespace minitaw::bench
