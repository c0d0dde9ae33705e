#include "model/token_index.hpp"

#include <gtest/gtest.h>

namespace minitaw::model {
namespace {

std::vector<std::int32_t> list(std::span<const std::int32_t> values) {
  return {values.begin(), values.end()};
}

TEST(TokenIndex, GroupsPositionsByToken) {
  TokenIndex index(6, 5);
  const std::vector<std::int32_t> tokens = {4, 0, 4, 2, 0};
  index.sort(tokens);
  EXPECT_EQ(list(index.order()), (std::vector<std::int32_t>{1, 4, 3, 0, 2}));
  EXPECT_EQ(list(index.segments()), (std::vector<std::int32_t>{0, 2, 3, 5}));
  const std::vector<std::int32_t> equal(5, 5);
  index.sort(equal);
  EXPECT_EQ(list(index.order()), (std::vector<std::int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(list(index.segments()), (std::vector<std::int32_t>{0, 5}));
}

}  // namespace
}  // namespace minitaw::model
