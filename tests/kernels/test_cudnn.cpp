// SPDX-License-Identifier: BSD-3-Clause
// When and where cuDNN builds its plans and runs them, with a stand-in. What they compute:
// test_attention.cpp in this program.

#include "kernels/cuda/libraries.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include "base/error.hpp"
#include "kernels/fake_cudnn.hpp"

namespace minitaw::kernels::detail::cuda {
namespace {
namespace cudnn = test::cudnn;

const std::vector<AttentionSizes> shapes = {
    {1, 1, 1, 1, 8}, {2, 5, 4, 2, 16}, {3, 17, 6, 3, 8}, {1, 33, 4, 1, 128}, {2, 9, 3, 3, 24}};

class Cudnn : public ::testing::Test {
protected:
  void SetUp() override { cudnn::state = {}; }

  void TearDown() override { EXPECT_EQ(cudnn::state.handles, 0); }
};

TEST_F(Cudnn, RunsInItsStreamWithTheWorkspaceThatItAsksFor) {
  int name = 0, place = 0;
  const auto stream = reinterpret_cast<cudaStream_t>(&name);
  CudnnAttention attention(stream);
  const AttentionSizes z = shapes[1];
  EXPECT_EQ(attention.prepare(z), 4096);  // what the larger of the two needs
  std::vector<Bf16> qkv(z.batch * AttentionPart(z).row_of_qkv() * z.seq), y(qkv.size());
  std::vector<float> lse(z.batch * z.heads * z.seq);
  const KeyValues<Bf16> from = AttentionPart(z).in(qkv.data());
  attention.forward(z, y.data(), lse.data(), qkv.data(), {from.keys, from.values}, &place);
  EXPECT_EQ(cudnn::state.streams, std::set{stream});
  EXPECT_EQ(cudnn::state.workspaces, std::set<void*>{&place});
}

TEST_F(Cudnn, BuildsThePlansOfAShapeOnceAndBeforeTheyAreNeeded) {
  CudnnAttention attention(nullptr);
  EXPECT_THROW(attention.forward(shapes[0], nullptr, nullptr, nullptr, {}, nullptr), LogicError);
  for (const AttentionSizes& z : {shapes[0], shapes[1], shapes[0]})
    (void)attention.prepare(z);
  (void)attention.prepare({shapes[0], {0, shapes[0].seq, 0}});  // the same part
  const auto of_heads = [&](int first) {  // their graph is the same, wherever they begin
    (void)attention.prepare({{1, 9, 6, 3, 8}, {0, 4, 5}, {first, 1}});
  };
  of_heads(1);
  const auto built = cudnn::state.built.size();
  of_heads(2);
  EXPECT_EQ(cudnn::state.built.size(), built);
  cudnn::state.built.resize(built - 2);
  std::ranges::sort(cudnn::state.built);
  const std::string one = "attention_backward", other = "attention_forward";
  EXPECT_EQ(cudnn::state.built, (std::vector{one, one, other, other}));
}

TEST_F(Cudnn, SaysWhyItCannot) {
  const auto expect = [](const AttentionPart& part, const std::string& words) {
    EXPECT_EQ(reason_against_cudnn(part), words);
  };
  const auto with = [](int batch, int head_dim) {
    return AttentionSizes{batch, 8, 2, 1, head_dim};
  };
  expect(with(1, 12), "head_dim must be a multiple of 8, at most 128");
  expect(with(1, 136), "head_dim must be a multiple of 8, at most 128");
  const auto prefix = [&](int batch) {
    return AttentionPart(with(batch, 16), {0, 8, 8}, {}, 32, 8);
  };
  expect(prefix(2),
      "keys and values of several sequences lie in chunks (micro_batch = 1 avoids that)");
  expect(prefix(1), "");
  cudnn::state.capability = 7;
  expect(with(1, 16), "the device has compute capability 7.x, and 8.0 is needed");
  cudnn::state = {};
  cudnn::state.refusal = "no kernel";
  expect(with(1, 24), "no kernel");
  EXPECT_THROW((void)CudnnAttention(nullptr).prepare(with(1, 24)), std::runtime_error);
  cudnn::state = {};
  expect(with(1, 24), "no kernel");  // remembered
  for (const AttentionSizes& z : shapes)
    expect(z, "");
  EXPECT_TRUE(cudnn::state.built.empty());  // asking compiles nothing
}

}  // namespace
}  // namespace minitaw::kernels::detail::cuda
