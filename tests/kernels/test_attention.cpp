// SPDX-License-Identifier: BSD-3-Clause
// All versions of attention against the plain double-precision one of whole sequences, over odd
// shapes: whole ones, and runs of queries whose keys and values lie in the fused projection or in
// buffers of their own. Outputs and what a call must not read or write hold NaN.
#include <gmock/gmock.h>
#include "kernels/attention_problem.hpp"

namespace minitaw::kernels {
namespace {
const AttentionSizes wide{1, 161, 2, 1, 128};
/// The longest has more than eight tiles of keys, however large they are.
const std::vector<Case> cases = {whole({1, 1, 1, 1, 2}),
    whole({3, 17, 4, 1, 4}),
    whole({2, 63, 6, 3, 8}),
    whole(wide),
    whole({1, 33, 1, 1, 256}),
    whole({1, 1030, 1, 1, 2}),
    {{3, 11, 4, 2, 6}, {4, 7, 20}, 27},             // one chunk, [B, S]
    {{2, 20, 4, 2, 16}, {5, 15, 30}, 45},           //
    {{2, 9, 6, 3, 10}, {0, 9, 36}, 9},              // chunks, each with all sequences
    {{1, 50, 4, 2, 64}, {0, 50, 25}, 15},           // more queries than keys before them
    {{2, 140, 2, 1, 4}, {3, 133, 131}, 37},         // tiles across chunks
    {{2, 1, 6, 3, 10}, {0, 1, 130}, 50},            // one query, tiles that begin in a chunk
    {{2, 50, 4, 2, 8}, {20, 30, 20}, 0},            // in the projection
    {{1, 190, 2, 1, 24}, {13, 140, 13}, 0},         //
    {{1, 30, 6, 3, 10}, {10, 20, 13}, 11, {2, 1}},  // some heads
    {{2, 30, 6, 3, 16}, {7, 23, 7}, 0, {0, 2}}};

template <class V>
class AttentionTest : public AttentionFixture<V> {
protected:
  using E = typename V::E;

