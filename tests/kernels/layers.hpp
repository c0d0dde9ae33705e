// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "kernels/detail/loops.hpp"
#include "kernels/device_matrix.hpp"
#include "kernels/kernels.hpp"
#include "kernels/reference.hpp"

/// Every kernel but attention and the matrix product, in both types, with and without packs.
namespace minitaw::kernels {
using test::Doubles, test::exec, test::expect_close;
using Floats = test::DeviceMatrix<float>;

/// Rows and columns, and how many elements after an aligned address matrices begin.
struct Size {
  int rows, width, shift = 0;
};

/// Widths that no pack divides, that threads hold 1, 2 or 4 packs of, and too long ones, on a host
/// and a device.
inline const std::vector<Size> sizes = {{1, 1},
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
    return std::string(std::is_same_v<typename C::E, Bf16> ? "bf16" : "float") +
           (C::packs ? "_packs" : "");
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

  static Doubles random(std::int64_t count, unsigned seed, double scale = 1) {
    return test::random_values<E>(count, seed, scale);
  }

  static Device<C> poisoned(int rows, int cols, int shift = 0) {
    return Device<C>::poisoned(rows, cols, shift);
  }

  static constexpr double near = test::tolerance<E>;

  /// More threads than cores wait long for each other: teams of several on a host leave out many
  /// rows.
  static void for_sizes(const auto& run) {
    for (const Size& z : sizes) {
      if (test::left_out(std::int64_t{z.rows} * z.width))
        continue;
      if (detail::threads_on_host > 1 && z.rows > 40)
        continue;
      SCOPED_TRACE(std::to_string(z.rows) + " x " + std::to_string(z.width) + " + " +
                   std::to_string(z.shift));
      run(z.rows, z.width, z.shift);
    }
  }

  test::Launch launch_;
};
}  // namespace minitaw::kernels
