#include "comm/slices.hpp"

#include <gtest/gtest.h>

namespace minitaw::comm {
namespace {

TEST(Slices, CoverEveryElementOnce) {
  for (int members = 1; members <= 9; ++members)
    for (std::int64_t elements = 0; elements <= 40; ++elements) {
      std::int64_t covered = 0;
      for (int i = 0; i < members; ++i) {
        const Slice part = slice(elements, members, i);
        EXPECT_EQ(part.begin, covered);
        EXPECT_LE(part.count, (elements + members - 1) / members);
        covered += part.count;
      }
      EXPECT_EQ(covered, elements);
    }
}

TEST(Slices, AreEqualWhereTheyCanBe) {
  for (int i = 0; i < 4; ++i) EXPECT_EQ(slice(20, 4, i), (Slice{5 * i, 5}));
}

TEST(Slices, CutTheLastOnes) {
  EXPECT_EQ(slice(5, 4, 2), (Slice{4, 1}));
  EXPECT_EQ(slice(5, 4, 3), (Slice{5, 0}));
}

TEST(Slices, CountRoundTheRing) {
  EXPECT_EQ(slice(10, 4, -1), slice(10, 4, 3));
  EXPECT_EQ(slice(10, 4, -6), slice(10, 4, 2));
  EXPECT_EQ(slice(10, 4, 5), slice(10, 4, 1));
}

}  // namespace
}  // namespace minitaw::comm
