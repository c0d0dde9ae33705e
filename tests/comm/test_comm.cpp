// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include "base/error.hpp"
#include "comm/transport.hpp"

namespace minitaw::comm {
namespace {
TEST(Slices, CoverEveryElementOnce) {
  for (int members = 1; members <= 9; ++members)
    for (std::int64_t elements = 0; elements <= 40; ++elements) {
      std::int64_t covered = 0;
      for (int i = 0; i < members; ++i) {
        const Range part = share_of(elements, members, i);
        EXPECT_EQ(part.begin, covered);
        EXPECT_EQ(part.count, std::min((elements + members - 1) / members, elements - covered));
        for (const int turns : {-2, -1, 1})
          EXPECT_EQ(share_of(elements, members, i + turns * members), part);
        covered += part.count;
      }
      EXPECT_EQ(covered, elements);
    }
}

float rounded(float value) {
  return to_float(to_bf16(value));
}

TEST(Bf16, KeepsTheSpecialValues) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float large : {infinity, std::numeric_limits<float>::max()})
    EXPECT_EQ(rounded(large), infinity);
  EXPECT_EQ(rounded(-infinity), -infinity);
  EXPECT_TRUE(std::signbit(rounded(-0.0f)));
  for (const std::uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fc00000u})
    EXPECT_TRUE(std::isnan(rounded(std::bit_cast<float>(bits)))) << bits;
}

TEST(Bf16, EveryValueSurvivesTheRoundTrip) {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const Bf16 value{static_cast<std::uint16_t>(bits)};
    if (std::isnan(to_float(value)))
      continue;
    wrong += to_bf16(to_float(value)) != value;
  }
  EXPECT_EQ(wrong, 0);
}

/// To nearest, ties to even.
TEST(Bf16, RoundsAsAnExactComparisonWould) {
  int wrong = 0;
  for (std::uint32_t step = 0; step < 0x7f000000u; step += 9973) {
    const std::uint32_t bits = step % 3 == 0 ? (step & 0xffff0000u) + 0x8000u : step;  // a tie
    const float value = std::bit_cast<float>(bits);
    const float below = std::bit_cast<float>(bits & 0xffff0000u);
    const float above = std::bit_cast<float>((bits & 0xffff0000u) + 0x10000u);
    const double down = double{value} - double{below}, up = double{above} - double{value};
    const bool upper_even = ((bits >> 16) & 1u) == 1;
    wrong += rounded(value) != (up < down || (up == down && upper_even) ? above : below);
  }
  EXPECT_EQ(wrong, 0);
}

TEST(Sum, AddsInFloatAndRounds) {
  for (const int n : {0, 1, 7, 1001}) {
    std::vector<float> wide(n), other(n);
    std::vector<Bf16> narrow(n), narrow_other(n);
    for (int i = 0; i < n; ++i) {
      wide[i] = std::sin(1.0f * i);
      other[i] = std::cos(3.0f * i);
      narrow[i] = to_bf16(wide[i]);
      narrow_other[i] = to_bf16(other[i]);
    }
    const auto before = std::pair(wide, narrow);
    const auto bytes = [](auto& values) { return reinterpret_cast<std::byte*>(values.data()); };
    add(model::Dtype::fp32, bytes(wide), bytes(other), n);
    add(model::Dtype::bf16, bytes(narrow), bytes(narrow_other), n);
    for (int i = 0; i < n; ++i) {
      EXPECT_EQ(wide[i], before.first[i] + other[i]);
      EXPECT_EQ(
          to_float(narrow[i]), rounded(to_float(before.second[i]) + to_float(narrow_other[i])));
    }
  }
}

TEST(SoloTransport, LeavesTheDataAsItIsAndHasNobodyToTalkTo) {
  schedule::Program alone;
  alone.communicators = {{"world", {0}}};
  alone.ranks.resize(1);
  SoloTransport transport(alone);
  std::array<float, 3> values{1, 2, 3};
  const Collective all{0,
      0,
      schedule::Payload::gradient,
      model::Dtype::fp32,
      reinterpret_cast<std::byte*>(values.data()),
      3};
  using enum schedule::Kind;
  for (const auto kind : {broadcast, reduce, all_gather, reduce_scatter, all_reduce})
    EXPECT_EQ(transport.start(schedule::Lane::inputs_group, kind, all), nullptr);
  EXPECT_EQ(values, (std::array<float, 3>{1, 2, 3}));
  EXPECT_EQ(transport.rank(), 0);
  EXPECT_EQ(transport.sent(), std::vector<std::uint64_t>(schedule::traffic_kinds));
  EXPECT_THROW(
      (void)transport.start(schedule::Lane::inputs_group, Message{.data = all.data, .bytes = 12}),
      LogicError);
}
}  // namespace
}  // namespace minitaw::comm
