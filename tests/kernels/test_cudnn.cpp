// SPDX-License-Identifier: BSD-3-Clause
// When and where cuDNN builds its plans and runs them, with a stand-in. What they compute:
// test_attention.cpp in this program.

#include "kernels/vendor/libraries.hpp"

#include <gtest/gtest.h>
#include "base/error.hpp"
#include "kernels/fake_cudnn.hpp"

namespace minitaw::kernels::detail::vendor {
namespace {
namespace cudnn = test::cudnn;

const AttentionSizes grouped{2, 5, 4, 2, 16};

class Cudnn : public ::testing::Test {
protected:
  void SetUp() override { cudnn::state = {}; }

  void TearDown() override { EXPECT_EQ(cudnn::state.handles, 0); }
};

TEST_F(Cudnn, RunsInItsStreamWithTheWorkspaceThatItAsksFor) {
  int name = 0, place = 0;
  const auto stream = reinterpret_cast<cudaStream_t>(&name);
  CudnnAttention attention(stream);
  EXPECT_EQ(attention.prepare(grouped), 4096);  // what the larger of the two needs
  std::vector<Bf16> memory(2 * 5 * 8 * 16);
  std::vector<float> lse(2 * 4 * 5);
  attention.forward(
      grouped, memory.data(), lse.data(), memory.data(), {memory.data(), memory.data()}, &place);
  EXPECT_EQ(cudnn::state.stream, stream);
  EXPECT_EQ(cudnn::state.workspace, &place);
}

TEST_F(Cudnn, BuildsThePlansOfAShapeOnceAndBeforeTheyAreNeeded) {
  CudnnAttention attention(nullptr);
  EXPECT_THROW(attention.forward(grouped, nullptr, nullptr, nullptr, {}, nullptr), LogicError);
  const AttentionSizes other{1, 9, 6, 3, 8};
  // forward and backward of three parts; their graph is the same wherever rows and heads begin
  for (const AttentionPart& part : std::vector<AttentionPart>{grouped,
           other,
           {grouped, {0, 5, 0}},
           {other, {0, 4, 5}, {1, 1}},
           {other, {3, 4, 5}, {2, 1}}})
    (void)attention.prepare(part);
  EXPECT_EQ(cudnn::state.built, 6);
}

TEST_F(Cudnn, SaysWhyItCannot) {
  const auto of_width = [](int head_dim) {
    return reason_against_cudnn(AttentionSizes{1, 8, 2, 1, head_dim});
  };
  const auto of_chunks = [](int batch) {
    return reason_against_cudnn({{batch, 8, 2, 1, 16}, {0, 8, 8}, {}, 32, 8});
  };
  for (const int head_dim : {12, 136})
    EXPECT_EQ(of_width(head_dim), "head_dim must be a multiple of 8, at most 128");
  EXPECT_EQ(of_chunks(2),
      "keys and values of several sequences lie in chunks (micro_batch = 1 avoids that)");
  EXPECT_EQ(of_chunks(1), "");
  cudnn::state.capability = 7;
  EXPECT_EQ(of_width(16), "the device has compute capability 7.x, and 8.0 is needed");
  cudnn::state = {};
  cudnn::state.refusal = "no kernel";
  EXPECT_EQ(of_width(24), "no kernel");
  EXPECT_THROW((void)CudnnAttention(nullptr).prepare(grouped), std::runtime_error);
  cudnn::state = {};
  EXPECT_EQ(of_width(24), "no kernel");  // remembered
  for (const int head_dim : {8, 128})
    EXPECT_EQ(of_width(head_dim), "");
  EXPECT_EQ(cudnn::state.built, 0);  // asking compiles nothing
}
}  // namespace
}  // namespace minitaw::kernels::detail::vendor
