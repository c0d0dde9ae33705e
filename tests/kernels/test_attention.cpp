// SPDX-License-Identifier: BSD-3-Clause
// All versions of attention against the plain double-precision one, over odd shapes, into poisoned
// outputs.
#include <gmock/gmock.h>
#include "kernels/attention_problem.hpp"

namespace minitaw::kernels {
namespace {
/// The longest has more than eight tiles of keys, however large they are.
const std::vector<AttentionSizes> shapes = {{1, 1, 1, 1, 2},
    {2, 1, 4, 2, 6},
    {1, 5, 6, 3, 10},
    {3, 17, 4, 1, 4},
    {1, 64, 2, 2, 32},
    {2, 63, 3, 3, 8},
    {1, 129, 4, 2, 64},
    {1, 161, 2, 1, 128},
    {2, 200, 2, 2, 16},
    {1, 33, 1, 1, 256},
    {2, 2, 3, 1, 24},
    {1, 300, 4, 4, 72},
    {1, 1100, 2, 1, 8}};

template <class V>
class AttentionTest : public AttentionFixture<V> {
protected:
  /// Skips the test if no shape is possible. Teams of several threads on a host leave out the long
  /// shapes.
  static void for_shapes(const auto& run) {
    int possible = 0;
    for (const AttentionSizes& z : shapes) {
      if (!AttentionTest::reason_against(z).empty() || (detail::threads_on_host > 1 && z.seq > 40))
        continue;
      ++possible;
      if (test::left_out(std::int64_t{z.batch} * z.heads * z.seq * z.seq))
        continue;
      SCOPED_TRACE(text(z));
      run(z);
    }
    if (possible == 0)
      GTEST_SKIP() << AttentionTest::reason_against(AttentionSizes{1, 64, 2, 2, 64});
  }
};

TYPED_TEST_SUITE(AttentionTest, Versions, VersionName);

TYPED_TEST(AttentionTest, ForwardAndBackward) {
  this->for_shapes([this](const AttentionSizes& z) {
    Problem<TypeParam> p(whole(z));
    p.forward();
    p.expect_forward(this->near);
    p.backward();
    p.expect_backward(this->near);
  });
}

TYPED_TEST(AttentionTest, LargeScoresDoNotOverflow) {
  this->for_shapes([this](const AttentionSizes& z) {
    Problem<TypeParam> p(whole(z), false, 200);
    p.forward();
    // scores near 10^5 carry an absolute error near 10^-2
    expect_close(p.y.values(), reference::attention_forward(p.qkv, z), std::max(this->near, 1e-3));
  });
}

TYPED_TEST(AttentionTest, GivesTheSameBitsEveryTimeQuietly) {
  this->for_shapes([](const AttentionSizes& z) {
    Problem<TypeParam> p(whole(z));
    const auto execute = [&] {
      p.forward();
      p.backward();
      // cuDNN's backward pass sums in any order
      return std::pair(
          p.y.values(), TypeParam::kernel == Attention::cudnn ? Doubles() : p.dqkv.values());
    };
    const auto first = execute();
    const std::size_t bytes = library_bytes();
    EXPECT_EQ(execute(), first);
    EXPECT_EQ(library_bytes(), bytes);
  });
}

TEST(AttentionTasks, GiveTheSameBits) {
  for (const AttentionSizes& z : shapes)
    expect_same_bits_by_tasks(whole(z));
}

TEST(AttentionNames, AreThoseOfDecks) {
  for (const Attention kernel :
      {Attention::automatic, Attention::host, Attention::portable, Attention::cudnn})
    EXPECT_EQ(parse_attention(name_of(kernel)), kernel);
  EXPECT_EQ(name_of(Attention::automatic), "auto");
  EXPECT_THROW((void)parse_attention("flash"), InputError);
}

TEST(AttentionChoice, IsNeverAutomatic) {
  for (const AttentionSizes& z : shapes) {
    EXPECT_EQ(resolve_attention<float>(Attention::automatic, {z}).kernel,
        on_host ? Attention::host : Attention::portable);
    const auto [chosen, reason] = resolve_attention<Bf16>(Attention::automatic, {z});
    EXPECT_TRUE(chosen == Attention::portable || chosen == Attention::cudnn);
    EXPECT_EQ(reason.empty(), chosen == Attention::cudnn);
    EXPECT_EQ(resolve_attention<Bf16>(chosen, {z}).kernel, chosen);
  }
}

TEST(AttentionChoice, IsCudnnIfThatComputesAllCalls) {
  const AttentionSizes two{2, 8, 2, 1, 16};
  const auto [alone, why] = resolve_attention<Bf16>(Attention::automatic, {two});
  if (alone != Attention::cudnn)
    GTEST_SKIP() << why;
  const AttentionPart in_chunks(two, {0, 8, 8}, {}, 32, 8);
  const auto [both, reason] = resolve_attention<Bf16>(Attention::automatic, {two, in_chunks});
  EXPECT_EQ(both, Attention::portable);
  EXPECT_THAT(reason, ::testing::HasSubstr("chunks"));
  EXPECT_THROW((void)resolve_attention<Bf16>(Attention::cudnn, {two, in_chunks}), InputError);
}

TEST(AttentionChoice, RefusesWhatTheBuildOrTheShapeCannot) {
  const AttentionSizes odd{1, 8, 2, 1, 12}, wide{1, 8, 2, 1, 256}, good{1, 8, 2, 1, 64};
  EXPECT_THROW((void)resolve_attention<Bf16>(Attention::host, {good}), InputError);
  EXPECT_THROW((void)resolve_attention<float>(Attention::cudnn, {good}), InputError);
  for (const AttentionSizes& bad : {odd, wide})
    EXPECT_THROW((void)resolve_attention<Bf16>(Attention::cudnn, {bad}), InputError) << text(bad);
  EXPECT_THROW(attention_prepare<float>(exec(), good, Attention::cudnn), InputError);
}
}  // namespace
}  // namespace minitaw::kernels
