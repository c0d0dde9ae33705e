// SPDX-License-Identifier: BSD-3-Clause
// The judge: errors, limits, references.
#include <gmock/gmock.h>
#include "fixtures.hpp"
#include "harness/cases.hpp"
#include "harness/check.hpp"
#include "this_run.hpp"

namespace minitaw::harness {
namespace {
using model::Dtype;
using testing::StartsWith;
using Tensors = std::vector<NamedTensor>;
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

Case serial_case(int layers = 2, Dtype dtype = Dtype::fp32) {
  Case c = tests::small_case("serial", topology::Groups({1}), layers, 2);
  c.steps = 3;
  c.shape.dtype = dtype;
  return c;
}

TEST(LossError, IsRelativeWhereTheLossIsAtLeastOne) {
  EXPECT_NEAR(loss_error(4.4, 4), 0.1, 1e-13);
  EXPECT_NEAR(loss_error(1e-3, 2e-3), 1e-3, 1e-15);
  EXPECT_TRUE(std::isnan(loss_error(not_a_number, 3)));
}

TEST(CompareGradients, OfATensorThatIsSmallInOneLayerIsAgainstItsLike) {
  const Tensors b = {{"layers.0.w2", {2, 2}}, {"layers.1.w2", {0.1F, 0.1F}}, {"head", {30, 30}}};
  Tensors a = b;
  a[1].values = {0.4F, 0.4F};  // apart by 0.3; all w2 have 1.416, a tenth of all is 1.736
  EXPECT_NEAR(compare_gradients(a, b).worst, 0.3 / 1.7359, 1e-4);
  a[2].values = {3, 3};
  const Tensors smaller = {b[0], b[1], {"head", {3, 3}}};
  EXPECT_NEAR(compare_gradients(a, smaller).worst, 0.3 / 1.4160, 1e-4);
  EXPECT_EQ(compare_gradients(a, smaller).tensor, "layers.1.w2");
  const Tensors zero = {{"one", {0, 0}}, {"two", {0}}};
  EXPECT_EQ(compare_gradients(zero, zero).worst, 0);
  EXPECT_GT(compare_gradients({{"one", {0, 0}}, {"two", {1e-6F}}}, zero).worst, 1);
}

TEST(WeightError, IsRelativeAndTakesBothNeighboursAtABorderOfBf16) {
  EXPECT_NEAR(
      weight_error({"w", {4.04F, -4.04F}}, std::vector{4.0, -4.0}, Dtype::fp32, 1e-6), 0.01, 1e-6);
  constexpr double below = 4, above = below + 1.0 / 32, border = (below + above) / 2;
  for (const double value : {below, above})
    for (const double apart : {0.0, value > border ? -4e-5 : 4e-5}) {
      const NamedTensor tensor{"w", {static_cast<float>(value)}};
      EXPECT_NEAR(weight_error(tensor, std::vector{border + apart}, Dtype::bf16, 1e-6),
          apart == 0 ? 0 : 1.0 / 128,
          1e-4);
    }
}

/// Deep, narrow, with few tokens or kinds of them. Twenty steps are longer than any cycle of a few
/// tokens.
TEST(Float64Reference, IsReproducedAtAnyDepthAndWidth) {
  struct Awkward {
    int layers, hidden, heads, ffn, vocab, seq;
    double rate = 3e-4;
    int steps = 3;
  };

  std::uint64_t seed = 0;
  for (const Awkward& z : {Awkward{13, 6, 1, 16, 29, 13},
           {13, 28, 2, 40, 29, 13},
           {100, 24, 4, 9, 29, 5},
           {30, 16, 4, 1, 300, 1},
           {2, 12, 2, 5, 3, 40},
           {2, 24, 4, 36, 29, 1, 1e-3},
           {2, 24, 4, 36, 1, 13, 1e-3},
           {1, 24, 4, 36, 29, 13, 1e-3, 20}})
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
      if (test::sanitized && dtype == Dtype::bf16)
        continue;
      Case c = serial_case(z.layers);
      c.shape = {z.layers, z.hidden, z.heads, 1, z.ffn, z.vocab, z.seq, 2, dtype};
      c.seed = ++seed;
      c.learning_rate = z.rate;
      c.steps = z.steps;
      SCOPED_TRACE(deck::identity(c));
      const Tolerance t = float64_tolerance(c);
      EXPECT_TRUE(z.vocab == 1 || t.largest(c.steps) < 1) << "or nothing is judged";
      EXPECT_EQ(
          compare(serial_reference(c, c.steps), float64_reference(c, c.steps)).failure(t), "");
    }
}

// By a calculator: 13 layers, H = 28, F = 40, V = 29, 208 tokens in 4 micro-batches of 52.
TEST(Tolerance, FollowsFromDepthWidthAndType) {
  Case c = serial_case(13);
  c.shape.hidden = 28;
  c.shape.seq = 26;
  c.micro_batches = 4;
  const auto expect =
      [](const Tolerance& t, double first, double later, double loss, double later_loss) {
        EXPECT_NEAR(t.first.gradient, first, 2e-3 * first);
        EXPECT_NEAR(t.later.gradient, later, 2e-3 * later);
        EXPECT_NEAR(t.first.loss, loss, 2e-3 * loss);
        EXPECT_NEAR(t.later.loss, later_loss, 2e-3 * later_loss);
        EXPECT_NEAR(t.weights, 1.3e-6, 1e-9) << "of three steps";
        EXPECT_EQ(t.largest(1), t.first.gradient);
        EXPECT_EQ(t.largest(2), std::max(t.first.gradient, t.later.gradient / 2));
      };
  expect(float64_tolerance(c), 8.149e-6, 4.2555e-4, 7.502e-7, 3.9176e-5);
  Case wide = c, wordy = c;  // the longest sum
  wide.shape.ffn = wordy.shape.vocab = 4000;
  EXPECT_NEAR(float64_tolerance(wide).first.gradient, 6.8909e-5, 2e-8);
  EXPECT_NEAR(float64_tolerance(wordy).first.gradient, 6.8326e-5, 2e-8);
  EXPECT_NEAR(float64_tolerance(wordy).first.loss, 3.0196e-6, 2e-9) << "at most 128 count";
  c.steps = 20;
  EXPECT_NEAR(float64_tolerance(c).later.gradient, 1.16337e-3, 2e-6)
      << "what is lost is found again";
  c.steps = 3;
  c.ranks = 4;  // each rounds, in bf16, the sum that it passes on
  expect(serial_tolerance(c), 1.1525e-5, 5.0853e-4, 1.061e-6, 4.6816e-5);
  c.shape.dtype = Dtype::bf16;
  expect(float64_tolerance(c), 0.07138, 0.13485, 6.571e-3, 1.2414e-2);
  if (kernels::on_host)
    expect(serial_tolerance(c), 0.031521, 0.18952, 2.9018e-3, 1.7448e-2);
  c.shape.context = {0, 2};  // sums have another order
  expect(serial_tolerance(c), 0.10575, 0.18952, 9.7355e-3, 1.7448e-2);
}

/// Every loss, the first and the last gradient of every tensor and the weights, each by twice its
/// limit. A tensor's limit is of the size that its error is measured by.
TEST(Check, FindsErrorsOfTwiceTheLimitAndWhatIsNoNumber) {
  Case c = serial_case();
  c.steps = 4;
  const Training right = float64_reference(c, c.steps);
  const Tolerance t = float64_tolerance(c);
  EXPECT_EQ(compare(right, right).failure(t), "");
  for (const float limits : {2.0F, not_a_number}) {
    Training wrong = right;
    const auto expect_failure = [&](const std::string& what) {
      EXPECT_THAT(compare(std::exchange(wrong, right), right).failure(t), StartsWith(what));
    };
    for (int s = 0; s < c.steps; ++s) {
      wrong.losses[s] *= 1 + limits * (s == 0 ? t.first : t.later).loss;
      expect_failure(s == 0 ? "the first loss" : "a later loss");
    }
    for (const auto part : {&Training::gradients, &Training::later})
      for (std::size_t i = 0; i < right.gradients.size(); ++i) {
        const bool later = part == &Training::later;
        const auto add = [&](double difference) {
          for (float& v : (wrong.*part)[i].values)
            v += static_cast<float>(difference);
        };
        add(1);
        const double of_one =
            compare_gradients(std::exchange(wrong, right).*part, right.*part).worst;
        add(limits * (later ? t.later : t.first).gradient / of_one);
        expect_failure(
            (later ? "the last gradient of " : "the gradient of ") + (right.*part)[i].name);
      }
    wrong.weights = {limits * t.weights, "w"};
    expect_failure("w differs from AdamW");
  }
}

TEST(Check, TheClosestFigureUsesTheLargestShareOfItsLimit) {
  const Tolerance t{"serial reference", {1e-6, 1e-5}, {1e-4, 1e-3}, 1e-2};
  Check found{{6e-7, {5e-6, "a"}}, {1e-5, {4e-4, "b"}}, {3e-3, "c"}};
  EXPECT_EQ(found.closest(t).what, "the first loss");
  EXPECT_NEAR(found.closest(t).share(), 0.6, 1e-12);
  found.later.loss = not_a_number;
  EXPECT_EQ(found.closest(t).what, "a later loss");
}

/// What AdamW makes of gradients depends on the learning rate, and on a limit between them.
TEST(Weights, OfAnotherLearningRateOrLimitAreWrong) {
  for (const Dtype dtype : {Dtype::fp32, Dtype::bf16})
    for (const auto& [rate, limit] : {std::pair{1.0, 1.0}, {1.001, 1.0}, {1.0, 2.0}}) {
      Case c = serial_case(2, dtype);
      c.clip_norm = 1.07;  // a gradient is longer, or the last row would pass
      engine::Runtime runtime(plan_of(c), 0);
      runtime.connect();
      c.learning_rate *= rate;
      c.clip_norm *= limit;
      const Training found = run_steps(runtime, c, c.steps, MPI_COMM_SELF);
      EXPECT_EQ(found.weights.worst <= serial_tolerance(c).weights, rate * limit == 1)
          << found.weights.worst;
    }
}

TEST(References, AreOfTheirCase) {
  References references;
  std::vector<Case> cases(7, serial_case());
  cases[1].seed = 12;
  cases[2].micro_batches = 5;
  cases[3].shape.seq = 12;
  cases[4].shape.ffn = 48;
  cases[5].shape.dtype = Dtype::bf16;
  cases[6].shape.heads = cases[6].shape.kv_heads;
  std::set<double> losses;
  for (const bool again : {false, true})
    for (const Case& c : cases) {
      const double loss = references.of(c).losses.at(0);
      EXPECT_EQ(loss, serial_reference(c, 1).losses[0]) << again;
      losses.insert(loss);
    }
  EXPECT_EQ(losses.size(), cases.size());
}
}  // namespace
}  // namespace minitaw::harness
