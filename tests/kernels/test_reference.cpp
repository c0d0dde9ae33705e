// SPDX-License-Identifier: BSD-3-Clause
// The plain double-precision kernels against central finite differences of <output, dy>.
#include "kernels/device_matrix.hpp"
#include "kernels/reference.hpp"

namespace minitaw::kernels::reference {
namespace {
using test::random_values;

void expect_backward(const Doubles& x, const Doubles& dx, const Doubles& dy, const auto& forward) {
  ASSERT_EQ(x.size(), dx.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto at = [&](double change) {
      Doubles moved = x;
      moved[i] += change;
      return test::dot(forward(moved), dy);
    };
    const double difference = (at(1e-5) - at(-1e-5)) / 2e-5;
    EXPECT_NEAR(dx[i], difference, 1e-6 * (1 + std::abs(difference))) << "element " << i;
  }
}

TEST(Reference, Linear) {
  const std::int64_t rows = 3, out = 5, in = 4;
  const Doubles x = random_values(rows * in, 1), w = random_values(out * in, 2),
                dy = random_values(rows * out, 3);
  Doubles dw(w.size(), 0);
  expect_backward(
      x, linear_backward(dw, dy, x, w, in), dy, [&](In v) { return linear_forward(v, w, in); });
  expect_backward(w, dw, dy, [&](In v) { return linear_forward(x, v, in); });
}

TEST(Reference, RmsNorm) {
  const std::int64_t rows = 3, width = 7;
  const Doubles x = random_values(rows * width, 1), gain = random_values(width, 2),
                dy = random_values(rows * width, 3);
  Doubles dgain(width, 0);
  expect_backward(
      x, rmsnorm_backward(dgain, dy, x, gain), dy, [&](In v) { return rmsnorm_forward(v, gain); });
  expect_backward(gain, dgain, dy, [&](In v) { return rmsnorm_forward(x, v); });
}

TEST(Reference, Attention) {
  for (const AttentionSizes z : {AttentionSizes{2, 5, 4, 2, 2}, {1, 1, 1, 1, 4}, {1, 4, 3, 1, 2}}) {
    const Doubles qkv = random_values(Places{z}.query(z.batch, 0, 0), 1),
                  dy = random_values(Places{z}.output(z.batch, 0, 0), 2);
    expect_backward(
        qkv, attention_backward(dy, qkv, z), dy, [&](In v) { return attention_forward(v, z); });
  }
}

TEST(Reference, SwiGlu) {
  const std::int64_t rows = 3, width = 5;
  const Doubles x = random_values(rows * 2 * width, 1, 3), dy = random_values(rows * width, 2);
  expect_backward(
      x, swiglu_backward(dy, x, width), dy, [&](In v) { return swiglu_forward(v, width); });
}

TEST(Reference, EmbeddingSumsRepeatedTokens) {
  const std::vector<std::int32_t> tokens = {2, 0, 2};
  const Doubles table = random_values(4 * 3, 1), dy = random_values(3 * 3, 2);
  Doubles dtable(table.size(), 0);
  embedding_backward(dtable, dy, tokens, 3);
  expect_backward(table, dtable, dy, [&](In v) { return embedding_forward(v, tokens, 3); });
}

TEST(Reference, CrossEntropy) {
  const std::vector<std::int32_t> targets = {2, 0, 4};
  const Doubles logits = random_values(3 * 5, 1, 4);
  const auto loss_of = [&](Doubles v) { return Doubles{cross_entropy(v, targets, 1)}; };
  Doubles gradient = logits;
  cross_entropy(gradient, targets, 0.25);
  expect_backward(logits, gradient, {0.25}, loss_of);
  EXPECT_NEAR(loss_of(Doubles(15, 100.0))[0], 3 * std::log(5.0), 1e-12);
}
}  // namespace
}  // namespace minitaw::kernels::reference
