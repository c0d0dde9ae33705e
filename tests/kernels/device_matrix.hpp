// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <cstdlib>
#include <limits>
#include "kernels/finite_difference.hpp"
#include "kernels/kernels.hpp"
#include "kokkos_listener.hpp"

namespace minitaw::test {
/// Whether a test leaves out so many elements or scores: with MINITAW_SMALL_SHAPES=1
/// (scripts/gpu) large ones.
inline bool left_out(std::int64_t size) {
  return size > 25'000 && std::getenv("MINITAW_SMALL_SHAPES") != nullptr;
}

inline kernels::ExecutionSpace exec() {
  return {};
}

/// A matrix in device memory that a test fills and reads on the host, `shift` elements after an
/// aligned address.
template <class E = float>
class DeviceMatrix {
public:
  DeviceMatrix(std::int64_t rows, std::int64_t cols, const Doubles& values, int shift = 0)
      : memory_(
            Kokkos::view_alloc("test matrix", Kokkos::WithoutInitializing), rows * cols + shift),
        rows_(rows),
        cols_(cols),
        shift_(shift) {
    const auto host = Kokkos::create_mirror_view(memory_);
    for (std::int64_t i = 0; i < rows * cols; ++i)
      host(shift + i) = from_float<E>(static_cast<float>(values[i]));
    Kokkos::deep_copy(memory_, host);
  }

  /// Full of NaN: what an output holds before.
  static DeviceMatrix poisoned(std::int64_t rows, std::int64_t cols, int shift = 0) {
    return DeviceMatrix(
        rows, cols, Doubles(rows * cols, std::numeric_limits<double>::quiet_NaN()), shift);
  }

  [[nodiscard]] kernels::Matrix<E> matrix() const {
    return kernels::Matrix<E>(memory_.data() + shift_, rows_, cols_);
  }

  [[nodiscard]] kernels::Vector<E> vector() const {
    return kernels::Vector<E>(memory_.data() + shift_, rows_ * cols_);
  }

  [[nodiscard]] Doubles values() const {
    const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), memory_);
    Doubles values(rows_ * cols_);
    for (std::int64_t i = 0; i < rows_ * cols_; ++i)
      values[i] = to_float(host(shift_ + i));
    return values;
  }

private:
  Kokkos::View<E*, kernels::MemorySpace> memory_;
  std::int64_t rows_, cols_;
  int shift_;
};

template <class E>
Doubles rounded(Doubles values) {
  for (double& value : values)
    value = to_float(from_float<E>(static_cast<float>(value)));
  return values;
}

/// Random inputs that E holds exactly, so that only the kernel's own rounding is compared.
template <class E = float>
Doubles random_values(std::int64_t count, unsigned seed, double scale = 1) {
  return rounded<E>(random_doubles(count, seed, scale));
}

inline Doubles random_floats(std::int64_t count, unsigned seed, double scale = 1) {
  return random_values<float>(count, seed, scale);
}

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
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    ASSERT_TRUE(a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) << i;
}

/// Runs kernels and waits for them. From the second call on they neither fence, nor allocate, nor
/// copy.
class Launch {
public:
  void operator()(const auto& kernels) {
    {
      const KokkosListener listener;
      kernels();
      EXPECT_EQ(warm_ ? listener.seen() : KokkosListener::Seen(), KokkosListener::Seen());
      EXPECT_EQ(warm_ ? listener.copies() : 0, 0);
    }
    warm_ = true;
    kernels::ExecutionSpace().fence();
  }

private:
  bool warm_ = false;
};
}  // namespace minitaw::test
