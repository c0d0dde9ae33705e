// A step executed on device queues stops the host nowhere and takes no memory, as Kokkos sees it. On a host
// the queues are simulated; on a device they are its streams.
#include <gtest/gtest.h>
#include <mpi.h>

#include "cases.hpp"
#include "comm/transport.hpp"
#include "engine/session.hpp"
#include "engine/simulated_stream.hpp"
#include "kokkos_listener.hpp"

namespace minitaw::engine {
namespace {

Session serial_session(model::Dtype dtype) {
  deck::Case c = tests::small_case("serial", topology::Groups({1}), 3, 2);
  c.shape.dtype = dtype;
  SessionOptions options;
  if (kernels::on_host) options.hooks.make_queues = tests::simulated_streams;
  const auto solo = [](const schedule::Program&, model::Buffer) {
    return NamedTransport{std::make_unique<comm::SoloTransport>(), "none"};
  };
  return Session(c, 0, solo, options);
}

class Quiet : public ::testing::TestWithParam<model::Dtype> {};
INSTANTIATE_TEST_SUITE_P(Dtypes, Quiet, ::testing::Values(model::Dtype::fp32, model::Dtype::bf16),
                         [](const auto& param_info) { return name_of(param_info.param); });

TEST_P(Quiet, AStepAfterTheFirstNeitherFencesNorAllocates) {
  Session session = serial_session(GetParam());
  session.prepare();
  (void)session.step();
  for (int step = 0; step < 2; ++step) {
    session.prepare();
    const test::KokkosListener listener;
    const StepTime time = session.execute();
    EXPECT_EQ(listener.seen(), test::KokkosListener::Seen());
    EXPECT_GT(time.total, 0);
  }
}

}  // namespace
}  // namespace minitaw::engine
