// Every layer but attention against its plain double-precision version, over odd shapes, into poisoned
// outputs.
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "kernels/adamw.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/device_matrix.hpp"
#include "kernels/embedding.hpp"
#include "kernels/linear.hpp"
#include "kernels/reference/adamw.hpp"
#include "kernels/reference/cross_entropy.hpp"
#include "kernels/reference/embedding.hpp"
#include "kernels/reference/linear.hpp"
#include "kernels/reference/rmsnorm.hpp"
#include "kernels/reference/rope.hpp"
#include "kernels/reference/swiglu.hpp"
#include "kernels/rmsnorm.hpp"
#include "kernels/rope.hpp"
#include "kernels/swiglu.hpp"

namespace minitaw::kernels {
namespace {

using test::Doubles;
using test::expect_close;
using test::random_floats;
using Device = test::DeviceMatrix<float>;

ExecutionSpace exec() { return {}; }

/// Rows and columns of the cases.
struct Size {
  int rows, width;
};
const std::vector<Size> sizes = {{1, 1},   {1, 2},     {3, 16},  {5, 17},  {33, 31},
                                 {64, 96}, {257, 130}, {700, 5}, {2, 4099}};

class Layers : public ::testing::TestWithParam<Size> {
protected:
  int rows = GetParam().rows, width = GetParam().width;
};
INSTANTIATE_TEST_SUITE_P(Sizes, Layers, ::testing::ValuesIn(sizes));

TEST_P(Layers, RmsNormForward) {
  const Doubles x = random_floats(rows * width, 1), gain = random_floats(width, 2);
  Doubles expected(rows * width);
  reference::rmsnorm_forward(expected, x, gain, rows, width);
  const Device in(rows, width, x), weight(width, 1, gain);
  const Device y = Device::poisoned(rows, width), copy = Device::poisoned(rows, width),
               rstd = Device::poisoned(rows, 1), again = Device::poisoned(rows, width);
  rmsnorm_forward(exec(), y.matrix(), rstd.vector(), copy.matrix(), in.matrix(), weight.vector());
  rmsnorm_rebuild(exec(), again.matrix(), in.matrix(), rstd.vector(), weight.vector());
  exec().fence();
  expect_close(y.values(), expected);
  EXPECT_EQ(copy.values(), x);
  EXPECT_EQ(again.values(), y.values());
}

TEST_P(Layers, RmsNormBackward) {
  const Doubles x = random_floats(rows * width, 1), gain = random_floats(width, 2),
                dy = random_floats(rows * width, 3), residual = random_floats(rows * width, 4),
                before = random_floats(width, 5);
  Doubles expected(rows * width), expected_gain(width, 0);
  reference::rmsnorm_backward(expected, expected_gain, dy, x, gain, rows, width);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += residual[i];

  const Device in(rows, width, x), weight(width, 1, gain), slope(rows, width, dy),
      through(rows, width, residual);
  const Device y = Device::poisoned(rows, width), rstd = Device::poisoned(rows, 1),
               dx = Device::poisoned(rows, width), partial = Device::poisoned(std::min(rows, 7), width),
               dgain = Device::poisoned(width, 1);
  const Device added(width, 1, before);
  rmsnorm_forward(exec(), y.matrix(), rstd.vector(), {}, in.matrix(), weight.vector());
  rmsnorm_backward(exec(), dx.matrix(), partial.matrix(), slope.matrix(), through.matrix(), in.matrix(),
                   rstd.vector(), weight.vector());
  rmsnorm_backward_gain(exec(), dgain.vector(), partial.matrix(), false);
  rmsnorm_backward_gain(exec(), added.vector(), partial.matrix(), true);
  // in place over dy, without a residual
  rmsnorm_backward(exec(), slope.matrix(), partial.matrix(), slope.matrix(), {}, in.matrix(), rstd.vector(),
                   weight.vector());
  exec().fence();
  expect_close(dx.values(), expected);
  expect_close(dgain.values(), expected_gain);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] -= residual[i];
  if (width > 2) expect_close(slope.values(), expected);  // of one element nothing but rounding is left
  for (int i = 0; i < width; ++i) expected_gain[i] += before[i];
  expect_close(added.values(), expected_gain);
}

TEST_P(Layers, SwiGlu) {
  const Doubles x = random_floats(rows * 2 * width, 1, 8), dy = random_floats(rows * width, 2);
  Doubles expected(rows * width), expected_dx(rows * 2 * width);
  reference::swiglu_forward(expected, x, rows, width);
  reference::swiglu_backward(expected_dx, dy, x, rows, width);
  const Device in(rows, 2 * width, x), slope(rows, width, dy);
  const Device y = Device::poisoned(rows, width), dx = Device::poisoned(rows, 2 * width),
               again = Device::poisoned(rows, width);
  swiglu_forward(exec(), y.matrix(), in.matrix());
  swiglu_backward(exec(), dx.matrix(), again.matrix(), slope.matrix(), in.matrix());
  swiglu_backward(exec(), in.matrix(), slope.matrix(), slope.matrix(), in.matrix());  // in place
  exec().fence();
  expect_close(y.values(), expected);
  expect_close(dx.values(), expected_dx);
  expect_close(again.values(), expected);
  EXPECT_EQ(in.values(), dx.values());
  EXPECT_EQ(slope.values(), again.values());
}

TEST_P(Layers, Embedding) {
  const int vocab = 7;
  std::mt19937 random(3);
  std::vector<std::int32_t> tokens(rows);
  for (auto& token : tokens) token = static_cast<std::int32_t>(random() % vocab);
  std::vector<std::int32_t> order, segments{0};
  for (int v = 0; v < vocab; ++v) {
    for (int r = 0; r < rows; ++r)
      if (tokens[r] == v) order.push_back(r);
    if (static_cast<int>(order.size()) > segments.back()) segments.push_back(static_cast<int>(order.size()));
  }
  const auto integers = [](const std::vector<std::int32_t>& v) {
    return test::DeviceMatrix<std::int32_t>(static_cast<std::int64_t>(v.size()), 1,
                                            Doubles(v.begin(), v.end()));
  };
  const auto device_tokens = integers(tokens), device_order = integers(order),
             device_segments = integers(segments);

  const Doubles table = random_floats(vocab * width, 1), dx = random_floats(rows * width, 2);
  Doubles expected(rows * width), expected_table = table;
  reference::embedding_forward(expected, table, tokens, width);
  reference::embedding_backward(expected_table, dx, tokens, width);
  const Device weights(vocab, width, table), slope(rows, width, dx), x = Device::poisoned(rows, width);
  embedding_forward(exec(), x.matrix(), weights.matrix(), device_tokens.vector());
  embedding_backward<float>(exec(), weights.matrix(), slope.matrix(), device_tokens.vector(),
                            device_order.vector(), device_segments.vector());
  exec().fence();
  EXPECT_EQ(x.values(), expected);
  expect_close(weights.values(), expected_table);
}

TEST_P(Layers, CrossEntropy) {
  std::mt19937 random(3);
  std::vector<std::int32_t> targets(rows);
  for (auto& target : targets) target = static_cast<std::int32_t>(random() % width);
  const test::DeviceMatrix<std::int32_t> device_targets(rows, 1, Doubles(targets.begin(), targets.end()));
  const Doubles x = random_floats(rows * width, 1, 30);
  Doubles expected(x.size());
  reference::cross_entropy_backward(expected, x, targets, 0.125, width);
  const double expected_loss = reference::cross_entropy_forward(x, targets, width);

  const Device logits(rows, width, x);
  const auto losses = test::DeviceMatrix<double>::poisoned(rows, 1);
  const test::DeviceMatrix<double> loss(1, 1, {1.5});
  cross_entropy(exec(), losses.vector(), logits.matrix(), device_targets.vector(), 0.125F);
  sum_losses(exec(), loss.matrix().data(), losses.vector(), 0.125);
  exec().fence();
  if (width > 1) expect_close(logits.values(), expected);
  EXPECT_NEAR(loss.values()[0], 1.5 + 0.125 * expected_loss, 1e-6 * (1 + expected_loss));
}

TEST_P(Layers, Linear) {
  const int out = 1 + rows * 7 % 23;
  const Doubles x = random_floats(rows * width, 1), w = random_floats(out * width, 2),
                dy = random_floats(rows * out, 3), dw_before = random_floats(out * width, 4);
  Doubles y(rows * out), dx(rows * width), dw(out * width, 0);
  reference::linear_forward(y, x, w, rows, out, width);
  reference::linear_backward(dx, dw, dy, x, w, rows, out, width);
  const Device in(rows, width, x), weight(out, width, w), slope(rows, out, dy);
  const Device got_y = Device::poisoned(rows, out), got_dx = Device::poisoned(rows, width),
               got_dw = Device::poisoned(out, width), more_dw(out, width, dw_before), more_y(rows, out, dy);
  linear_forward(exec(), got_y.matrix(), in.matrix(), weight.matrix());
  linear_forward(exec(), more_y.matrix(), in.matrix(), weight.matrix(), 1);
  linear_backward_input(exec(), got_dx.matrix(), slope.matrix(), weight.matrix());
  linear_backward_weight<float, float>(exec(), got_dw.matrix(), slope.matrix(), in.matrix(), false);
  linear_backward_weight<float, float>(exec(), more_dw.matrix(), slope.matrix(), in.matrix(), true);
  exec().fence();
  expect_close(got_y.values(), y);
  expect_close(got_dx.values(), dx);
  expect_close(got_dw.values(), dw);
  for (std::size_t i = 0; i < dw.size(); ++i) dw[i] += dw_before[i];
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += dy[i];
  expect_close(more_dw.values(), dw);
  expect_close(more_y.values(), y);
}

TEST(Rope, TurnsQueriesAndKeysOnly) {
  for (const int head_dim : {2, 6, 64}) {
    const int batch = 2, seq = 19, heads = 3, kv_heads = 1, width = (heads + 2 * kv_heads) * head_dim;
    const Doubles x = random_floats(batch * seq * width, 1);
    Doubles expected = x;
    reference::rope(expected, batch, seq, heads + kv_heads, head_dim, width, 1);
    const Device table = Device::poisoned(seq, head_dim), qkv(batch * seq, width, x);
    rope_table(exec(), table.matrix());
    rope_forward(exec(), qkv.matrix(), table.matrix(), heads + kv_heads);
    exec().fence();
    expect_close(qkv.values(), expected, 1e-6);
    rope_backward(exec(), qkv.matrix(), table.matrix(), heads + kv_heads);
    exec().fence();
    expect_close(qkv.values(), x, 1e-6);
  }
}

TEST(Rope, KeepsItsAnglesFarIntoALongSequence) {
  const int seq = 131072, head_dim = 128;
  const Device table = Device::poisoned(seq, head_dim);
  rope_table(exec(), table.matrix());
  exec().fence();
  const Doubles got = table.values();
  for (int i = 0; i < head_dim / 2; ++i) {
    const double angle = 131071 * std::pow(10000.0, -2.0 * i / head_dim);
    EXPECT_NEAR(got[131071 * std::int64_t{head_dim} + 2 * i], std::cos(angle), 1e-7);
    EXPECT_NEAR(got[131071 * std::int64_t{head_dim} + 2 * i + 1], std::sin(angle), 1e-7);
  }
}

TEST(AdamW, FollowsTheReferenceOverSteps) {
  const int count = 1003;
  const Doubles start = random_floats(count, 1);
  Doubles w = start, m1(count, 0), m2(count, 0);
  const Device weights(count, 1, start), moment1(count, 1, m1), moment2(count, 1, m2);
  const float beta1 = 0.9F, beta2 = 0.95F, rate = 1e-3F, epsilon = 1e-8F, decay = 0.1F;
  for (int step = 1; step <= 5; ++step) {
    const Doubles gradient = random_floats(count, 10 + step, 1e-3);
    reference::adamw(w, m1, m2, gradient, {rate, beta1, beta2, epsilon, decay}, step);
    const Device slope(count, 1, gradient);
    adamw(exec(), weights.vector(), weights.vector(), moment1.vector(), moment2.vector(), slope.vector(),
          {rate, beta1, beta2, epsilon, decay, static_cast<float>(1 / (1 - std::pow(double{beta1}, step))),
           static_cast<float>(1 / (1 - std::pow(double{beta2}, step)))});
    exec().fence();
  }
  expect_close(weights.values(), w, 1e-6);
  expect_close(moment1.values(), m1, 1e-6);
  expect_close(moment2.values(), m2, 1e-6);
}

}  // namespace
}  // namespace minitaw::kernels
