#include "model/initial.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.hpp"
#include "base/philox.hpp"

namespace minitaw::model {
namespace {

TEST(Philox, GivesThePublishedKnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words<4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({~0U, ~0U, ~0U, ~0U}, {~0U, ~0U}),
            (Words<4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words<4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, SignedUnitIsHalfOpen) {
  EXPECT_EQ(signed_unit(0), -1.0F);
  EXPECT_EQ(signed_unit(0x80000000), 0.0F);
  EXPECT_LT(signed_unit(~0U), 1.0F);
}

Shape small() {
  return {.layers = 4,
          .hidden = 36,
          .heads = 6,
          .kv_heads = 2,
          .ffn = {50, 51, 50, 49},
          .vocab = 101,
          .seq = 3,
          .micro_batch = 1};
}

std::map<std::string, std::vector<float>> tensors_of(int shards, std::uint64_t seed) {
  const Layout layout = make_layout(small(), {shards, 3});
  std::map<std::string, std::vector<float>> tensors;
  const auto collect = [&](const auto& part) {
    std::vector<float> values(part.elements, NAN);
    initialise(values, part, layout.shape, seed);
    for (const Tensor& t : part.tensors)
      tensors[t.name].assign(values.begin() + t.offset, values.begin() + t.offset + t.size());
    EXPECT_TRUE(std::none_of(values.begin(), values.end(), [](float v) { return std::isnan(v); }));
  };
  for (const Shard& shard : layout.shards) collect(shard);
  collect(layout.ends);
  return tensors;
}

TEST(Initial, DoesNotDependOnTheSharding) {
  EXPECT_EQ(tensors_of(1, 5), tensors_of(4, 5));
  EXPECT_EQ(tensors_of(1, 5), tensors_of(3, 5));
}

TEST(Initial, EveryTensorDiffersFromEveryOther) {
  const auto tensors = tensors_of(1, 5);
  for (const auto& [name, values] : tensors)
    for (const auto& [other, others] : tensors)
      EXPECT_TRUE(name == other || values[0] != others[0]) << name << " " << other;
  EXPECT_NE(tensors.at("head"), tensors_of(1, 6).at("head"));
  EXPECT_NE(tensors.at("head"), tensors_of(1, 5 + (std::uint64_t{1} << 32)).at("head"));
}

TEST(Initial, HasTheDocumentedSpread) {
  const auto deviation = [](const std::vector<float>& values) {
    double sum = 0;
    for (const float v : values) sum += double{v} * v;
    return std::sqrt(sum / static_cast<double>(values.size()));
  };
  const auto tensors = tensors_of(2, 1);
  EXPECT_NEAR(deviation(tensors.at("layers.1.wqkv")), 1 / 6.0, 0.01);
  EXPECT_NEAR(deviation(tensors.at("layers.2.w2")), 1 / std::sqrt(8 * 50.0), 0.002);
  EXPECT_NEAR(deviation(tensors.at("layers.2.wo")), 1 / std::sqrt(8 * 36.0), 0.003);
  EXPECT_NEAR(deviation(tensors.at("embedding")), 1, 0.05);
  const auto [low, high] =
      std::minmax_element(tensors.at("layers.0.norm1").begin(), tensors.at("layers.0.norm1").end());
  EXPECT_GE(*low, 0.9F);
  EXPECT_LT(*high, 1.1F);
  EXPECT_GT(*high - *low, 0.15F);
}

TEST(Initial, FirstNumbersAreFixed) {
  const auto tensors = tensors_of(2, 1);
  const auto words = philox({1, 0, 4, 3}, {1, 0});
  EXPECT_EQ(tensors.at("layers.3.w13")[6], static_cast<float>(std::sqrt(3.0 / 36)) * signed_unit(words[2]));
}

TEST(Initial, RefusesABufferOfAnotherSize) {
  const Layout layout = make_layout(small(), {2, 1});
  std::vector<float> values(layout.shards[0].elements + 1);
  EXPECT_THROW(initialise(values, layout.shards[0], layout.shape, 1), LogicError);
}

}  // namespace
}  // namespace minitaw::model
