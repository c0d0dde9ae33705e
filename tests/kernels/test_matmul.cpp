// SPDX-License-Identifier: BSD-3-Clause
// The matrix product of this build and the portable one against plain double-precision loops: all
// types, all operations, odd sizes, unaligned addresses, poisoned outputs.
#include <array>
#include "kernels/detail/backends.hpp"
#include "kernels/device_matrix.hpp"

namespace minitaw::kernels {
namespace {
using test::Doubles, test::exec, test::expect_close;

/// m, n, k, and how many elements after an aligned address matrices begin.
const std::vector<std::array<int, 4>> sizes = {{1, 1, 1},
    {3, 5, 7},
    {65, 63, 129},
    {2, 200, 33},
    {24, 40, 8, 1},
    {136, 1, 41, 3},
    {5, 1030, 3},
    {130, 72, 499}};

template <class T>
struct Matmul : ::testing::Test {
  using C = typename T::first_type;
  using E = typename T::second_type;
  using Function = void (*)(
      const ExecutionSpace&, Matrix<C>, const Factor<E>&, const Factor<E>&, float);

  static void check(Function matmul, int m, int n, int k, int shift, bool turn_a, bool turn_b) {
    const Doubles a = test::random_values<E>(m * k, 1), b = test::random_values<E>(k * n, 2),
                  before = test::random_values<C>(m * n, 3);
    Doubles product(m * n, 0);
    for (int i = 0; i < m; ++i)
      for (int l = 0; l < k; ++l)
        for (int j = 0; j < n; ++j)
          product[i * n + j] +=
              a[turn_a ? l * m + i : i * k + l] * b[turn_b ? j * k + l : l * n + j];
    const test::DeviceMatrix<E> left(turn_a ? k : m, turn_a ? m : k, a, shift),
        right(turn_b ? n : k, turn_b ? k : n, b, shift);
    const test::DeviceMatrix<C> sum(m, n, before, shift), c = sum.poisoned(m, n, shift);
    test::Launch launch;
    const auto into = [&](const test::DeviceMatrix<C>& result, float beta) {
      launch([&] {
        matmul(exec(), result.matrix(), {left.matrix(), turn_a}, {right.matrix(), turn_b}, beta);
      });
      return result.values();
    };
    const Doubles first = into(c, 0);
    EXPECT_EQ(into(c, 0), first);
    expect_close(first, product, test::tolerance<C>);
    expect_close(into(sum, 1), test::sum_of(product, before), test::tolerance<C>);
  }

  static void check_all(Function matmul) {
    prepare(exec());
    for (const auto& [m, n, k, shift] : sizes)
      for (const int turns : {0, 1, 2, 3}) {
        SCOPED_TRACE(testing::PrintToString(std::tuple(m, n, k, shift, turns)));
        check(matmul, m, n, k, shift, turns > 1, turns % 2 == 1);
      }
  }
};

using Types =
    ::testing::Types<std::pair<float, float>, std::pair<Bf16, Bf16>, std::pair<float, Bf16>>;
TYPED_TEST_SUITE(Matmul, Types);

TYPED_TEST(Matmul, OfThisBuild) {
  this->check_all(&matmul<typename TestFixture::C, typename TestFixture::E>);
}

TYPED_TEST(Matmul, Portable) {
  this->check_all(&detail::portable::matmul<typename TestFixture::C, typename TestFixture::E>);
}
}  // namespace
}  // namespace minitaw::kernels
