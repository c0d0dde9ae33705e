// The matrix product of this build and the portable one against plain double-precision loops: all types, all
// operations, odd sizes, unaligned addresses, poisoned outputs.
#include <gtest/gtest.h>

#include "kernels/detail/backends.hpp"
#include "kernels/device_matrix.hpp"
#include "kernels/kernels.hpp"
#include "kernels/reference.hpp"

namespace minitaw::kernels {
namespace {

using test::Doubles;
using test::expect_close;

ExecutionSpace exec() { return {}; }

struct Size {
  int m, n, k, shift = 0;
};
const std::vector<Size> sizes = {{1, 1, 1},    {3, 5, 7},      {64, 64, 16}, {65, 63, 129},   {2, 200, 33},
                                 {96, 72, 64}, {24, 40, 8, 1}, {1, 64, 513}, {136, 1, 41, 3}, {5, 1030, 3}};

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
  using Function = void (*)(const ExecutionSpace&, Matrix<C>, Matrix<const E>, Op, Matrix<const E>, Op,
                            float);

  static Doubles product(const Doubles& a, Op op_a, const Doubles& b, Op op_b, const Size& z) {
    Doubles c(z.m * z.n, 0);
    for (int i = 0; i < z.m; ++i)
      for (int l = 0; l < z.k; ++l) {
        const double left = op_a == Op::plain ? a[i * z.k + l] : a[l * z.m + i];
        for (int j = 0; j < z.n; ++j)
          c[i * z.n + j] += left * (op_b == Op::plain ? b[l * z.n + j] : b[j * z.k + l]);
      }
    return c;
  }

  static void check(Function matmul, const Size& z, Op op_a, Op op_b) {
    SCOPED_TRACE(std::to_string(z.m) + " x " + std::to_string(z.n) + " x " + std::to_string(z.k) + " + " +
                 std::to_string(z.shift) + (op_a == Op::plain ? " n" : " t") +
                 (op_b == Op::plain ? "n" : "t"));
    const bool turn_a = op_a == Op::transposed, turn_b = op_b == Op::transposed;
    const Doubles a = test::random_values<E>(z.m * z.k, 1), b = test::random_values<E>(z.k * z.n, 2),
                  before = test::random_values<C>(z.m * z.n, 3);
    const test::DeviceMatrix<E> left(turn_a ? z.k : z.m, turn_a ? z.m : z.k, a, z.shift),
        right(turn_b ? z.n : z.k, turn_b ? z.k : z.n, b, z.shift);
    const auto c = test::DeviceMatrix<C>::poisoned(z.m, z.n, z.shift);
    const test::DeviceMatrix<C> sum(z.m, z.n, before, z.shift);
    matmul(exec(), c.matrix(), left.matrix(), op_a, right.matrix(), op_b, 0);
    matmul(exec(), sum.matrix(), left.matrix(), op_a, right.matrix(), op_b, 1);
    exec().fence();
    Doubles expected = product(a, op_a, b, op_b, z);
    expect_close(c.values(), expected, test::tolerance<C>);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += before[i];
    expect_close(sum.values(), expected, test::tolerance<C>);
  }

