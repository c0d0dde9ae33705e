// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include "kernels/detail/loops.hpp"
#include "this_run.hpp"

namespace minitaw::kernels::detail {
namespace {
TEST(Exponential, IsAccurateOverItsWholeRangeAndAtTheExtremes) {
  double worst = 0;
  for (float x = -86.9F; x < 87.9F; x += 1.0F / 1024) {
    const double exact = std::exp(double{x});
    worst = std::max(worst, std::abs(host_exponential(x) - exact) / exact);
  }
  EXPECT_LT(worst, 2.5e-7);
  EXPECT_EQ(host_exponential(0.0F), 1.0F);
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float low : {-infinity, -1e30F})
    EXPECT_EQ(host_exponential(low), 0.0F);
  EXPECT_EQ(host_exponential(1e30F), infinity);
  EXPECT_TRUE(std::isnan(host_exponential(std::numeric_limits<float>::quiet_NaN())));
}

// Rounding and packing as kernels do them, against the plain conversions of base/bf16.hpp.
/// Ties, their neighbours, subnormals, extremes, and random bits of every exponent; a multiple
/// of 8.
std::vector<float> interesting() {
  std::vector<float> values;
  for (const std::uint32_t bits : {0U,
           0x80000000U,
           0x3f808000U,
           0x3f818000U,
           0x3f807fffU,
           0x3f808001U,
           0xbf808000U,
           0x7f7f8000U,
           0x7f7f7fffU,
           0x7f800000U,
           0xff800000U,
           0x00000001U,
           0x00008000U,
           0x00018000U,
           0x7f800001U,
           0xffffffffU,
           0x7fbfffffU})
    values.push_back(std::bit_cast<float>(bits));
  std::mt19937 random(test::seed());
  while (values.size() < 4096)
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  return values;
}

/// Eight values at a time: rounded one by one and as a pack, copied as a pack, and back from both
/// roundings.
struct Convert {
  const float* values;
  Bf16 *single, *packed;
  float *copied, *back, *expanded;

  KOKKOS_FUNCTION void operator()(int pack) const {
    const Floats<8> in = load_pack<8>(values, pack);
    store_pack<8>(packed, pack, in);
    store_pack<8>(copied, pack, in);
    store_pack<8>(expanded, pack, load_pack<8>(packed, pack));
    for (int i = 8 * pack; i < 8 * (pack + 1); ++i) {
      single[i] = store<Bf16>(values[i]);
      back[i] = load(single[i]);
    }
  }
};

template <class T>
struct Mirrored {
  explicit Mirrored(std::size_t count) : there("values", count) {}

  [[nodiscard]] auto here() const {
    return Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), there);
  }

  Kokkos::View<T*, MemorySpace> there;
};

TEST(Pack, RoundsAsThePlainConversionDoes) {
  const std::vector<float> values = interesting();
  const std::size_t count = values.size();
  const Mirrored<float> in(count), copied(count), back(count), expanded(count);
  const Mirrored<Bf16> single(count), packed(count);
  Kokkos::deep_copy(in.there, Kokkos::View<const float*, Kokkos::HostSpace>(values.data(), count));
  Kokkos::parallel_for("convert",
      Kokkos::RangePolicy<ExecutionSpace>(0, count / 8),
      Convert{in.there.data(),
          single.there.data(),
          packed.there.data(),
          copied.there.data(),
          back.there.data(),
          expanded.there.data()});
  const auto got_single = single.here(), got_packed = packed.here();
  const auto got_copied = copied.here(), got_back = back.here(), got_expanded = expanded.here();
  for (std::size_t i = 0; i < count; ++i) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(got_copied(i)), std::bit_cast<std::uint32_t>(values[i]));
    if (std::isnan(values[i])) {
      EXPECT_TRUE(std::isnan(to_float(got_single(i))) && std::isnan(to_float(got_packed(i)))) << i;
      continue;
    }
    const Bf16 right = to_bf16(values[i]);
    EXPECT_EQ(std::pair(got_single(i).bits, got_packed(i).bits), std::pair(right.bits, right.bits));
    EXPECT_EQ(std::pair(got_back(i), got_expanded(i)), std::pair(to_float(right), to_float(right)));
  }
}

TEST(Pack, SaysWhichAddressesAllowIt) {
  alignas(16) const char bytes[64] = {};
  EXPECT_TRUE(aligned({bytes, bytes + 16, nullptr}));
  EXPECT_FALSE(aligned({bytes, bytes + 8}));
  const auto chosen = [&](std::int64_t width, const void* address) {
    int elements = 0;
    packs_on_host = true;
    with_packs<Bf16>(width, {address}, [&](auto n) { elements = n; });
    packs_on_host = false;
    return elements;
  };
  EXPECT_EQ(
      std::tuple(chosen(64, bytes), chosen(63, bytes), chosen(64, bytes + 2)), std::tuple(8, 1, 1));
}
}  // namespace
}  // namespace minitaw::kernels::detail
