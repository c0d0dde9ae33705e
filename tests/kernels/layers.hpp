// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <array>
#include "kernels/detail/loops.hpp"
#include "kernels/device_matrix.hpp"
#include "kernels/kernels.hpp"
#include "kernels/reference.hpp"

/// Every kernel but attention and the matrix product, in both types, with and without packs.
namespace minitaw::kernels {
using test::Doubles, test::exec, test::expect_close, test::nan;
using Floats = test::DeviceMatrix<float>;
using Indices = test::DeviceMatrix<std::int32_t>;

/// Rows, columns, and how many elements after an aligned address matrices begin. Widths that no
/// pack divides, that threads hold 1, 2 or 4 packs of, and too long ones, on a host and a device.
inline const std::vector<std::array<int, 3>> sizes = {{1, 1},
    {1, 2},
    {5, 17},
    {33, 31},
    {257, 130},
    {700, 5},
    {2, 4099},
    {7, 8},
    {9, 32},
    {6, 40},
    {3, 2048},
    {2, 16384},
    {5, 8, 1},
    {3, 4096, 1},
    {300, 24, 2},
    {3, 96}};

/// A type of elements, and whether the loops over packs run, which a device always does.
template <class Element, bool in_packs>
struct LayerCase {
  using E = Element;
  static constexpr bool packs = in_packs;
};

using Cases = ::testing::Types<LayerCase<float, false>,
    LayerCase<Bf16, false>,
    LayerCase<float, true>,
    LayerCase<Bf16, true>>;
template <class C>
using Device = test::DeviceMatrix<typename C::E>;

struct CaseName {
  template <class C>
  static std::string GetName(int) {
    return test::type_name<typename C::E> + (C::packs ? "_packs" : "");
  }
};

template <class C>
class Layers : public ::testing::Test {
protected:
  using E = typename C::E;

  void SetUp() override {
    if (!on_host && C::packs)
      GTEST_SKIP() << "a device runs in packs anyway";
    detail::packs_on_host = C::packs;
    prepare(exec());
  }

  void TearDown() override { detail::packs_on_host = false; }

  /// A matrix of random numbers, each of its own.
  Device<C> random(int rows, int cols, double scale = 1) {
    return {rows, cols, test::random_values<E>(std::int64_t{rows} * cols, ++seed_, scale), shift_};
  }

  [[nodiscard]] Device<C> poisoned(int rows, int cols) const {
    return Device<C>::poisoned(rows, cols, shift_);
  }

  static constexpr double near = test::tolerance<E>;

  void for_sizes(const auto& run) {
    for (const auto& [rows, width, shift] : sizes) {
      if (test::left_out(rows, std::int64_t{rows} * width))
        continue;
      SCOPED_TRACE(testing::PrintToString(std::tuple(rows, width, shift)));
      shift_ = shift;
      run(rows, width);
    }
  }

  test::Launch launch_;
  int shift_ = 0;

private:
  unsigned seed_ = 0;
};
}  // namespace minitaw::kernels
