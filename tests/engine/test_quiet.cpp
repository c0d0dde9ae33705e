// A step executed on device queues stops the host nowhere and takes no memory, as Kokkos sees it. On a host
// the queues are simulated; on a device they are its streams.
#include <gtest/gtest.h>
#include <mpi.h>

#include "cases.hpp"
#include "engine/simulated_stream.hpp"
#include "engine/trainer.hpp"
#include "kokkos_listener.hpp"

namespace minitaw::engine {
namespace {

Trainer serial_trainer(model::Dtype dtype) {
  deck::Case c = tests::small_case("serial", topology::Groups({1}), 3, 2);
  c.shape.dtype = dtype;
  TrainerOptions options;
  if (kernels::on_host) options.hooks.make_queues = tests::simulated_streams;
  return Trainer(c, 0, no_transport, options);
}

class Quiet : public ::testing::TestWithParam<model::Dtype> {};
INSTANTIATE_TEST_SUITE_P(Dtypes, Quiet, ::testing::Values(model::Dtype::fp32, model::Dtype::bf16),
                         [](const auto& param_info) { return name_of(param_info.param); });

TEST_P(Quiet, AStepAfterTheFirstNeitherFencesNorAllocates) {
  Trainer trainer = serial_trainer(GetParam());
  trainer.prepare();
  (void)trainer.step();
  for (int step = 0; step < 2; ++step) {
    trainer.prepare();
    const test::KokkosListener listener;
    const double seconds = trainer.step();
    EXPECT_EQ(listener.seen(), test::KokkosListener::Seen());
    EXPECT_GT(seconds, 0);
  }
}

}  // namespace
}  // namespace minitaw::engine
