// SPDX-License-Identifier: BSD-3-Clause
// What cuDNN is told, executed by a stand-in and compared with the plain double-precision
// attention.

#include "kernels/cuda/libraries.hpp"

#include <gtest/gtest.h>
#include "base/error.hpp"
#include "base/range.hpp"
#include "kernels/finite_difference.hpp"
#include "kernels/reference.hpp"

namespace minitaw::kernels::detail::cuda {
namespace {
using reference::Doubles;
using Halves = std::vector<Bf16>;
namespace cudnn = test::cudnn;

const std::vector<AttentionSizes> shapes = {
    {1, 1, 1, 1, 8}, {2, 5, 4, 2, 16}, {3, 17, 6, 3, 8}, {1, 33, 4, 1, 128}, {2, 9, 3, 3, 24}};

Halves halves(const Doubles& values) {
  return list_of(values, [](double v) { return to_bf16(static_cast<float>(v)); });
}

Doubles doubles(const Halves& values) {
  return list_of(values, [](Bf16 v) { return double{to_float(v)}; });
}

/// Every element, relative to the largest.
void expect_each_close(const Doubles& a, const Doubles& b, double tolerance) {
  double largest = 0, difference = 0;
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_FALSE(std::isnan(a[i])) << i;
    largest = std::max(largest, std::abs(b[i]));
    difference = std::max(difference, std::abs(a[i] - b[i]));
  }
  EXPECT_LE(difference, tolerance * largest);
}

class Cudnn : public ::testing::Test {
protected:
  void SetUp() override { cudnn::state = {}; }

  void TearDown() override { EXPECT_EQ(cudnn::state.handles, 0); }
};

TEST_F(Cudnn, ComputesCausalAttentionInPlaceInTheProjection) {
  int name = 0, place = 0;
  const auto stream = reinterpret_cast<cudaStream_t>(&name);
  CudnnAttention attention(stream);
  for (const AttentionSizes& z : shapes) {
    SCOPED_TRACE(testing::Message()
                 << "S" << z.seq << " h" << z.heads << " g" << z.kv_heads << " d" << z.head_dim);
    const std::int64_t rows = std::int64_t{z.batch} * z.seq, row = reference::Places{z}.stride();
    const Halves qkv = halves(test::random_doubles(rows * row, 1, 2)),
                 dy = halves(test::random_doubles(rows * z.heads * z.head_dim, 2));
    Halves y(dy.size(), to_bf16(NAN)), dqkv(qkv.size(), to_bf16(NAN));  // poisoned
    std::vector<float> lse(rows * z.heads, NAN);
    EXPECT_EQ(attention.prepare(z), 4096);  // what the larger of the two needs
    attention.forward(z, y.data(), lse.data(), qkv.data(), &place);
    expect_each_close(doubles(y), reference::attention_forward(doubles(qkv), z), 0.005);
    attention.backward(z, dqkv.data(), dy.data(), qkv.data(), y.data(), lse.data(), &place);
    expect_each_close(
        doubles(dqkv), reference::attention_backward(doubles(dy), doubles(qkv), z), 0.02);
  }
  EXPECT_EQ(cudnn::state.streams, std::set{stream});
  EXPECT_EQ(cudnn::state.workspaces, std::set<void*>{&place});
}

TEST_F(Cudnn, BuildsThePlansOfAShapeOnceAndBeforeTheyAreNeeded) {
  CudnnAttention attention(nullptr);
  EXPECT_THROW(attention.forward(shapes[0], nullptr, nullptr, nullptr, nullptr), LogicError);
  for (const AttentionSizes& z : {shapes[0], shapes[1], shapes[0]})
    (void)attention.prepare(z);
  std::ranges::sort(cudnn::state.built);
  const std::string one = "attention_backward", other = "attention_forward";
  EXPECT_EQ(cudnn::state.built, (std::vector{one, one, other, other}));
}

TEST_F(Cudnn, SaysWhyItCannot) {
  const auto expect = [](const AttentionSizes& z, const std::string& words) {
    EXPECT_EQ(reason_against_cudnn(z), words);
  };
  expect({1, 8, 2, 1, 12}, "head_dim must be a multiple of 8, at most 128");
  expect({1, 8, 2, 1, 136}, "head_dim must be a multiple of 8, at most 128");
  cudnn::state.capability = 7;
  expect({1, 8, 2, 1, 16}, "the device has compute capability 7.x, and 8.0 is needed");
  cudnn::state = {};
  cudnn::state.refusal = "no kernel";
  expect({1, 8, 2, 1, 24}, "no kernel");
  EXPECT_THROW((void)CudnnAttention(nullptr).prepare({1, 8, 2, 1, 24}), std::runtime_error);
  cudnn::state = {};
  expect({1, 8, 2, 1, 24}, "no kernel");  // remembered
  for (const AttentionSizes& z : shapes)
    expect(z, "");
  EXPECT_TRUE(cudnn::state.built.empty());  // asking compiles nothing
}

TEST_F(Cudnn, TellsVersions) {
  EXPECT_EQ(std::tuple(cudnn_version(), cudnn_frontend_version()), std::tuple("9.19.0", "1.19.0"));
}
}  // namespace
}  // namespace minitaw::kernels::detail::cuda
