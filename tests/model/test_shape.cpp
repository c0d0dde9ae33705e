#include "model/shape.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/error.hpp"
#include "model/layout.hpp"

namespace minitaw::model {
namespace {

Shape good() {
  return {.layers = 2,
          .hidden = 24,
          .heads = 4,
          .kv_heads = 2,
          .ffn = {8, 9},
          .vocab = 11,
          .seq = 3,
          .micro_batch = 2};
}

void expect_refused(const std::function<void(Shape&)>& spoil, const std::string& key) {
  Shape shape = good();
  spoil(shape);
  try {
    check(shape);
    FAIL() << "accepted a wrong " << key;
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find(key), std::string::npos) << error.what();
  }
}

TEST(Shape, AcceptsWhatCanBeComputed) {
  EXPECT_NO_THROW(check(good()));
  Shape one{.layers = 1,
            .hidden = 2,
            .heads = 1,
            .kv_heads = 1,
            .ffn = {1},
            .vocab = 1,
            .seq = 1,
            .micro_batch = 1};
  EXPECT_NO_THROW(check(one));
}

TEST(Shape, RefusesImpossibleSizesByKey) {
  expect_refused([](Shape& s) { s.layers = 0; }, "layers = 0");
  expect_refused([](Shape& s) { s.hidden = -4; }, "hidden = -4");
  expect_refused([](Shape& s) { s.heads = 0; }, "heads = 0");
  expect_refused([](Shape& s) { s.kv_heads = 0; }, "kv_heads = 0");
  expect_refused([](Shape& s) { s.vocab = 0; }, "vocab = 0");
  expect_refused([](Shape& s) { s.seq = 0; }, "seq = 0");
  expect_refused([](Shape& s) { s.micro_batch = 0; }, "micro_batch = 0");
  expect_refused([](Shape& s) { s.ffn[1] = 0; }, "ffn = 0");
  expect_refused([](Shape& s) { s.ffn.pop_back(); }, "ffn_per_layer has 1");
  expect_refused([](Shape& s) { s.heads = 5; }, "heads = 5 does not divide hidden = 24");
  expect_refused([](Shape& s) { s.kv_heads = 3; }, "kv_heads = 3 does not divide heads = 4");
  expect_refused([](Shape& s) { s.heads = s.kv_heads = 8; }, "even");
}

TEST(Shape, RefusesSizesThatOverflow) {
  const std::int64_t big = INT32_MAX;
  expect_refused([&](Shape& s) { s.seq = big + 1; }, "seq");
  expect_refused([&](Shape& s) { s.seq = INT64_MAX; }, "seq");
  expect_refused(
      [&](Shape& s) {
        s.seq = big;
        s.micro_batch = big;
      },
      "seq * micro_batch");
  expect_refused([&](Shape& s) { s.ffn[0] = big; }, "2 * ffn");
  expect_refused(
      [&](Shape& s) {
        s.hidden = 1 << 30;
        s.heads = s.kv_heads = 1;
      },
      "head_dim");
  expect_refused(
      [&](Shape& s) {
        s.hidden = 1 << 29;
        s.vocab = big;
        s.seq = big;
        s.micro_batch = 1;
      },
      "tokens");
  expect_refused(
      [&](Shape& s) {
        s.layers = 1 << 20;
        s.ffn.assign(1 << 20, 1 << 29);
        s.hidden = 1 << 20;
        s.seq = 1;
        s.micro_batch = 1;
      },
      "weights");
}

TEST(Shape, CountsParametersAsTheLayoutDoes) {
  const Layout layout = make_layout(good(), {2, 1});
  std::int64_t sum = 0;
  for (const Shard& shard : layout.shards)
    for (const Tensor& tensor : shard.tensors) sum += tensor.size();
  for (const Tensor& tensor : layout.ends.tensors) sum += tensor.size();
  EXPECT_EQ(parameters(good()), sum);
}

TEST(Shape, CountsModelFlops) {
  const Flops flops = flops_per_token(good());
  EXPECT_EQ(flops.matmul, 6.0 * (2 * 24 * (48 + 24) + 24 * 3 * (8 + 9) + 11 * 24));
  EXPECT_EQ(flops.attention_causal, 6.0 * 2 * 3 * 24);
  EXPECT_EQ(flops.attention_full, 12.0 * 2 * 3 * 24);
}

}  // namespace
}  // namespace minitaw::model
