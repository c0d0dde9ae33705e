// A step calls nothing that stops the host or takes memory, as Kokkos sees it.
#include <gtest/gtest.h>

#include "kokkos_listener.hpp"
#include "model/cases.hpp"
#include "model/trainer.hpp"

namespace minitaw::model {
namespace {

using test::Trainer;

using Listener = test::KokkosListener;

TEST(Listener, HearsFencesAndMemory) {
  const Listener listener;
  Kokkos::fence("a fence");
  {
    const Kokkos::View<int*, kernels::MemorySpace> view("a view", 3);
  }
  EXPECT_EQ(listener.seen().count("fence a fence"), 1U);
  EXPECT_EQ(listener.seen().count("allocation a view"), 1U);
  EXPECT_EQ(listener.seen().count("deallocation a view"), 1U);
}

class Asynchronous : public ::testing::TestWithParam<test::Combination> {};

INSTANTIATE_TEST_SUITE_P(All, Asynchronous, test::all_combinations(), test::name_of);

TEST_P(Asynchronous, AStepAfterWarmUpNeitherFencesNorAllocates) {
  const auto& [model_case, recompute, dtype] = GetParam();
  Trainer trainer(test::layout_of(model_case, dtype, recompute), test::default_batches, test::default_seed);
  trainer.gradient(0);
  trainer.update({}, 1);
  trainer.prepare(1);
  const Listener listener;
  trainer.play();
  trainer.update({}, 2);
  EXPECT_EQ(listener.seen(), Listener::Seen());
}

}  // namespace
}  // namespace minitaw::model
