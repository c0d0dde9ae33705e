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

/// To nearest, ties to even, of both signs; beyond the largest value to infinity.
TEST(Bf16, RoundsEveryValueAndWhatLiesBetweenThem) {
  int wrong = 0;
  for (const std::uint32_t sign : {0U, 0x8000U})
    for (std::uint32_t upper = sign; upper < sign + 0x7f80; ++upper)
      for (const std::uint32_t lower : {0U, 1U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
        const bool up = lower > 0x8000 || (lower == 0x8000 && upper % 2 == 1);
        const Bf16 rounded = to_bf16(std::bit_cast<float>(upper << 16 | lower));
        wrong += rounded.bits != upper + (up ? 1 : 0) ||
                 to_float(rounded) != std::bit_cast<float>(std::uint32_t{rounded.bits} << 16);
      }
  EXPECT_EQ(wrong, 0);
}

TEST(Bf16, KeepsInfinityAndNan) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float value : {infinity, -infinity})
    EXPECT_EQ(to_float(to_bf16(value)), value);
  for (const std::uint32_t bits : {0x7f800001U, 0x7fffffffU, 0xff800001U, 0xffffffffU})
    EXPECT_TRUE(std::isnan(to_float(to_bf16(std::bit_cast<float>(bits))))) << bits;
}

TEST(SoloTransport, LeavesTheDataAsItIsAndHasNobodyToTalkTo) {
  schedule::Program alone;
  alone.communicators = {{"world", {0}}};
  alone.ranks.resize(1);
  SoloTransport transport(alone);
  std::array<float, 3> values{1, 2, 3};
  auto* const data = reinterpret_cast<std::byte*>(values.data());
  using enum schedule::Kind;
  for (const auto kind : {broadcast, reduce, all_gather, reduce_scatter, all_reduce})
    EXPECT_EQ(transport.start(schedule::Lane::inputs_group,
                  kind,
                  {.communicator = 0, .root = 0, .data = data, .elements = 3}),
        nullptr);
  EXPECT_EQ(values, (std::array<float, 3>{1, 2, 3}));
  EXPECT_THROW(
      (void)transport.start(schedule::Lane::inputs_group, {.data = data, .bytes = 12}), LogicError);
}
}  // namespace
}  // namespace minitaw::comm
