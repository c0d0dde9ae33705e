// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <cstdlib>
#include <gmock/gmock.h>
#include <limits>
#include <numeric>
#include <random>
#include "kernels/detail/loops.hpp"
#include "kernels/kernels.hpp"
#include "kokkos_listener.hpp"

namespace minitaw::test {
/// Whether a test leaves out so many rows or elements. With MINITAW_SMALL_SHAPES=1 (scripts/gpu)
/// large ones; teams of several threads on a host wait long for each other.
inline bool left_out(std::int64_t rows, std::int64_t size) {
  return (size > 25'000 && std::getenv("MINITAW_SMALL_SHAPES") != nullptr) ||
         (rows > 40 && kernels::detail::threads_on_host > 1);
}

inline kernels::ExecutionSpace exec() {
  return {};
}

using Doubles = std::vector<double>;

template <class E>
inline const std::string type_name = std::is_same_v<E, Bf16> ? "bf16" : "float";

template <class E>
Doubles rounded(Doubles values) {
  for (double& value : values)
    value = to_float(from_float<E>(static_cast<float>(value)));
  return values;
}

/// Random inputs that E holds exactly, so that only the kernel's own rounding is compared.
template <class E = float>
Doubles random_values(std::int64_t count, unsigned seed, double scale = 1) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(-scale, scale);
  Doubles values(count);
  for (double& value : values)
    value = uniform(random);
  return rounded<E>(values);
}

inline double dot(const Doubles& a, const Doubles& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

inline Doubles sum_of(Doubles a, const Doubles& b) {
  std::ranges::transform(a, b, a.begin(), std::plus());
  return a;
}

inline constexpr double nan = std::numeric_limits<double>::quiet_NaN();

/// A matrix in device memory that a test fills and reads on the host, `shift` elements after an
/// aligned address.
template <class E = float>
class DeviceMatrix {
public:
  DeviceMatrix(std::int64_t rows, std::int64_t cols, const Doubles& values, int shift = 0)
      : all_("test matrix", rows * cols + shift),
        own_(all_.data() + shift, rows, cols) {
    const auto host = Kokkos::create_mirror_view(all_);
    for (std::size_t i = 0; i < own_.size(); ++i)
      host(shift + i) = from_float<E>(static_cast<float>(values[i]));
    Kokkos::deep_copy(all_, host);
  }

  explicit DeviceMatrix(const auto& column)
      : DeviceMatrix(std::ssize(column), 1, Doubles(column.begin(), column.end())) {}

  /// Full of NaN: what an output holds before.
  static DeviceMatrix poisoned(std::int64_t rows, std::int64_t cols = 1, int shift = 0) {
    return {rows, cols, Doubles(rows * cols, nan), shift};
  }

  [[nodiscard]] kernels::Matrix<E> matrix() const { return own_; }

  [[nodiscard]] kernels::Vector<E> vector() const {
    return kernels::Vector<E>(own_.data(), own_.size());
  }

  [[nodiscard]] Doubles values() const {
    const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), all_);
    Doubles values;
    for (std::size_t i = all_.size() - own_.size(); i < all_.size(); ++i)
      values.push_back(to_float(host(i)));
    return values;
  }

private:
  Kokkos::View<E*, kernels::MemorySpace> all_;
  kernels::Matrix<E> own_;
};

/// What a kernel may be off by when its results are of type E: sums are float, whatever E is.
template <class E>
inline constexpr double tolerance = std::is_same_v<E, Bf16> ? 1e-2 : 1e-5;

/// ||a - b|| / ||b||; infinite if anything is not a number.
inline double relative_error(const Doubles& a, const Doubles& b) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  if (a.size() != b.size() || !std::isfinite(difference))
    return std::numeric_limits<double>::infinity();
  return difference == 0 ? 0 : std::sqrt(difference / norm);
}

inline void expect_close(const Doubles& a, const Doubles& b, double tolerance = 1e-5) {
  EXPECT_LT(relative_error(a, b), tolerance);
}

/// What is NaN in one is NaN in the other.
inline void expect_same(const Doubles& a, const Doubles& b) {
  EXPECT_THAT(a, testing::Pointwise(testing::NanSensitiveDoubleNear(0), b));
}

/// Runs kernels and waits for them. From the second call on they neither fence, nor allocate, nor
/// copy.
class Launch {
public:
  void operator()(const auto& kernels) {
    {
      const KokkosListener listener;
      kernels();
      if (std::exchange(warm_, true)) {
        EXPECT_EQ(listener.seen(), KokkosListener::Seen());
        EXPECT_EQ(listener.copies(), 0);
      }
    }
    kernels::ExecutionSpace().fence();
  }

private:
  bool warm_ = false;
};
}  // namespace minitaw::test