  static void check_all(Function matmul) {
    prepare(exec());
    for (const Size& z : sizes)
      for (const Op op_a : {Op::plain, Op::transposed})
        for (const Op op_b : {Op::plain, Op::transposed}) check(matmul, z, op_a, op_b);
  }
};
using AllTypes = ::testing::Types<Types<float, float>, Types<Bf16, Bf16>, Types<float, Bf16>>;
TYPED_TEST_SUITE(Matmul, AllTypes);

TYPED_TEST(Matmul, OfThisBuild) {
  this->check_all(&matmul<typename TypeParam::Result, typename TypeParam::Element>);
}

TYPED_TEST(Matmul, Portable) {
  this->check_all(&detail::portable::matmul<typename TypeParam::Result, typename TypeParam::Element>);
}

TYPED_TEST(Matmul, GivesTheSameBitsEveryTime) {
  using C = typename TypeParam::Result;
  using E = typename TypeParam::Element;
  const int m = 130, n = 72, k = 499;
  const test::DeviceMatrix<E> a(m, k, test::random_values<E>(m * k, 1)),
      b(n, k, test::random_values<E>(n * k, 2));
  const auto c = test::DeviceMatrix<C>::poisoned(m, n);
  Doubles first;
  for (int i = 0; i < 3; ++i) {
    matmul<C, E>(exec(), c.matrix(), a.matrix(), Op::plain, b.matrix(), Op::transposed, 0);
    exec().fence();
    if (i == 0) first = c.values();
    EXPECT_EQ(c.values(), first);
  }
}

template <class E>
class Linear : public ::testing::Test {};
using Elements = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(Linear, Elements);

TYPED_TEST(Linear, ForwardAndBackward) {
  using E = TypeParam;
  using Device = test::DeviceMatrix<E>;
  const double near = test::tolerance<E>;
  for (const auto& [rows, width, out] : {std::array{1, 1, 8}, {33, 31, 2}, {64, 96, 13}, {257, 130, 5}}) {
    const Doubles x = test::random_values<E>(rows * width, 1), w = test::random_values<E>(out * width, 2),
                  dy = test::random_values<E>(rows * out, 3), before = test::random_floats(out * width, 4);
    Doubles y(rows * out), dx(rows * width), dw(out * width, 0);
    reference::linear_forward(y, x, w, rows, out, width);
    reference::linear_backward(dx, dw, dy, x, w, rows, out, width);
    const Device in(rows, width, x), weight(out, width, w), slope(rows, out, dy);
    const Device got_y = Device::poisoned(rows, out), got_dx = Device::poisoned(rows, width),
                 got_dw = Device::poisoned(out, width), more_y(rows, out, dy);
    const test::DeviceMatrix<float> total(out, width, before);
    linear_forward(exec(), got_y.matrix(), in.matrix(), weight.matrix());
    linear_forward(exec(), more_y.matrix(), in.matrix(), weight.matrix(), 1);
    linear_backward_input(exec(), got_dx.matrix(), slope.matrix(), weight.matrix());
    linear_backward_weight<E, E>(exec(), got_dw.matrix(), slope.matrix(), in.matrix(), false);
    linear_backward_weight<float, E>(exec(), total.matrix(), slope.matrix(), in.matrix(), true);
    exec().fence();
    expect_close(got_y.values(), y, near);
    expect_close(got_dx.values(), dx, near);
    expect_close(got_dw.values(), dw, near);
    for (std::size_t i = 0; i < dw.size(); ++i) dw[i] += before[i];
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += dy[i];
    expect_close(total.values(), dw);
    expect_close(more_y.values(), y, near);
  }
}

TYPED_TEST(Linear, IsQuiet) {
  using E = TypeParam;
  using Device = test::DeviceMatrix<E>;
  prepare(exec());
  for (const auto& [rows, width, out] : {std::array{33, 31, 2}, {64, 96, 128}}) {
    const Device x(rows, width, test::random_values<E>(rows * width, 1)),
        w(out, width, test::random_values<E>(out * width, 2)),
        y(rows, out, test::random_values<E>(rows * out, 3));
    const test::DeviceMatrix<float> total(out, width, test::random_floats(out * width, 4));
    test::expect_quiet("linear_forward",
                       [&] { linear_forward(exec(), y.matrix(), x.matrix(), w.matrix(), 1); });
    test::expect_quiet("linear_backward_input",
                       [&] { linear_backward_input(exec(), x.matrix(), y.matrix(), w.matrix()); });
    test::expect_quiet("linear_backward_weight", [&] {
      linear_backward_weight<float, E>(exec(), total.matrix(), y.matrix(), x.matrix(), true);
      linear_backward_weight<E, E>(exec(), w.matrix(), y.matrix(), x.matrix(), false);
    });
  }
}

}  // namespace
}  // namespace minitaw::kernels
