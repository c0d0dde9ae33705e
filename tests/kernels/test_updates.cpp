// SPDX-License-Identifier: BSD-3-Clause
// What adds up gradients and updates weights, against plain double precision.
#include "kernels/layers.hpp"

namespace minitaw::kernels {
namespace {
template <class C>
class Updates : public Layers<C> {};

TYPED_TEST_SUITE(Updates, Cases, CaseName);

/// Of gradients with norms near 0.02, half of them of other weights: a limit above leaves them, one
/// below shortens them.
TYPED_TEST(Updates, AdamWFollowsTheReferenceOverSteps) {
  const int count = 1003;
  for (const double limit : {0.0, 0.005, 1.0}) {
    Doubles w = test::random_values(count, 1), m1(count, 0), m2(count, 0);
    const Floats master(w), moment1(m1), moment2(m2), alone(w), alone1(m1), alone2(m2);
    const auto weights = this->poisoned(count, 1);
    for (int step = 1; step <= 3; ++step) {
      const Doubles gradient = test::random_values(count, 10 + step, 1e-3);
      const double squares = 2 * test::dot(gradient, gradient);
      const double factor = limit > 0 ? std::min(1.0, limit / (std::sqrt(squares) + 1e-6)) : 1;
      ASSERT_EQ(factor < 1, limit == 0.005);
      reference::adamw(w, m1, m2, gradient, factor, {}, step);
      const Floats slope(gradient), sum(Doubles{squares});
      const auto update =
          [&](auto into, const Floats& of, const Floats& first, const Floats& second) {
            adamw(exec(),
                into,
                of.vector(),
                first.vector(),
                second.vector(),
                slope.vector(),
                {.clip_norm = static_cast<float>(limit)},
                step,
                limit > 0 ? sum.vector().data() : nullptr);
          };
      this->launch_([&] {
        update(weights.vector(), master, moment1, moment2);
        update(alone.vector(), alone, alone1, alone2);
      });
      EXPECT_EQ(weights.values(), test::rounded<typename TypeParam::E>(master.values()));
    }
    for (const auto& [found, right] :
        {std::pair{&master, &w}, {&moment1, &m1}, {&moment2, &m2}, {&alone, &w}})
      expect_close(found->values(), *right, 1e-6);
  }
}

TYPED_TEST(Updates, SquaresAddUpWhateverTheirNumber) {
  for (const int count : {1, 513, 40'001}) {
    const Doubles values = test::random_values(count, count, 0.1);
    const Floats given(values), sum = Floats::poisoned(1);
    const Kokkos::View<double*, ExecutionSpace::memory_space> partials(
        "partials", most_square_partials);
    for (int times = 1; times <= 2; ++times) {
      this->launch_([&] {
        add_squares(exec(), sum.vector().data(), partials.data(), given.vector(), times > 1);
      });
      expect_close(sum.values(), {times * test::dot(values, values)}, 1e-6);
    }
  }
}

/// Ties, their neighbours, subnormals and extremes of bf16, then random floats.
Doubles hard_to_round(int count) {
  Doubles values = test::random_values(count, 1);
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
    this->shift_ = shift;
    const Doubles before = hard_to_round(count);
    const Floats total(before), written = Floats::poisoned(count);
    const auto contribution = this->random(count, 1), rounded = this->poisoned(count, 1);
    this->launch_([&] {
      round<E>(exec(), rounded.vector(), total.vector());
      add<E>(exec(), total.vector(), contribution.vector(), true);
      add<E>(exec(), written.vector(), contribution.vector(), false);
    });
    const Doubles more = contribution.values();
    test::expect_same(total.values(), test::rounded<float>(test::sum_of(before, more)));
    EXPECT_EQ(written.values(), more);
    test::expect_same(rounded.values(), test::rounded<E>(before));
  }
}
}  // namespace
}  // namespace minitaw::kernels
