// SPDX-License-Identifier: BSD-3-Clause
// Every layer but attention and the matrix product against its plain double-precision version, in
// both types, over odd shapes, into poisoned outputs.
#include "kernels/layers.hpp"

namespace minitaw::kernels {
namespace {
using Indices = test::DeviceMatrix<std::int32_t>;

Indices indices(const std::vector<std::int32_t>& values) {
  return {static_cast<std::int64_t>(values.size()), 1, Doubles(values.begin(), values.end())};
}

std::vector<std::int32_t> random_indices(int count, int below) {
  std::mt19937 random(3);
  std::vector<std::int32_t> values(count);
  for (auto& value : values)
    value = static_cast<std::int32_t>(random() % below);
  return values;
}

TYPED_TEST_SUITE(Layers, Cases, CaseName);

TYPED_TEST(Layers, RmsNorm) {
  using In = Matrix<const typename TypeParam::E>;
  this->for_sizes([this](int rows, int width, int shift) {
    const Doubles x = this->random(rows * width, 1), gain = this->random(width, 2),
                  dy = this->random(rows * width, 3), residual = this->random(rows * width, 4);
    const Device<TypeParam> in(rows, width, x, shift), weight(width, 1, gain),
        slope(rows, width, dy, shift), through(rows, width, residual, shift);
    const auto y = this->poisoned(rows, width, shift), copy = this->poisoned(rows, width, shift),
               alone = this->poisoned(rows, width, shift), dx = this->poisoned(rows, width, shift);
    const Floats rstd = Floats::poisoned(rows, 1),
                 partial = Floats::poisoned(std::min(rows, 301), width),
                 dgain = Floats::poisoned(width, 1);
    const Device<TypeParam> added(width, 1, gain);
    const auto backward = [&](const Device<TypeParam>& into, const In& more) {
      rmsnorm_backward(exec(),
          into.matrix(),
          partial.matrix(),
          slope.matrix(),
          more,
          in.matrix(),
          rstd.vector(),
          weight.vector());
    };
    this->launch_([&] {
      rmsnorm_forward(exec(), alone.matrix(), rstd.vector(), {}, in.matrix(), weight.vector());
      rmsnorm_forward(
          exec(), y.matrix(), rstd.vector(), copy.matrix(), in.matrix(), weight.vector());
      backward(dx, through.matrix());
      rmsnorm_backward_gain(exec(), dgain.vector(), partial.matrix(), false);
      rmsnorm_backward_gain(exec(), added.vector(), partial.matrix(), true);
      backward(through, through.matrix());  // in place over the residual
      backward(slope, {});                  // in place over dy
    });
    expect_close(y.values(), reference::rmsnorm_forward(x, gain), this->near);
    EXPECT_EQ(copy.values(), x);
    EXPECT_EQ(alone.values(), y.values());
    Doubles expected_gain(width, 0), bare = reference::rmsnorm_backward(expected_gain, dy, x, gain);
    Doubles expected = bare;
    std::ranges::transform(bare, residual, expected.begin(), std::plus());
    expect_close(dx.values(), expected, this->near);
    expect_close(dgain.values(), expected_gain);
    std::ranges::transform(expected_gain, gain, expected_gain.begin(), std::plus());
    expect_close(added.values(), expected_gain, 2 * this->near);
    EXPECT_EQ(through.values(), dx.values());
    if (width > 2)  // of one element nothing but rounding is left
      expect_close(slope.values(), bare, this->near);
  });
}

TYPED_TEST(Layers, SwiGlu) {
  this->for_sizes([this](int rows, int width, int shift) {
    const Doubles x = this->random(rows * 2 * width, 1, 8), dy = this->random(rows * width, 2);
    const Device<TypeParam> in(rows, 2 * width, x, shift), slope(rows, width, dy, shift);
    const auto y = this->poisoned(rows, width, shift), dx = this->poisoned(rows, 2 * width, shift),
               again = this->poisoned(rows, width, shift);
    this->launch_([&] {
      swiglu_forward(exec(), y.matrix(), in.matrix());
      swiglu_backward(exec(), dx.matrix(), again.matrix(), slope.matrix(), in.matrix());
      swiglu_backward(
          exec(), in.matrix(), slope.matrix(), slope.matrix(), in.matrix());  // in place
    });
    expect_close(y.values(), reference::swiglu_forward(x, width), this->near);
    expect_close(dx.values(), reference::swiglu_backward(dy, x, width), this->near);
    EXPECT_EQ(again.values(), y.values());
    EXPECT_EQ(in.values(), dx.values());
    EXPECT_EQ(slope.values(), again.values());
  });
}

TYPED_TEST(Layers, Embedding) {
  this->for_sizes([this](int rows, int width, int shift) {
    const int vocab = 7;
    const std::vector<std::int32_t> tokens = random_indices(rows, vocab);
    std::vector<std::int32_t> order, starts{0};
    for (int v = 0; v < vocab; ++v) {
      for (int r = 0; r < rows; ++r)
        if (tokens[r] == v)
          order.push_back(r);
      if (static_cast<int>(order.size()) > starts.back())
        starts.push_back(static_cast<int>(order.size()));
    }
    const Indices device_tokens = indices(tokens), device_order = indices(order),
                  device_starts = indices(starts);
    const Doubles table = this->random(vocab * width, 1), dx = this->random(rows * width, 2),
                  before = test::random_floats(vocab * width, 3);
    Doubles expected_table = before;
    reference::embedding_backward(expected_table, dx, tokens, width);
    const Device<TypeParam> weights(vocab, width, table, shift), slope(rows, width, dx, shift),
        x = Device<TypeParam>::poisoned(rows, width, shift);
    const Floats dtable(vocab, width, before);
    this->launch_([&] {
      embedding_forward(exec(), x.matrix(), weights.matrix(), device_tokens.vector());
      embedding_backward<typename TypeParam::E>(exec(),
          dtable.matrix(),
          slope.matrix(),
          device_tokens.vector(),
          device_order.vector(),
          device_starts.vector());
    });
    EXPECT_EQ(x.values(), reference::embedding_forward(table, tokens, width));
    expect_close(dtable.values(), expected_table);
  });
}

TYPED_TEST(Layers, CrossEntropy) {
  this->for_sizes([this](int rows, int width, int shift) {
    const std::vector<std::int32_t> targets = random_indices(rows, width);
    const Indices device_targets = indices(targets);
    const Doubles x = this->random(rows * width, 1, 30);
    Doubles expected = x;
    const double expected_loss = reference::cross_entropy(expected, targets, 0.125);
    const Device<TypeParam> logits(rows, width, x, shift);
    const auto losses = test::DeviceMatrix<double>::poisoned(rows, 1);
    const test::DeviceMatrix<double> loss(1, 1, {1.5});
    this->launch_([&] {
      cross_entropy(exec(), losses.vector(), logits.matrix(), device_targets.vector(), 0.125F);
      sum_losses(exec(), loss.matrix().data(), losses.vector(), 0.125);
    });
    if (width > 1)
      expect_close(logits.values(), expected, this->near);
    EXPECT_NEAR(loss.values()[0], 1.5 + 0.125 * expected_loss, 1e-6 * (1 + expected_loss));
  });
}

TYPED_TEST(Layers, CrossEntropyOfExtremeLogits) {
  const int rows = 3, width = 4096;
  const double low = test::rounded<typename TypeParam::E>({-3e38})[0];
  Doubles x(rows * width, low);  // every exponential but the largest vanishes
  x[5] = 1e4;
  x[width + 4095] = -1e4;
  const Doubles in = test::rounded<typename TypeParam::E>(x);
  const Device<TypeParam> logits(rows, width, in);
  const auto losses = test::DeviceMatrix<double>::poisoned(rows, 1);
  const Indices targets = indices({5, 4095, 7});
  cross_entropy(exec(), losses.vector(), logits.matrix(), targets.vector(), 1);
  exec().fence();
  const Doubles got = losses.values(), gradient = logits.values();
  EXPECT_EQ(std::tuple(got[0], got[1]), std::tuple(0, 0));
  EXPECT_NEAR(got[2], std::log(width), 1e-5);
  for (int i = 0; i < 2 * width; ++i)
    ASSERT_EQ(gradient[i], 0) << i;
  EXPECT_NEAR(gradient[2 * width + 7], 1.0 / width - 1, this->near);
  EXPECT_NEAR(gradient[2 * width + 8], 1.0 / width, this->near / width);
}

/// Rows of a run in the projection and its positions in a buffer of two heads of three, chunks of
/// four, two sequences: use(element of the buffer, element of the projection).
void for_key_values(int head_dim, int stride, const auto& use) {
  for (int b = 0; b < 2; ++b)
    for (int r = 0; r < 5; ++r)
      for (int i = 0; i < 2 * head_dim; ++i) {
        const int position = 10 + r;
        const int row = position / 4 * 8 + b * 4 + position % 4;
        const int key = (b * 7 + 2 + r) * 9 * head_dim + 4 * head_dim + i;
        use(row * stride + i, key);
        use(row * stride + 2 * head_dim + i, key + 3 * head_dim);
      }
}

TYPED_TEST(Layers, KeysAndValuesGoToTheirPositionsAndBack) {
  using E = typename TypeParam::E;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto& [head_dim, gap] : {std::pair{3, 0}, {8, 0}, {8, 1}, {20, 3}}) {
    const AttentionSizes z{.batch = 2, .seq = 7, .heads = 3, .kv_heads = 3, .head_dim = head_dim};
    const int stride = 4 * head_dim + gap, rows = 32;
    const AttentionPart part(z, {2, 5, 10}, {1, 2}, stride, 4);
    const KeyRows rows_of_keys = part.rows(), rows_of_qkv = part.rows_in_qkv();
    const Doubles qkv = this->random(14 * 9 * head_dim, 1);
    const Device<TypeParam> in(14, 9 * head_dim, qkv);
    const auto to = this->poisoned(rows, stride), back = this->poisoned(14, 9 * head_dim);
    const Floats sums(rows, stride, test::random_floats(rows * stride, 2));
    const auto buffer = [&]<class T>(T* data) { return KeyValues<T>{data, data + 2 * head_dim}; };

    Doubles there(rows * stride, nan), again(14 * 9 * head_dim, nan), rounded = again;
    for_key_values(head_dim, stride, [&](int at, int key) {
      there[at] = again[key] = qkv[key];
      rounded[key] = test::rounded<E>({sums.values()[at]})[0];
    });
    E* const data = to.vector().data();
    const auto from = part.template in<const E>(in.vector().data());
    const auto into = part.in(back.vector().data());
    const auto launch = [&]<class To, class From>(KeyValues<To> target,
                            const KeyRows& target_rows,
                            KeyValues<const From> source,
                            const KeyRows& source_rows) {
      this->launch_([&] {
        move_key_values<To, From>(exec(), part, part.run, target, target_rows, source, source_rows);
      });
    };
    launch(buffer(data), rows_of_keys, from, rows_of_qkv);
    test::expect_same(to.values(), there);
    launch(into, rows_of_qkv, buffer(static_cast<const E*>(data)), rows_of_keys);
    test::expect_same(back.values(), again);
    launch(
        into, rows_of_qkv, buffer(static_cast<const float*>(sums.vector().data())), rows_of_keys);
    test::expect_same(back.values(), rounded);
  }
}

TYPED_TEST(Layers, RopeTurnsQueriesAndKeysOnly) {
  for (const auto& [head_dim, shift] : {std::pair{2, 0}, {6, 0}, {24, 1}, {128, 0}}) {
    const AttentionSizes z{.batch = 2, .seq = 19, .heads = 3, .kv_heads = 1, .head_dim = head_dim};
    const int tokens = z.batch * z.seq, width = 5 * head_dim;
    const Doubles x = this->random(tokens * width, 1);
    Doubles expected = x;
    reference::rope(expected, z, 1);
    const Floats table = Floats::poisoned(z.seq, head_dim);
    const Device<TypeParam> qkv(tokens, width, x, shift);
    this->launch_([&] {
      rope_table(exec(), table.matrix(), {{0, z.seq, 0}});
      rope(exec(), qkv.matrix(), table.matrix(), 4, 1);
    });
    expect_close(qkv.values(), expected, this->near);
    this->launch_([&] { rope(exec(), qkv.matrix(), table.matrix(), 4, -1); });
    expect_close(qkv.values(), x, this->near);
  }
}

TEST(Rope, TableHasThePositionsOfTheRuns) {
  const int head_dim = 6;
  const auto whole = Floats::poisoned(50, head_dim), some = Floats::poisoned(11, head_dim);
  rope_table(exec(), whole.matrix(), {{0, 50, 0}});
  rope_table(exec(), some.matrix(), {{0, 4, 12}, {6, 3, 41}});
  exec().fence();
  const Doubles all = whole.values();
  Doubles expected(11 * head_dim, std::nan(""));
  std::copy_n(all.begin() + 12 * head_dim, 4 * head_dim, expected.begin());
  std::copy_n(all.begin() + 41 * head_dim, 3 * head_dim, expected.begin() + 6 * head_dim);
  test::expect_same(some.values(), expected);
}

TEST(Rope, KeepsItsAnglesFarIntoALongSequence) {
  const int head_dim = 128;
  const auto table = Floats::poisoned(1, head_dim);
  rope_table(exec(), table.matrix(), {{0, 1, 131071}});
  exec().fence();
  const Doubles got = table.values();
  for (int i = 0; i < head_dim / 2; ++i) {
    const double angle = 131071 * std::pow(10000.0, -2.0 * i / head_dim);
    EXPECT_NEAR(got[2 * i], std::cos(angle), 1e-7);
    EXPECT_NEAR(got[2 * i + 1], std::sin(angle), 1e-7);
  }
}
}  // namespace
}  // namespace minitaw::kernels
