#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/detail/loops.hpp"
#include "kernels/device_matrix.hpp"

namespace minitaw::test {

/// A type of elements, and whether the loops over packs run, which a device always does.
template <class Element, bool in_packs>
struct Case {
  using E = Element;
  static constexpr bool packs = in_packs;
};
using Cases = ::testing::Types<Case<float, false>, Case<Bf16, false>, Case<float, true>, Case<Bf16, true>>;

struct CaseName {
  template <class C>
  static std::string GetName(int) {
    return std::string(std::is_same_v<typename C::E, Bf16> ? "bf16" : "float") + (C::packs ? "_packs" : "");
  }
};

template <class C>
class OfCase : public ::testing::Test {
protected:
  using E = typename C::E;
  using Device = DeviceMatrix<E>;
  using Floats = DeviceMatrix<float>;

  void SetUp() override {
    if (!kernels::on_host && C::packs) GTEST_SKIP() << "a device runs in packs anyway";
    kernels::detail::packs_on_host = C::packs;
  }
  void TearDown() override { kernels::detail::packs_on_host = false; }

  static kernels::ExecutionSpace exec() { return {}; }
  static Doubles random(std::int64_t count, unsigned seed, double scale = 1) {
    return random_values<E>(count, seed, scale);
  }
  static constexpr double near = tolerance<E>;
};

}  // namespace minitaw::test
