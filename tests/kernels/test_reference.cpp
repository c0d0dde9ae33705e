// SPDX-License-Identifier: BSD-3-Clause
// The plain double-precision kernels against central finite differences of <output, dy>.
#include <gtest/gtest.h>

#include "kernels/finite_difference.hpp"
#include "kernels/reference.hpp"

namespace minitaw::kernels::reference {
namespace {
using test::expect_gradient;
using test::random_doubles;

/// dx against the slope of <forward(x), dy>.
template <class Forward>
void expect_backward(const Doubles& x, const Doubles& dx, const Doubles& dy, const Forward& forward) {
  expect_gradient([&](const Doubles& v) { return test::dot(forward(v), dy); }, x, dx);
}

TEST(Reference, Linear) {
  const std::int64_t rows = 3, out = 5, in = 4;
  const Doubles x = random_doubles(rows * in, 1), w = random_doubles(out * in, 2),
                dy = random_doubles(rows * out, 3);
  Doubles dw(w.size(), 0);
  expect_backward(x, linear_backward(dw, dy, x, w, in), dy, [&](In v) { return linear_forward(v, w, in); });
  expect_backward(w, dw, dy, [&](In v) { return linear_forward(x, v, in); });
}

TEST(Reference, RmsNorm) {
  const std::int64_t rows = 3, width = 7;
  const Doubles x = random_doubles(rows * width, 1), gain = random_doubles(width, 2),
                dy = random_doubles(rows * width, 3);
  Doubles dgain(width, 0);
  expect_backward(
      x, rmsnorm_backward(dgain, dy, x, gain), dy, [&](In v) { return rmsnorm_forward(v, gain); });
  expect_backward(gain, dgain, dy, [&](In v) { return rmsnorm_forward(x, v); });
}

TEST(Reference, RmsNormOfKnownRow) {
  const Doubles y = rmsnorm_forward(Doubles{3, 4}, Doubles{1, 2});
  EXPECT_NEAR(y[0], 3 / std::sqrt(12.5 + 1e-5), 1e-15);
  EXPECT_NEAR(y[1], 8 / std::sqrt(12.5 + 1e-5), 1e-15);
}

TEST(Reference, RopeTurnsPairsByPosition) {
  const AttentionSizes z{1, 2, 1, 1, 4};  // two tokens of a query, a key and a value
  Doubles x(24, 1);
  for (int i = 0; i < 24; i += 4) x[i + 1] = x[i + 2] = 0;  // 1 0 0 1
  const Doubles before = x;
  rope(x, z, 1);
  EXPECT_TRUE(std::equal(x.begin(), x.begin() + 12, before.begin())) << "position 0";
  EXPECT_TRUE(std::equal(x.begin() + 20, x.end(), before.begin() + 20)) << "values";
  for (const int i : {12, 16}) {
    EXPECT_NEAR(x[i], std::cos(1.0), 1e-15);
    EXPECT_NEAR(x[i + 1], std::sin(1.0), 1e-15);
    EXPECT_NEAR(x[i + 2], -std::sin(0.01), 1e-15);
    EXPECT_NEAR(x[i + 3], std::cos(0.01), 1e-15);
  }
}

TEST(Reference, RopeBackwardIsTheTranspose) {
  const AttentionSizes z{2, 3, 2, 1, 6};
  const Doubles x = random_doubles(2 * 3 * Places{z}.stride(), 1), dy = random_doubles(std::ssize(x), 2);
  Doubles turned = x, dx = dy;
  rope(turned, z, 1);
  rope(dx, z, -1);
  EXPECT_NEAR(test::dot(turned, dy), test::dot(x, dx), 1e-12);
}

TEST(Reference, Attention) {
  for (const AttentionSizes z :
      {AttentionSizes{2, 5, 4, 2, 2}, AttentionSizes{1, 1, 1, 1, 4}, AttentionSizes{1, 4, 3, 1, 2}}) {
    const Doubles qkv = random_doubles(Places{z}.query(z.batch, 0, 0), 1),
                  dy = random_doubles(Places{z}.output(z.batch, 0, 0), 2);
    expect_backward(qkv, attention_backward(dy, qkv, z), dy, [&](In v) { return attention_forward(v, z); });
  }
}

TEST(Reference, AttentionOfEqualKeysIsTheMeanOfValues) {
  const AttentionSizes z{1, 3, 1, 1, 2};
  const Doubles qkv = {1, 2, 0, 0, 3, 6, 5, 6, 0, 0, 6, 9, 9, 9, 0, 0, 9, 9};
  const Doubles y = attention_forward(qkv, z);
  const Doubles expected = {3, 6, 4.5, 7.5, 6, 8};
  for (int i = 0; i < 6; ++i) EXPECT_NEAR(y[i], expected[i], 1e-14);
}

TEST(Reference, SwiGlu) {
  const std::int64_t rows = 3, width = 5;
  const Doubles x = random_doubles(rows * 2 * width, 1, 3), dy = random_doubles(rows * width, 2);
  expect_backward(x, swiglu_backward(dy, x, width), dy, [&](In v) { return swiglu_forward(v, width); });
}

TEST(Reference, EmbeddingSumsRepeatedTokens) {
  const std::vector<std::int32_t> tokens = {2, 0, 2};
  const Doubles table = random_doubles(4 * 3, 1), dy = random_doubles(3 * 3, 2);
  Doubles dtable(table.size(), 0);
  embedding_backward(dtable, dy, tokens, 3);
  expect_backward(table, dtable, dy, [&](In v) { return embedding_forward(v, tokens, 3); });
}

TEST(Reference, CrossEntropy) {
  const std::vector<std::int32_t> targets = {2, 0, 4};
  const Doubles logits = random_doubles(3 * 5, 1, 4);
  const auto loss_of = [&](Doubles v) { return cross_entropy(v, targets, 1); };
  Doubles gradient = logits;
  cross_entropy(gradient, targets, 0.25);
  expect_gradient([&](const Doubles& v) { return 0.25 * loss_of(v); }, logits, gradient);
  EXPECT_NEAR(loss_of(Doubles(15, 100.0)), 3 * std::log(5.0), 1e-12);
}

TEST(Reference, AdamWFirstStepMovesByTheLearningRate) {
  Doubles w = {1, -2}, m = {0, 0}, v = {0, 0};
  // numbers that a float holds exactly
  adamw(w, m, v, Doubles{0.5, -4}, {0.015625F, 0.875F, 0.9375F, 0, 0.125F}, 1);
  EXPECT_NEAR(w[0], 1 - 0.015625 * (1 + 0.125), 1e-15);
  EXPECT_NEAR(w[1], -2 - 0.015625 * (-1 - 0.25), 1e-15);
  adamw(w, m, v, Doubles{0, 0}, {0.015625F, 0.875F, 0.9375F, 0, 0}, 2);
  const double m_hat = 0.875 * 0.125 * 0.5 / (1 - 0.875 * 0.875),
               v_hat = 0.9375 * 0.0625 * 0.25 / (1 - 0.9375 * 0.9375);
  EXPECT_NEAR(w[0], 1 - 0.015625 * 1.125 - 0.015625 * m_hat / std::sqrt(v_hat), 1e-14);
}
}  // namespace
}  // namespace minitaw::kernels::reference
