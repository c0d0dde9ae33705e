// Both versions of attention against the plain double-precision one, over odd shapes, into poisoned outputs.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.hpp"
#include "kernels/attention.hpp"
#include "kernels/device_matrix.hpp"
#include "kernels/reference/attention.hpp"

namespace minitaw::kernels {
namespace {

using test::Doubles;
using test::expect_close;
using Device = test::DeviceMatrix<float>;

ExecutionSpace exec() { return {}; }
const std::vector<AttentionSizes> shapes = {
    {1, 1, 1, 1, 2},  {2, 1, 4, 2, 6},    {1, 5, 6, 3, 10},    {3, 17, 4, 1, 4},   {1, 64, 2, 2, 32},
    {2, 63, 3, 3, 8}, {1, 129, 4, 2, 64}, {1, 257, 2, 1, 128}, {2, 200, 2, 2, 16}, {1, 33, 1, 1, 256}};

class AttentionTest : public ::testing::TestWithParam<std::tuple<AttentionSizes, Attention>> {
protected:
  void SetUp() override {
    if (kernel == Attention::host && !on_host) GTEST_SKIP() << "the host version needs a host build";
  }
  void forward() {
    attention_forward(exec(), y.matrix(), lse.vector(), in.matrix(), z, kernel);
    exec().fence();
  }

  AttentionSizes z = std::get<0>(GetParam());
  Attention kernel = std::get<1>(GetParam());
  reference::AttentionSizes plain{z.batch, z.seq, z.heads, z.kv_heads, z.head_dim};
  int rows = z.batch * z.seq, width = z.heads * z.head_dim;
  Doubles qkv = test::random_floats(rows * plain.stride(), 1, 2);
  Device in{rows, plain.stride(), qkv};
  Device y = Device::poisoned(rows, width), lse = Device::poisoned(z.batch * z.heads, z.seq);
};

std::string name_of(const ::testing::TestParamInfo<AttentionTest::ParamType>& info) {
  const AttentionSizes& z = std::get<0>(info.param);
  return (std::get<1>(info.param) == Attention::host ? "host" : "portable") +
         ("_B" + std::to_string(z.batch)) + "_S" + std::to_string(z.seq) + "_h" + std::to_string(z.heads) +
         "_g" + std::to_string(z.kv_heads) + "_d" + std::to_string(z.head_dim);
}
INSTANTIATE_TEST_SUITE_P(Shapes, AttentionTest,
                         ::testing::Combine(::testing::ValuesIn(shapes),
                                            ::testing::Values(Attention::host, Attention::portable)),
                         name_of);

TEST_P(AttentionTest, Forward) {
  Doubles expected(rows * width);
  reference::attention_forward(expected, qkv, plain);
  forward();
  expect_close(y.values(), expected);
}

TEST_P(AttentionTest, LogSumExpOfEachRow) {
  forward();
  const Doubles got = lse.values();
  for (int b = 0; b < z.batch; ++b)
    for (int head = 0; head < z.heads; ++head)
      for (int s = 0; s < z.seq; s += 1 + z.seq / 9) {
        double sum = 0;
        for (int k = 0; k <= s; ++k)
          sum +=
              std::exp(reference::dot(qkv, qkv, plain.query(b, s, head), plain.key(b, k, head), z.head_dim) /
                       std::sqrt(z.head_dim));
        EXPECT_NEAR(got[(b * z.heads + head) * z.seq + s], std::log(sum), 1e-5);
      }
}

TEST_P(AttentionTest, Backward) {
  const Doubles dy = test::random_floats(rows * width, 2);
  Doubles expected(qkv.size());
  reference::attention_backward(expected, dy, qkv, plain);
  forward();
  const Device slope(rows, width, dy), dqkv = Device::poisoned(rows, plain.stride()),
                                       delta = Device::poisoned(z.batch * z.heads, z.seq);
  attention_backward(exec(), dqkv.matrix(), delta.vector(), slope.matrix(), in.matrix(), y.matrix(),
                     lse.vector(), z, kernel);
  exec().fence();
  expect_close(dqkv.values(), expected);
}

TEST_P(AttentionTest, LargeScoresDoNotOverflow) {
  Doubles large = qkv;
  for (double& value : large) value *= 100;
  in = Device(rows, plain.stride(), large);
  Doubles expected(rows * width);
  reference::attention_forward(expected, large, plain);
  forward();
  expect_close(y.values(), expected, 1e-3);  // scores near 10^5 carry an absolute error near 10^-2
}

TEST_P(AttentionTest, GivesTheSameBitsEveryTime) {
  forward();
  const Doubles first = y.values();
  for (int i = 0; i < 3; ++i) forward();
  EXPECT_EQ(y.values(), first);
}

}  // namespace
}  // namespace minitaw::kernels
