// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "kernels/detail/loops.hpp"
#include "kernels/kernels.hpp"
#include "plan.hpp"

namespace minitaw::bench {
using kernels::ExecutionSpace;

/// scale [offset, offset + 1), or whole numbers of [0, scale).
struct Spread {
  float scale = 1, offset = -0.5F;
};

/// Value of an element from its place. Host and device get the same bits, so inputs never have to
/// be copied to be known.
template <class E>
KOKKOS_FUNCTION E value_at(std::int64_t i, std::uint32_t salt, const Spread& spread) {
  auto bits = (static_cast<std::uint32_t>(i) ^ salt) * 2654435761U;
  bits = (bits ^ (bits >> 15)) * 2246822519U;
  const float x = static_cast<float>((bits ^ (bits >> 13)) >> 8) * 0x1p-24F;  // of [0, 1)
  if constexpr (std::is_integral_v<E>)
    return Kokkos::min(static_cast<E>(spread.scale * x), static_cast<E>(spread.scale) - 1);
  else
    return kernels::detail::store<E>(spread.scale * (x + spread.offset));
}

template <class E>
double to_double(E value) {
  if constexpr (std::is_same_v<E, Bf16>)
    return to_float(value);
  else
    return static_cast<double>(value);
}

/// A matrix in device memory with values that are neither zero nor equal (zeros run faster than
/// data), and that the host can compute again. Copies share the memory. Of float, double, Bf16 and
/// std::int32_t; what takes long to compile is in values.cpp.
template <class E>
class Values {
public:
  explicit Values(std::int64_t rows, std::int64_t cols = 1, Spread spread = {});

  void reset() const;
  /// Not a number, everywhere: what an output holds before.
  void poison() const;

  [[nodiscard]] std::int64_t rows() const { return rows_; }

  [[nodiscard]] std::int64_t cols() const { return cols_; }

  [[nodiscard]] kernels::Matrix<E> matrix() const {
    return kernels::Matrix<E>(
        memory_.get(), static_cast<std::size_t>(rows_), static_cast<std::size_t>(cols_));
  }

  [[nodiscard]] kernels::Vector<E> vector() const {
    return kernels::Vector<E>(memory_.get(), static_cast<std::size_t>(rows_ * cols_));
  }

  /// What reset() put there.
  [[nodiscard]] double given(std::int64_t row, std::int64_t col = 0) const {
    return to_double(value_at<E>(row * cols_ + col, salt_, spread_));
  }

  [[nodiscard]] std::vector<double> given_row(std::int64_t row) const;

  /// What is there now; both wait for the device.
  [[nodiscard]] std::vector<double> row(std::int64_t row) const;

  [[nodiscard]] std::vector<E> all() const { return download(0, rows_ * cols_); }

private:
  [[nodiscard]] std::vector<E> download(std::int64_t begin, std::int64_t count) const;

  std::int64_t rows_, cols_;
  std::shared_ptr<E> memory_;
  std::uint32_t salt_;
  Spread spread_;
};

/// Error of sampled rows against expected(row), a whole row each.
template <class E, class Expected>
double error_of_rows(const Values<E>& values, const Expected& expected) {
  Comparison found;
  for (const std::int64_t row : samples(values.rows(), 8))
    found.add(values.row(row), expected(row));
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

/// What a result of type E may be off by, as Comparison counts: some roundings to bf16, or a sum of
/// many thousand terms in float.
template <class E>
inline constexpr double tolerance = std::is_same_v<E, Bf16> ? 1e-2 : 1e-4;

template <class E>
inline constexpr double bytes_of = sizeof(E);

template <class E>
inline constexpr model::Dtype dtype_of =
    std::is_same_v<E, Bf16> ? model::Dtype::bf16 : model::Dtype::fp32;
}  // namespace minitaw::bench
