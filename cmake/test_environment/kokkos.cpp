// SPDX-License-Identifier: BSD-3-Clause
#include <Kokkos_Core.hpp>

#include <gtest/gtest.h>

namespace {

class KokkosEnvironment : public testing::Environment {
  void SetUp() override {
    Kokkos::initialize(Kokkos::InitializationSettings().set_disable_warnings(true));
  }

  void TearDown() override { Kokkos::finalize(); }
};

[[maybe_unused]] const auto* const environment =
    testing::AddGlobalTestEnvironment(new KokkosEnvironment);

}  // namespace
