// SPDX-License-Identifier: BSD-3-Clause
// What adds up gradients and updates weights, against plain double precision.
#include "kernels/layers.hpp"

namespace minitaw::kernels {
namespace {
template <class C>
class Updates : public Layers<C> {};

TYPED_TEST_SUITE(Updates, Cases, CaseName);

TYPED_TEST(Updates, AdamWFollowsTheReferenceOverSteps) {
  using E = typename TypeParam::E;
  const int count = 1003;
  const Doubles start = test::random_floats(count, 1);
  Doubles w = start, m1(count, 0), m2(count, 0);
  const Floats master(count, 1, start), moment1(count, 1, m1), moment2(count, 1, m2),
      alone(count, 1, start), alone1(count, 1, m1), alone2(count, 1, m2);
  const Device<TypeParam> weights = Device<TypeParam>::poisoned(count, 1);
  for (int step = 1; step <= 3; ++step) {
    const Doubles gradient = test::random_floats(count, 10 + step, 1e-3);
    reference::adamw(w, m1, m2, gradient, 1, {}, step);
    const Floats slope(count, 1, gradient);
    this->launch_([&] {
      adamw(exec(),
          weights.vector(),
          master.vector(),
          moment1.vector(),
          moment2.vector(),
          slope.vector(),
          {},
          step);
      adamw(exec(),
          alone.vector(),
          alone.vector(),
          alone1.vector(),
          alone2.vector(),
          slope.vector(),
          {},
          step);
    });
    EXPECT_EQ(weights.values(), test::rounded<E>(master.values()));
  }
  for (const auto& [found, right] :
      {std::pair{&master, &w}, {&moment1, &m1}, {&moment2, &m2}, {&alone, &w}})
    expect_close(found->values(), *right, 1e-6);
}

TYPED_TEST(Updates, SquaresAddUpWhateverTheirNumber) {
  for (const int count : {1, 513, 40'001}) {
    const Doubles values = test::random_floats(count, count, 0.1);
    const Floats given(count, 1, values), sum = Floats::poisoned(1, 1);
    const Kokkos::View<double*, ExecutionSpace::memory_space> partials(
        "partials", most_square_partials);
    const double squares = test::dot(values, values);
    for (int times = 1; times <= 2; ++times) {
      this->launch_([&] {
        add_squares(exec(), sum.vector().data(), partials.data(), given.vector(), times > 1);
      });
      expect_close(sum.values(), {times * squares}, 1e-6);
    }
  }
}

/// Of two vectors with norms near 0.018 together: a limit above leaves the gradient, one below
/// shortens it.
TYPED_TEST(Updates, AdamWShortensAGradientToItsLimit) {
  const int count = 203;
  const Doubles gradient = test::random_floats(count, 1, 1e-3),
                start = test::random_floats(count, 2);
  const double squares = test::dot(gradient, gradient) + 1e-4;  // of other weights
  for (const float limit : {0.005F, 1.0F}) {
    const double factor = std::min(1.0, limit / (std::sqrt(squares) + 1e-6));
    ASSERT_EQ(factor < 1, limit < 1);
    const Floats master(count, 1, start), moment1(count, 1, Doubles(count, 0)),
        moment2(count, 1, Doubles(count, 0)), slope(count, 1, gradient), sum(1, 1, {squares});
    this->launch_([&] {
      adamw(exec(),
          master.vector(),
          master.vector(),
          moment1.vector(),
          moment2.vector(),
          slope.vector(),
          {.learning_rate = 1e-3F, .clip_norm = limit},
          1,
          sum.vector().data());
    });
    Doubles expected1, expected2;
    for (const double g : gradient) {
      expected1.push_back(0.1 * factor * g);
      expected2.push_back(0.05 * factor * g * factor * g);
    }
    expect_close(moment1.values(), expected1, 1e-6);
    expect_close(moment2.values(), expected2, 1e-6);
  }
}

/// Ties, their neighbours, subnormals and extremes of bf16, then random floats.
Doubles hard_to_round(int count) {
  Doubles values = test::random_floats(count, 1);
  for (int i = 0; const std::uint32_t bits : {0x80000000U,
                      0x3f808000U,
                      0x3f818000U,
                      0x3f807fffU,
                      0x3f808001U,
                      0xbf808000U,
                      0x7f7f8000U,
                      0x7f7f7fffU,
                      0xff800000U,
                      0x00000001U,
                      0x00018000U,
                      0x7f800001U,
                      0xffffffffU,
                      0x7fbfffffU})
    if (++i < count)
      values[i] = std::bit_cast<float>(bits);
  return values;
}

TYPED_TEST(Updates, AddContributionsAndRoundTheirSum) {
  using E = typename TypeParam::E;
  for (const auto& [count, shift] : {std::pair{1, 0}, {8, 0}, {1003, 1}, {2048, 0}}) {
    const Doubles before = hard_to_round(count), more = this->random(count, 2);
    const Floats total(count, 1, before), written = Floats::poisoned(count, 1);
    const Device<TypeParam> contribution(count, 1, more, shift),
        rounded = Device<TypeParam>::poisoned(count, 1, shift);
    this->launch_([&] {
      round<E>(exec(), rounded.vector(), total.vector());
      add<E>(exec(), total.vector(), contribution.vector(), true);
      add<E>(exec(), written.vector(), contribution.vector(), false);
    });
    Doubles expected = before;
    std::ranges::transform(before, more, expected.begin(), std::plus());
    test::expect_same(total.values(), test::rounded<float>(expected));
    EXPECT_EQ(written.values(), contribution.values());
    test::expect_same(rounded.values(), test::rounded<E>(before));
  }
}
}  // namespace
}  // namespace minitaw::kernels
