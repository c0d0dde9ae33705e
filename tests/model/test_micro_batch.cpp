#include "model/micro_batch.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "model/token_shape.hpp"

namespace minitaw::model {
namespace {

using List = std::vector<std::int32_t>;
List list(MicroBatch::Tokens values) { return {values.begin(), values.end()}; }

using test::shape_of;

class FilledBatch : public ::testing::TestWithParam<Shape> {
protected:
  FilledBatch() : source_(GetParam(), "synthetic", 5), batch_(GetParam()) {}
  TokenSource source_;
  MicroBatch batch_;
};

INSTANTIATE_TEST_SUITE_P(All, FilledBatch,
                         ::testing::Values(shape_of(1, 1, 1), shape_of(3, 37, 2), shape_of(101, 37, 3),
                                           shape_of(997, 13, 1), shape_of(257, 257, 1)));

TEST_P(FilledBatch, HasTheTokensOfItsSource) {
  List tokens(GetParam().tokens()), targets = tokens;
  for (int step = 0; step < 3; ++step) {
    source_.fill(tokens, targets, step, 7 - step);
    batch_.fill(source_, step, 7 - step);
    EXPECT_EQ(list(batch_.inputs()), tokens);
    EXPECT_EQ(list(batch_.targets()), targets);
  }
}

TEST_P(FilledBatch, OrdersPositionsStablyByToken) {
  for (int step = 0; step < 3; ++step) {  // the memory is used again
    batch_.fill(source_, step, 0);
    List expected(GetParam().tokens());
    std::iota(expected.begin(), expected.end(), 0);
    std::ranges::stable_sort(expected, {}, [&](std::int32_t p) { return batch_.inputs()[p]; });
    EXPECT_EQ(list(batch_.order()), expected);
  }
}

TEST_P(FilledBatch, EachSegmentIsAllOfOneToken) {
  for (int step = 0; step < 3; ++step) {
    batch_.fill(source_, step, 0);
    List begins = {0};
    const auto token = [&](std::int32_t i) { return batch_.inputs()[batch_.order()[i]]; };
    for (std::int32_t i = 1; i < GetParam().tokens(); ++i)
      if (token(i) != token(i - 1)) begins.push_back(i);
    begins.push_back(static_cast<std::int32_t>(GetParam().tokens()));
    EXPECT_EQ(list(batch_.segments()), begins);
  }
}

TEST_P(FilledBatch, IndexIsInputsOrderAndSegmentsInOnePiece) {
  batch_.fill(source_, 0, 0);
  List together = list(batch_.inputs());
  for (const auto part : {batch_.order(), batch_.segments()})
    together.insert(together.end(), part.begin(), part.end());
  EXPECT_EQ(list(batch_.index()), together);
}

}  // namespace
}  // namespace minitaw::model
