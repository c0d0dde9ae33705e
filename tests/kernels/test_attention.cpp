// SPDX-License-Identifier: BSD-3-Clause
// All versions of attention against the plain double-precision one of whole sequences, over odd
// shapes: whole ones, and runs of queries whose keys and values lie in the fused projection or in
// buffers of their own. Outputs and what a call must not read or write hold NaN.
#include <gmock/gmock.h>
#include "fixtures.hpp"
#include "kernels/attention_problem.hpp"

namespace minitaw::kernels {
namespace {
/// What a test can choose; small tiles: on a host, as on a device whose fast memory has no room for
/// others.
template <class Element, Attention version, bool in_small_tiles = false>
struct Version {
  using E = Element;
  static constexpr Attention kernel = version;
  static constexpr bool small = in_small_tiles;
};

using Versions = ::testing::Types<Version<float, Attention::host>,
    Version<float, Attention::portable>,
    Version<Bf16, Attention::portable>,
    Version<float, Attention::portable, true>,
    Version<Bf16, Attention::portable, true>,
    Version<Bf16, Attention::cudnn>>;

struct VersionName {
  template <class V>
  static std::string GetName(int) {
    return name_of(V::kernel) + (V::small ? "_small" : "") + "_" + test::type_name<typename V::E>;
  }
};

const AttentionSizes wide{1, 161, 2, 1, 128};
/// The longest has more than eight tiles of keys, however large they are.
const std::vector<AttentionPart> cases = {{{1, 1, 1, 1, 2}},
    {{3, 17, 4, 1, 4}},
    {{2, 63, 6, 3, 8}},
    {wide},
    {{1, 33, 1, 1, 256}},
    {{1, 1030, 1, 1, 2}},
    {{3, 11, 4, 2, 6}, {4, 7, 20}, {}, 24, 27},         // one chunk, [B, S]
    {{2, 20, 4, 2, 16}, {5, 15, 30}, {}, 64, 47},       //
    {{2, 9, 6, 3, 10}, {0, 9, 36}, {}, 60, 9},          // chunks, each with all sequences
    {{1, 50, 4, 2, 64}, {0, 50, 25}, {}, 256, 15},      // more queries than keys before them
    {{2, 140, 2, 1, 4}, {3, 133, 131}, {}, 8, 37},      // tiles across chunks
    {{2, 1, 6, 3, 10}, {0, 1, 130}, {}, 60, 50},        // one query, tiles that begin in a chunk
    {{2, 50, 4, 2, 8}, {20, 30, 20}},                   // in the projection
    {{1, 190, 2, 1, 24}, {13, 140, 13}},                //
    {{1, 30, 6, 3, 10}, {10, 20, 13}, {2, 1}, 20, 11},  // some heads
    {{2, 30, 6, 3, 16}, {7, 23, 7}, {1, 2}}};

/// Tests of one version.
template <class V>
class AttentionTest : public ::testing::Test {
protected:
  using E = typename V::E;
  static constexpr double near = test::tolerance<E>;

  void SetUp() override {
    prepare(exec());
    detail::portable::small_tiles_on_host = V::small;
  }

  void TearDown() override { detail::portable::small_tiles_on_host = false; }

  /// Empty if this build and device can compute it.
  static std::string reason_against(const AttentionPart& part) {
    return test::refusal_of([&] { (void)resolve_attention<E>(V::kernel, {part}); });
  }

  /// Twice the same bits, the second time quietly. cuDNN's backward pass sums in any order.
  template <class G>
  static void expect_case(const AttentionPart& part, bool accumulate) {
    Problem<V, G> p(part, accumulate);
    p.forward();
    const Doubles first = p.y.values();
    p.forward();
    test::expect_same(p.y.values(), first);
    p.expect_forward(near);
    p.backward();
    if (!accumulate) {
      const Doubles gradient = p.dqkv.values();
      p.backward();
      if (V::kernel != Attention::cudnn)
        test::expect_same(p.dqkv.values(), gradient);
    }
    p.expect_backward(near);
  }
};

TYPED_TEST_SUITE(AttentionTest, Versions, VersionName);

/// Sums of keys' gradients in both types, written and added to: one pair or the other for each
/// case.
TYPED_TEST(AttentionTest, ForwardAndBackward) {
  int possible = 0;
  for (bool accumulate = false; const AttentionPart& part : cases) {
    if (!this->reason_against(part).empty())
      continue;
    SCOPED_TRACE(++possible);
    const AttentionSizes& z = part.z;
    if (test::left_out(z.seq, std::int64_t{z.batch} * z.heads * z.seq * part.run.end()))
      continue;
    accumulate = part.own_rows && !accumulate;
    this->template expect_case<typename TypeParam::E>(part, accumulate);
    if (part.own_rows)
      this->template expect_case<float>(part, !accumulate);
  }
  if (possible == 0)
    GTEST_SKIP() << this->reason_against(cases[2]);
}

TYPED_TEST(AttentionTest, LargeScoresDoNotOverflow) {
  const AttentionSizes z{1, 37, 2, 1, 64};
  if (!this->reason_against(z).empty())
    GTEST_SKIP() << this->reason_against(z);
  Problem<TypeParam> p(z, false, 200);
  p.forward();
  // scores near 10^5 carry an absolute error near 10^-2
  test::expect_close(
      p.y.values(), reference::attention_forward(p.qkv, z), std::max(this->near, 1e-3));
}

/// The host's backward pass, shared among threads by heads and by tiles.
TEST(AttentionTasks, GiveTheSameBits) {
  if constexpr (on_host) {
    using detail::host::Tasks;
    for (const AttentionPart& part : cases) {
      const auto backward = [&](Tasks tasks) {
        Problem<Version<float, Attention::host>> p(part, part.own_rows);
        p.forward();
        detail::host::attend(exec(), detail::placed(p.backward_call()), tasks);
        exec().fence();
        return std::pair(p.dqkv.values(), p.sums.values());
      };
      const auto by_heads = backward(Tasks::heads), by_tiles = backward(Tasks::tiles);
      test::expect_same(by_tiles.first, by_heads.first);
      test::expect_same(by_tiles.second, by_heads.second);
    }
  }
}

TEST(AttentionChoice, IsNeverAutomatic) {
  EXPECT_EQ(resolve_attention<float>(Attention::automatic, {wide}).kernel,
      on_host ? Attention::host : Attention::portable);
  const auto [chosen, reason] = resolve_attention<Bf16>(Attention::automatic, {wide});
  EXPECT_TRUE(chosen == Attention::portable || chosen == Attention::cudnn);
  EXPECT_EQ(reason.empty(), chosen == Attention::cudnn);
  EXPECT_THROW(attention_prepare<float>(exec(), wide, Attention::cudnn), InputError);
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
  EXPECT_NO_THROW(AttentionPart(z, {5, 5, 100}, {}, 16, 10));
}
}  // namespace
}  // namespace minitaw::kernels
