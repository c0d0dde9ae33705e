// The plain double-precision kernels against central finite differences of <output, dy>.
#include <gtest/gtest.h>

#include "kernels/finite_difference.hpp"
#include "kernels/reference.hpp"

namespace minitaw::kernels::reference {
namespace {

using test::Doubles;
using test::expect_gradient;
using test::random_doubles;

/// dx against the slope of <forward(x), dy>, where forward(y, x) computes y.
template <class Forward>
void expect_backward(const Doubles& x, const Doubles& dx, const Doubles& dy, const Forward& forward) {
  const auto f = [&](const Doubles& v) {
    Doubles y(dy.size());
    forward(y, v);
    return test::dot(y, dy);
  };
  expect_gradient(f, x, dx);
}

TEST(Reference, Linear) {
  const std::int64_t rows = 3, out = 5, in = 4;
  const Doubles x = random_doubles(rows * in, 1), w = random_doubles(out * in, 2),
                dy = random_doubles(rows * out, 3);
  Doubles dx(x.size(), NAN), dw(w.size(), 0);
  linear_backward(dx, dw, dy, x, w, rows, out, in);
  expect_backward(x, dx, dy, [&](Out y, In v) { linear_forward(y, v, w, rows, out, in); });
  expect_backward(w, dw, dy, [&](Out y, In v) { linear_forward(y, x, v, rows, out, in); });
}

TEST(Reference, RmsNorm) {
  const std::int64_t rows = 3, width = 7;
  const Doubles x = random_doubles(rows * width, 1), gain = random_doubles(width, 2),
                dy = random_doubles(rows * width, 3);
  Doubles dx(x.size(), NAN), dgain(width, 0);
  rmsnorm_backward(dx, dgain, dy, x, gain, rows, width);
  expect_backward(x, dx, dy, [&](Out y, In v) { rmsnorm_forward(y, v, gain, rows, width); });
  expect_backward(gain, dgain, dy, [&](Out y, In v) { rmsnorm_forward(y, x, v, rows, width); });
}

TEST(Reference, RmsNormOfKnownRow) {
  Doubles y(2);
  rmsnorm_forward(y, Doubles{3, 4}, Doubles{1, 2}, 1, 2);
  EXPECT_NEAR(y[0], 3 / std::sqrt(12.5 + 1e-5), 1e-15);
  EXPECT_NEAR(y[1], 8 / std::sqrt(12.5 + 1e-5), 1e-15);
}

TEST(Reference, RopeTurnsPairsByPosition) {
  Doubles x = {1, 0, 0, 1, /* second position */ 1, 0, 0, 1};
  rope(x, 1, 2, 1, 4, 4, 1);
  EXPECT_EQ((Doubles{x[0], x[1], x[2], x[3]}), (Doubles{1, 0, 0, 1}));
  EXPECT_NEAR(x[4], std::cos(1.0), 1e-15);
  EXPECT_NEAR(x[5], std::sin(1.0), 1e-15);
  EXPECT_NEAR(x[6], -std::sin(0.01), 1e-15);
  EXPECT_NEAR(x[7], std::cos(0.01), 1e-15);
}

TEST(Reference, RopeBackwardIsTheTranspose) {
  const Doubles x = random_doubles(2 * 3 * 14, 1);
  Doubles turned = x, dy = random_doubles(2 * 3 * 14, 2), dx = dy;
  rope(turned, 2, 3, 2, 6, 14, 1);
  rope(dx, 2, 3, 2, 6, 14, -1);
  EXPECT_NEAR(test::dot(turned, dy), test::dot(x, dx), 1e-12);
}

TEST(Reference, Attention) {
  for (const AttentionSizes z :
       {AttentionSizes{2, 5, 4, 2, 2}, AttentionSizes{1, 1, 1, 1, 4}, AttentionSizes{1, 4, 3, 1, 2}}) {
    const Doubles qkv = random_doubles(z.batch * z.seq * z.stride(), 1);
    const Doubles dy = random_doubles(z.batch * z.seq * z.heads * z.head_dim, 2);
    Doubles dqkv(qkv.size(), NAN);
    attention_backward(dqkv, dy, qkv, z);
    expect_backward(qkv, dqkv, dy, [&](Out y, In v) { attention_forward(y, v, z); });
  }
}

TEST(Reference, AttentionOfEqualKeysIsTheMeanOfValues) {
  const AttentionSizes z{1, 3, 1, 1, 2};
  const Doubles qkv = {1, 2, 0, 0, 3, 6, 5, 6, 0, 0, 6, 9, 9, 9, 0, 0, 9, 9};
  Doubles y(6);
  attention_forward(y, qkv, z);
  const Doubles expected = {3, 6, 4.5, 7.5, 6, 8};
  for (int i = 0; i < 6; ++i) EXPECT_NEAR(y[i], expected[i], 1e-14);
}

TEST(Reference, SwiGlu) {
  const std::int64_t rows = 3, width = 5;
  const Doubles x = random_doubles(rows * 2 * width, 1, 3), dy = random_doubles(rows * width, 2);
  Doubles dx(x.size(), NAN);
  swiglu_backward(dx, dy, x, rows, width);
  expect_backward(x, dx, dy, [&](Out y, In v) { swiglu_forward(y, v, rows, width); });
}

TEST(Reference, EmbeddingSumsRepeatedTokens) {
  const std::vector<std::int32_t> tokens = {2, 0, 2};
  const Doubles table = random_doubles(4 * 3, 1), dy = random_doubles(3 * 3, 2);
  Doubles dtable(table.size(), 0);
  embedding_backward(dtable, dy, tokens, 3);
  expect_backward(table, dtable, dy, [&](Out y, In v) { embedding_forward(y, v, tokens, 3); });
}

TEST(Reference, CrossEntropy) {
  const std::vector<std::int32_t> targets = {2, 0, 4};
  const Doubles logits = random_doubles(3 * 5, 1, 4);
  Doubles dlogits(logits.size(), NAN);
  cross_entropy(dlogits, logits, targets, 0.25, 5);
  Doubles unused(15);
  expect_gradient([&](const Doubles& v) { return 0.25 * cross_entropy(unused, v, targets, 1, 5); }, logits,
                  dlogits);
  EXPECT_NEAR(cross_entropy(unused, Doubles(15, 100.0), targets, 1, 5), 3 * std::log(5.0), 1e-12);
}

TEST(Reference, AdamWFirstStepMovesByTheLearningRate) {
  Doubles w = {1, -2}, m = {0, 0}, v = {0, 0};
  adamw(w, m, v, Doubles{0.5, -4}, {0.01, 0.9, 0.95, 0, 0.1}, 1);
  EXPECT_NEAR(w[0], 1 - 0.01 * (1 + 0.1), 1e-15);
  EXPECT_NEAR(w[1], -2 - 0.01 * (-1 - 0.2), 1e-15);
  adamw(w, m, v, Doubles{0, 0}, {0.01, 0.9, 0.95, 0, 0}, 2);
  const double m_hat = 0.9 * 0.05 / (1 - 0.81), v_hat = 0.95 * 0.05 * 0.25 / (1 - 0.95 * 0.95);
  EXPECT_NEAR(w[0], 1 - 0.01 * 1.1 - 0.01 * m_hat / std::sqrt(v_hat), 1e-14);
}

}  // namespace
}  // namespace minitaw::kernels::reference
