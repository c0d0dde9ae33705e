// The host's attention backward, shared among threads by heads and by tiles.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/detail/backends.hpp"
#include "kernels/device_matrix.hpp"

namespace minitaw::kernels {
namespace {

using detail::host::Tasks;
using test::Doubles;
using Floats = test::DeviceMatrix<float>;

class AttentionTasks : public testing::TestWithParam<AttentionSizes> {};

TEST_P(AttentionTasks, GiveTheSameBits) {
  const AttentionSizes z = GetParam();
  const ExecutionSpace exec;
  const int rows = z.batch * z.seq, width = z.heads * z.head_dim, all = width + 2 * z.kv_heads * z.head_dim;
  const Floats qkv(rows, all, test::random_values<float>(rows * all, 1)),
      dy(rows, width, test::random_values<float>(rows * width, 2)),
      y = Floats::poisoned(rows, width), lse = Floats::poisoned(z.batch * z.heads, z.seq);
  attention_forward<float>(exec, y.matrix(), lse.vector(), qkv.matrix(), z, Attention::host);
  const auto backward = [&](Tasks tasks) {
    const Floats dqkv = Floats::poisoned(rows, all);
    detail::host::attention_backward(exec, dqkv.matrix(), dy.matrix(), qkv.matrix(), y.matrix(), lse.vector(),
                                     z, tasks);
    exec.fence();
    return dqkv.values();
  };
  const Doubles by_heads = backward(Tasks::heads);
  EXPECT_FALSE(std::ranges::any_of(by_heads, [](double v) { return std::isnan(v); }));
  EXPECT_EQ(by_heads, backward(Tasks::tiles));
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionTasks,
                         testing::Values(AttentionSizes{1, 1, 1, 1, 2}, AttentionSizes{2, 63, 3, 3, 8},
                                         AttentionSizes{1, 128, 2, 2, 16}, AttentionSizes{1, 129, 4, 2, 64},
                                         AttentionSizes{2, 300, 6, 2, 10}, AttentionSizes{1, 401, 3, 1, 128},
                                         AttentionSizes{1, 1100, 2, 1, 8}));

}  // namespace
}  // namespace minitaw::kernels
