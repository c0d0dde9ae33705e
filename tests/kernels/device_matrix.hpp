#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/finite_difference.hpp"
#include "kernels/types.hpp"

namespace minitaw::test {

/// A matrix in device memory with values that a test gives and reads on the host.
template <class E = float>
class DeviceMatrix {
public:
  DeviceMatrix(std::int64_t rows, std::int64_t cols, const Doubles& values) : DeviceMatrix(rows, cols) {
    auto host = Kokkos::create_mirror_view(view_);
    for (std::int64_t i = 0; i < rows * cols; ++i) host.data()[i] = static_cast<E>(values[i]);
    Kokkos::deep_copy(view_, host);
  }
  /// Full of NaN: what an output holds before.
  static DeviceMatrix poisoned(std::int64_t rows, std::int64_t cols) {
    return DeviceMatrix(rows, cols, Doubles(rows * cols, std::numeric_limits<double>::quiet_NaN()));
  }

  [[nodiscard]] kernels::Matrix<E> matrix() const {
    return kernels::Matrix<E>(view_.data(), view_.extent(0), view_.extent(1));
  }
  [[nodiscard]] kernels::Vector<E> vector() const { return kernels::Vector<E>(view_.data(), view_.size()); }
  [[nodiscard]] Doubles values() const {
    const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), view_);
    return {host.data(), host.data() + host.size()};
  }

private:
  DeviceMatrix(std::int64_t rows, std::int64_t cols)
      : view_(Kokkos::view_alloc("test matrix", Kokkos::WithoutInitializing), rows, cols) {}
  Kokkos::View<E**, Kokkos::LayoutRight, kernels::MemorySpace> view_;
};

inline Doubles rounded(Doubles values) {
  for (double& value : values) value = static_cast<float>(value);
  return values;
}

/// Random inputs that fp32 holds exactly, so that only the kernel's own rounding is compared.
inline Doubles random_floats(std::int64_t count, unsigned seed, double scale = 1) {
  return rounded(random_doubles(count, seed, scale));
}

/// ||a - b|| / ||b||; infinite if anything is not a number.
inline double relative_error(const Doubles& a, const Doubles& b) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  if (a.size() != b.size() || !std::isfinite(difference)) return std::numeric_limits<double>::infinity();
  return difference == 0 ? 0 : std::sqrt(difference / norm);
}

inline void expect_close(const Doubles& a, const Doubles& b, double tolerance = 1e-5) {
  const double error = relative_error(a, b);
  EXPECT_LT(error, tolerance);
  ::testing::Test::RecordProperty("relative_error", std::to_string(error * 1e9) + "e-9");
}

}  // namespace minitaw::test
