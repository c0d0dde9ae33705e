// SPDX-License-Identifier: BSD-3-Clause
// The matrix product of this build and the portable one against plain double-precision loops: all
// types, all operations, odd sizes, unaligned addresses, poisoned outputs.
#include "kernels/detail/backends.hpp"
#include "kernels/device_matrix.hpp"
#include "kernels/kernels.hpp"

namespace minitaw::kernels {
namespace {
using test::Doubles, test::exec, test::expect_close;

struct Size {
  int m, n, k, shift = 0;
};

const std::vector<Size> sizes = {{1, 1, 1},
    {3, 5, 7},
    {65, 63, 129},
    {2, 200, 33},
    {24, 40, 8, 1},
    {136, 1, 41, 3},
    {5, 1030, 3},
    {130, 72, 499}};

template <class C, class E>
struct Types {
  using Result = C;
  using Element = E;
};

template <class T>
class Matmul : public ::testing::Test {
protected:
  using C = typename T::Result;
  using E = typename T::Element;
  using Function = void (*)(
      const ExecutionSpace&, Matrix<C>, const Factor<E>&, const Factor<E>&, float);

  static Doubles product(
      const Doubles& a, bool turn_a, const Doubles& b, bool turn_b, const Size& z) {
    Doubles c(z.m * z.n, 0);
    for (int i = 0; i < z.m; ++i)
      for (int l = 0; l < z.k; ++l) {
        const double left = turn_a ? a[l * z.m + i] : a[i * z.k + l];
        for (int j = 0; j < z.n; ++j)
          c[i * z.n + j] += left * (turn_b ? b[j * z.k + l] : b[l * z.n + j]);
      }
    return c;
  }

  static void check(Function matmul, const Size& z, bool turn_a, bool turn_b) {
    SCOPED_TRACE(std::to_string(z.m) + " x " + std::to_string(z.n) + " x " + std::to_string(z.k) +
                 " + " + std::to_string(z.shift) + (turn_a ? " t" : " n") + (turn_b ? "t" : "n"));
    const Doubles a = test::random_values<E>(z.m * z.k, 1),
                  b = test::random_values<E>(z.k * z.n, 2),
                  before = test::random_values<C>(z.m * z.n, 3);
    const test::DeviceMatrix<E> left(turn_a ? z.k : z.m, turn_a ? z.m : z.k, a, z.shift),
        right(turn_b ? z.n : z.k, turn_b ? z.k : z.n, b, z.shift);
    const auto c = test::DeviceMatrix<C>::poisoned(z.m, z.n, z.shift);
    const test::DeviceMatrix<C> sum(z.m, z.n, before, z.shift);
    test::Launch launch;
    const auto into = [&](const test::DeviceMatrix<C>& result, float beta) {
      launch([&] {
        matmul(exec(), result.matrix(), {left.matrix(), turn_a}, {right.matrix(), turn_b}, beta);
      });
      return result.values();
    };
    const Doubles first = into(c, 0);
    EXPECT_EQ(into(c, 0), first);
    into(sum, 1);
    Doubles expected = product(a, turn_a, b, turn_b, z);
    expect_close(c.values(), expected, test::tolerance<C>);
    for (std::size_t i = 0; i < expected.size(); ++i)
      expected[i] += before[i];
    expect_close(sum.values(), expected, test::tolerance<C>);
  }

  static void check_all(Function matmul) {
    prepare(exec());
    for (const Size& z : sizes)
      for (const bool turn_a : {false, true})
        for (const bool turn_b : {false, true})
          check(matmul, z, turn_a, turn_b);
  }
};

using AllTypes = ::testing::Types<Types<float, float>, Types<Bf16, Bf16>, Types<float, Bf16>>;
TYPED_TEST_SUITE(Matmul, AllTypes);

TYPED_TEST(Matmul, OfThisBuild) {
  this->check_all(&matmul<typename TypeParam::Result, typename TypeParam::Element>);
}

TYPED_TEST(Matmul, Portable) {
  this->check_all(
      &detail::portable::matmul<typename TypeParam::Result, typename TypeParam::Element>);
}

}  // namespace
}  // namespace minitaw::kernels