  /// Twice the same bits, the second time quietly. cuDNN's backward pass sums in any order.
  template <class G>
  static void expect_case(const Case& c, bool accumulate) {
    Problem<V, G> p(c, accumulate);
    p.forward();
    const Doubles first = p.y.values();
    p.forward();
    test::expect_same(p.y.values(), first);
    p.expect_forward(AttentionTest::near);
    p.backward();
    if (!accumulate) {
      const Doubles gradient = p.dqkv.values();
      p.backward();
      if (V::kernel != Attention::cudnn)
        test::expect_same(p.dqkv.values(), gradient);
    }
    p.expect_backward(AttentionTest::near);
  }
};

TYPED_TEST_SUITE(AttentionTest, Versions, VersionName);

/// Sums of keys' gradients in both types, written and added to: one pair or the other for each
/// case.
TYPED_TEST(AttentionTest, ForwardAndBackward) {
  int possible = 0;
  for (bool accumulate = false; const Case& c : cases) {
    const std::int64_t stride = c.chunk > 0 ? 2 * c.z.kv_heads * c.z.head_dim : 0;
    if (!this->reason_against({c.z, c.run, c.kv_heads, stride, c.chunk}).empty())
      continue;
    ++possible;
    const std::int64_t scores = std::int64_t{c.z.batch} * c.z.heads * c.z.seq * c.run.end();
    if (test::left_out(scores) || (detail::threads_on_host > 1 && c.z.seq > 40))
      continue;
    SCOPED_TRACE(text(c));
    if (c.chunk == 0) {
      this->template expect_case<typename TypeParam::E>(c, false);
      continue;
    }
    accumulate = !accumulate;
    this->template expect_case<typename TypeParam::E>(c, accumulate);
    this->template expect_case<float>(c, !accumulate);
  }
  if (possible == 0)
    GTEST_SKIP() << this->reason_against(AttentionSizes{1, 64, 2, 2, 64});
}

TYPED_TEST(AttentionTest, LargeScoresDoNotOverflow) {
  const AttentionSizes z{1, 37, 2, 1, 64};
  if (!this->reason_against(z).empty())
    GTEST_SKIP() << this->reason_against(z);
  Problem<TypeParam> p(whole(z), false, 200);
  p.forward();
  // scores near 10^5 carry an absolute error near 10^-2
  expect_close(p.y.values(), reference::attention_forward(p.qkv, z), std::max(this->near, 1e-3));
}

/// The host's backward pass, shared among threads by heads and by tiles.
TEST(AttentionTasks, GiveTheSameBits) {
  if constexpr (on_host) {
    using detail::host::Tasks;
    for (const Case& c : cases) {
      SCOPED_TRACE(text(c));
      Problem<Version<float, Attention::host>> p(c, c.chunk > 0);
      p.forward();
      const auto backward = [&](Tasks tasks) {
        const auto dqkv = test::DeviceMatrix<float>::poisoned(p.z.batch * p.z.seq, p.here.stride());
        const test::DeviceMatrix<float> sums(p.kv_rows(), 2 * p.width, p.before);
        detail::host::attend(exec(), detail::placed(p.backward_into(dqkv, sums)), tasks);
        exec().fence();
        return std::pair(dqkv.values(), sums.values());
      };
      const auto by_heads = backward(Tasks::heads), by_tiles = backward(Tasks::tiles);
      test::expect_same(by_tiles.first, by_heads.first);
      test::expect_same(by_tiles.second, by_heads.second);
    }
  }
}

TEST(AttentionNames, AreThoseOfDecks) {
  for (const Attention kernel :
      {Attention::automatic, Attention::host, Attention::portable, Attention::cudnn})
    EXPECT_EQ(parse_attention(name_of(kernel)), kernel);
  EXPECT_EQ(name_of(Attention::automatic), "auto");
  EXPECT_THROW((void)parse_attention("flash"), InputError);
}

TEST(AttentionChoice, IsNeverAutomatic) {
  EXPECT_EQ(resolve_attention<float>(Attention::automatic, {wide}).kernel,
      on_host ? Attention::host : Attention::portable);
  const auto [chosen, reason] = resolve_attention<Bf16>(Attention::automatic, {wide});
  EXPECT_TRUE(chosen == Attention::portable || chosen == Attention::cudnn);
  EXPECT_EQ(reason.empty(), chosen == Attention::cudnn);
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
  const AttentionSizes odd{1, 8, 2, 1, 12}, wider{1, 8, 2, 1, 256}, good{1, 8, 2, 1, 64};
  EXPECT_THROW((void)resolve_attention<Bf16>(Attention::host, {good}), InputError);
  EXPECT_THROW((void)resolve_attention<float>(Attention::cudnn, {good}), InputError);
  for (const AttentionSizes& bad : {odd, wider})
    EXPECT_THROW((void)resolve_attention<Bf16>(Attention::cudnn, {bad}), InputError)
        << bad.head_dim;
  EXPECT_THROW(attention_prepare<float>(exec(), good, Attention::cudnn), InputError);
}

TEST(AttentionPart, IsInsideOfWhatItIsAPartOf) {
  const AttentionSizes z{2, 10, 4, 2, 8};
  const auto refused = [&](const QueryRun& run,
                           const HeadRange& kv_heads = {},
                           std::int64_t stride = 0,
                           int chunk = 0) {
    EXPECT_THROW(AttentionPart(z, run, kv_heads, stride, chunk), LogicError);
  };
  refused({4, 7, 0});               // after the last row
  refused({0, 5, 6});               // keys after the last row
  refused({0, 5, -1}, {}, 32, 10);  // before the first
  refused({}, {1, 2});
  refused({}, {}, 15, 10);  // rows that overlap
  refused({}, {}, 32);      // chunks of nothing
  const AttentionPart inside(z, {5, 5, 100}, {}, 16, 10);
  EXPECT_EQ(resolve_attention<float>(Attention::portable, {inside}).kernel, Attention::portable);
}

}  // namespace
}  // namespace minitaw::kernels
