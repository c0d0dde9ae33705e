// SPDX-License-Identifier: BSD-3-Clause
// Every layer but attention and the matrix product against its plain double-precision version, in
// both types, over odd shapes, into poisoned outputs.
#include <gmock/gmock.h>
#include "kernels/layers.hpp"

namespace minitaw::kernels {
namespace {
std::vector<std::int32_t> random_indices(int count, int below) {
  std::mt19937 random(3);
  std::vector<std::int32_t> values(count);
  for (auto& value : values)
    value = static_cast<std::int32_t>(random() % below);
  return values;
}

TYPED_TEST_SUITE(Layers, Cases, CaseName);

TYPED_TEST(Layers, RmsNorm) {
  this->for_sizes([this](int rows, int width) {
    const auto x = this->random(rows, width), dy = this->random(rows, width),
               residual = this->random(rows, width), y = this->poisoned(rows, width),
               copy = this->poisoned(rows, width), alone = this->poisoned(rows, width),
               dx = this->poisoned(rows, width);
    const Doubles weight = this->random(width, 1).values(), more = residual.values();
    const Device<TypeParam> gain(weight), added(weight);
    const Floats rstd = Floats::poisoned(rows), dgain = Floats::poisoned(width),
                 partial = Floats::poisoned(std::min(rows, 301), width);
    Doubles expected_gain(width, 0);
    const Doubles bare =
        reference::rmsnorm_backward(expected_gain, dy.values(), x.values(), weight);
    const auto backward = [&](const auto& into, Matrix<const typename TypeParam::E> through) {
      rmsnorm_backward(exec(),
          into.matrix(),
          partial.matrix(),
          dy.matrix(),
          through,
          x.matrix(),
          rstd.vector(),
          gain.vector());
    };
    this->launch_([&] {
      rmsnorm_forward(exec(), alone.matrix(), rstd.vector(), {}, x.matrix(), gain.vector());
      rmsnorm_forward(exec(), y.matrix(), rstd.vector(), copy.matrix(), x.matrix(), gain.vector());
      backward(dx, residual.matrix());
      rmsnorm_backward_gain(exec(), dgain.vector(), partial.matrix(), false);
      rmsnorm_backward_gain(exec(), added.vector(), partial.matrix(), true);
      backward(residual, residual.matrix());  // in place
      backward(dy, {});                       // in place over dy
    });
    expect_close(y.values(), reference::rmsnorm_forward(x.values(), weight), this->near);
    EXPECT_EQ(copy.values(), x.values());
    EXPECT_EQ(alone.values(), y.values());
    expect_close(dx.values(), test::sum_of(bare, more), this->near);
    expect_close(dgain.values(), expected_gain);
    expect_close(added.values(), test::sum_of(expected_gain, weight), 2 * this->near);
    EXPECT_EQ(residual.values(), dx.values());
    if (width > 2)  // of one element nothing but rounding is left
      expect_close(dy.values(), bare, this->near);
  });
}

TYPED_TEST(Layers, SwiGlu) {
  this->for_sizes([this](int rows, int width) {
    const auto x = this->random(rows, 2 * width, 8), dy = this->random(rows, width),
               y = this->poisoned(rows, width), again = this->poisoned(rows, width),
               dx = this->poisoned(rows, 2 * width);
    const Doubles expected = reference::swiglu_forward(x.values(), width),
                  slope = reference::swiglu_backward(dy.values(), x.values(), width);
    this->launch_([&] {
      swiglu_forward(exec(), y.matrix(), x.matrix());
      swiglu_backward(exec(), dx.matrix(), again.matrix(), dy.matrix(), x.matrix());
      swiglu_backward(exec(), x.matrix(), dy.matrix(), dy.matrix(), x.matrix());  // in place
    });
    expect_close(y.values(), expected, this->near);
    expect_close(dx.values(), slope, this->near);
    EXPECT_EQ(again.values(), y.values());
    EXPECT_EQ(x.values(), dx.values());
    EXPECT_EQ(dy.values(), y.values());
  });
}

TYPED_TEST(Layers, Embedding) {
  this->for_sizes([this](int rows, int width) {
    const int vocab = 7;
    const std::vector<std::int32_t> tokens = random_indices(rows, vocab);
    std::vector<std::int32_t> order(rows), starts;
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [&](int row) { return tokens[row]; });
    for (int i = 0; i < rows; ++i)
      if (i == 0 || tokens[order[i]] != tokens[order[i - 1]])
        starts.push_back(i);
    starts.push_back(rows);
    const Indices of_rows(tokens), by_token(order), runs(starts);
    const auto table = this->random(vocab, width), dx = this->random(rows, width),
               x = this->poisoned(rows, width);
    Doubles expected = test::random_values(vocab * width, 3);
    const Floats dtable(vocab, width, expected);
    this->launch_([&] {
      embedding_forward(exec(), x.matrix(), table.matrix(), of_rows.vector());
      embedding_backward<typename TypeParam::E>(
          exec(), dtable.matrix(), dx.matrix(), of_rows.vector(), by_token.vector(), runs.vector());
    });
    EXPECT_EQ(x.values(), reference::embedding_forward(table.values(), tokens, width));
    reference::embedding_backward(expected, dx.values(), tokens, width);
    expect_close(dtable.values(), expected);
  });
}

TYPED_TEST(Layers, CrossEntropy) {
  this->for_sizes([this](int rows, int width) {
    const std::vector<std::int32_t> targets = random_indices(rows, width);
    const Indices of_rows(targets);
    const auto logits = this->random(rows, width, 30);
    Doubles expected = logits.values();
    const double sum = reference::cross_entropy(expected, targets, 0.125);
    const auto losses = test::DeviceMatrix<double>::poisoned(rows);
    const test::DeviceMatrix<double> loss(Doubles{1.5});
    this->launch_([&] {
      cross_entropy(exec(), losses.vector(), logits.matrix(), of_rows.vector(), 0.125F);
      sum_losses(exec(), loss.matrix().data(), losses.vector(), 0.125);
    });
    if (width > 1)
      expect_close(logits.values(), expected, this->near);
    EXPECT_NEAR(loss.values()[0], 1.5 + 0.125 * sum, 1e-6 * (1 + sum));
  });
}

TYPED_TEST(Layers, CrossEntropyOfExtremeLogits) {
  using E = typename TypeParam::E;
  const int rows = 3, width = 4096;
  Doubles x(rows * width, -3e38);  // every exponential but the largest vanishes
  x[5] = 1e4;
  x[width + 4095] = -1e4;
  const std::vector<std::int32_t> targets = {5, 4095, 7};
  const Device<TypeParam> logits(rows, width, x);
  const Indices of_rows(targets);
  const auto losses = test::DeviceMatrix<double>::poisoned(rows);
  x = logits.values();
  this->launch_(
      [&] { cross_entropy(exec(), losses.vector(), logits.matrix(), of_rows.vector(), 1); });
  EXPECT_THAT(
      losses.values(), testing::ElementsAre(0, 0, testing::DoubleNear(std::log(width), 1e-5)));
  reference::cross_entropy(x, targets, 1);
  EXPECT_EQ(logits.values(), test::rounded<E>(x));
}

/// Two heads of three, a run of five rows, chunks of four, two sequences.
TYPED_TEST(Layers, KeysAndValuesGoToTheirPositionsAndBack) {
  using E = typename TypeParam::E;
  for (const auto& [head_dim, gap] : {std::pair{3, 0}, {8, 0}, {8, 1}, {20, 3}}) {
    const int stride = 4 * head_dim + gap, rows = 32, width = 9 * head_dim, half = 2 * head_dim;
    const AttentionPart part({2, 7, 3, 3, head_dim}, {2, 5, 10}, {1, 2}, stride, 4);
    const auto qkv = this->random(14, width), buffer = this->poisoned(rows, stride),
               back = this->poisoned(14, width), narrow = this->poisoned(14, width);
    const Floats sums(rows, stride, test::random_values(rows * stride, 2));
    const Doubles given = qkv.values(), more = sums.values();
    Doubles there = buffer.values(), again = back.values(), rounded = again;
    for (int b = 0; b < 2; ++b)
      for (int r = 0; r < 5; ++r)
        for (int i = 0; i < stride - gap; ++i) {
          const int position = 10 + r, row = position / 4 * 8 + b * 4 + position % 4;
          const int at = row * stride + i,
                    in_qkv = (b * 7 + 2 + r) * width + 4 * head_dim + i + i / half * head_dim;
          there[at] = again[in_qkv] = given[in_qkv];
          rounded[in_qkv] = more[at];
        }
    E* const keys = buffer.vector().data();
    const auto to_qkv = [&]<class From>(const Device<TypeParam>& into, const From* from) {
      move_key_values<E, From>(exec(),
          part,
          part.run,
          part.in(into.vector().data()),
          part.rows_in_qkv(),
          {from, from + half},
          part.rows());
    };
    this->launch_([&] {
      move_key_values<E, E>(exec(),
          part,
          part.run,
          {keys, keys + half},
          part.rows(),
          part.template in<const E>(qkv.vector().data()),
          part.rows_in_qkv());
      to_qkv(back, keys);
      to_qkv(narrow, sums.vector().data());
    });
    test::expect_same(buffer.values(), there);
    test::expect_same(back.values(), again);
    test::expect_same(narrow.values(), test::rounded<E>(rounded));
  }
}

TYPED_TEST(Layers, RopeTurnsQueriesAndKeysOnly) {
  for (const auto& [head_dim, shift] : {std::pair{2, 0}, {6, 0}, {24, 1}, {128, 0}}) {
    this->shift_ = shift;
    const AttentionSizes z{2, 19, 3, 1, head_dim};
    const auto qkv = this->random(z.batch * z.seq, 5 * head_dim);
    const Floats table = Floats::poisoned(z.seq, head_dim);
    const Doubles x = qkv.values();
    Doubles expected = x;
    reference::rope(expected, z, 1);
    const auto turned = [&](float direction) {
      this->launch_([&] {
        rope_table(exec(), table.matrix(), {{0, z.seq, 0}});
        rope(exec(), qkv.matrix(), table.matrix(), 4, direction);
      });
      return qkv.values();
    };
    expect_close(turned(1), expected, this->near);
    expect_close(turned(-1), x, this->near);
  }
}

/// Far into a long sequence, too.
TEST(Rope, TableHasTheAnglesOfThePositionsOfItsRuns) {
  const int head_dim = 128;
  const auto table = Floats::poisoned(8, head_dim);
  rope_table(exec(), table.matrix(), {{0, 3, 12}, {5, 2, 131'070}});
  exec().fence();
  Doubles expected(8 * head_dim, nan);
  for (const auto& [row, position] :
      {std::pair{0, 12}, {1, 13}, {2, 14}, {5, 131'070}, {6, 131'071}})
    for (int i = 0; i < head_dim; i += 2) {
      const double angle = position * std::pow(10'000, -1.0 * i / head_dim);
      expected[row * head_dim + i] = std::cos(angle);
      expected[row * head_dim + i + 1] = std::sin(angle);
    }
  EXPECT_THAT(table.values(), testing::Pointwise(testing::NanSensitiveDoubleNear(1e-7), expected));
}
}  // namespace
}  // namespace minitaw::kernels
