// SPDX-License-Identifier: BSD-3-Clause
// A step executed on device queues stops the host nowhere and takes no memory, as Kokkos sees it.
// On a host the queues are simulated; on a device they are its streams.
#include <gtest/gtest.h>
#include "engine/runtime.hpp"
#include "engine/simulated_stream.hpp"
#include "harness/cases.hpp"
#include "kokkos_listener.hpp"

namespace minitaw::engine {
namespace {
class Quiet : public ::testing::TestWithParam<model::Dtype> {};

INSTANTIATE_TEST_SUITE_P(Dtypes,
    Quiet,
    ::testing::Values(model::Dtype::fp32, model::Dtype::bf16),
    [](const auto& param_info) { return name_of(param_info.param); });

TEST_P(Quiet, AStepAfterTheFirstNeitherFencesNorAllocates) {
  Case c = harness::tests::small_case("serial", topology::Groups({1}), 3, 2);
  c.shape.dtype = GetParam();
  StepOptions options;
  if (kernels::on_host)
    options.make_queues = tests::simulated_streams;
  Runtime runtime(plan_of(c), 0, options);
  runtime.connect();
  runtime.prepare();
  (void)runtime.step();
  for (int step = 0; step < 2; ++step) {
    runtime.prepare();
    const test::KokkosListener listener;
    const double seconds = runtime.step();
    EXPECT_EQ(listener.seen(), test::KokkosListener::Seen());
    EXPECT_GT(seconds, 0);
  }
}
}  // namespace
}  // namespace minitaw::engine
