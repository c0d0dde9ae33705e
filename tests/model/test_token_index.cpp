#include "model/token_index.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace minitaw::model {
namespace {

using List = std::vector<std::int32_t>;

struct Sorted {
  List order, segments;
};
Sorted sorted(const List& tokens, std::int64_t vocab) {
  Sorted result{List(tokens.size(), -1), List(most_segments(vocab, std::ssize(tokens)), -1)};
  result.segments.resize(sort_positions(result.order, result.segments, tokens, vocab));
  return result;
}

TEST(TokenIndex, GroupsPositionsByToken) {
  const Sorted some = sorted({4, 0, 4, 2, 0}, 6);
  EXPECT_EQ(some.order, (List{1, 4, 3, 0, 2}));
  EXPECT_EQ(some.segments, (List{0, 2, 3, 5}));
  const Sorted equal = sorted(List(5, 5), 6);
  EXPECT_EQ(equal.order, (List{0, 1, 2, 3, 4}));
  EXPECT_EQ(equal.segments, (List{0, 5}));
}

TEST(TokenIndex, HasRoomForAllDifferentAndForAWholeVocabulary) {
  EXPECT_EQ(sorted({2, 1, 0}, 9).segments, (List{0, 1, 2, 3}));
  EXPECT_EQ(sorted({1, 0, 1, 0, 1}, 2).segments, (List{0, 2, 5}));
  EXPECT_EQ(most_segments(9, 3), 4);
  EXPECT_EQ(most_segments(2, 5), 3);
}

}  // namespace
}  // namespace minitaw::model
