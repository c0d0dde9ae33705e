// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include "base/error.hpp"
#include "base/philox.hpp"
#include "fixtures.hpp"
#include "model/data.hpp"

namespace minitaw::model {
namespace {
TEST(Philox, GivesThePublishedKnownAnswers) {
  EXPECT_EQ(
      philox({0, 0, 0, 0}, {0, 0}), (Words<4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({~0U, ~0U, ~0U, ~0U}, {~0U, ~0U}),
      (Words<4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      (Words<4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

Shape small() {
  return {4, 36, 6, 2, 51, 101, 3, 1};
}

std::map<std::string, std::vector<float>> tensors_of(int shards, std::uint64_t seed) {
  const Layout layout = make_layout(small(), {shards, 3});
  std::map<std::string, std::vector<float>> tensors;
  for (const Flat* part : layout.parts()) {
    std::vector<float> values(part->elements, NAN);
    initialise(values, *part, layout.shape, seed);
    for (const Tensor& t : part->tensors)
      tensors[t.name].assign(values.begin() + t.offset, values.begin() + t.offset + t.size());
    EXPECT_TRUE(std::ranges::none_of(values, [](float v) { return std::isnan(v); }));
  }
  return tensors;
}

TEST(Initial, DoesNotDependOnTheSharding) {
  for (const int shards : {3, 4})
    EXPECT_EQ(tensors_of(1, 5), tensors_of(shards, 5));
}

using Tokens = std::vector<std::int32_t>;

Shape shape_of(std::int64_t vocab, std::int64_t seq, std::int64_t micro_batch) {
  return {1, 2, 1, 1, 1, vocab, seq, micro_batch};
}

struct Batch {
  Tokens tokens, targets;
  friend bool operator==(const Batch&, const Batch&) = default;
};

Batch batch_of(TokenSource& source, const Shape& shape, int step, int first) {
  Batch batch{Tokens(shape.tokens(), -1), Tokens(shape.tokens(), -1)};
  source.fill(batch.tokens, batch.targets, step, first, runs_of(shape));
  return batch;
}

class TokenFile : public test::InFolder {
protected:
  void write(const std::string& text) const { InFolder::write("tokens", text); }

  std::string path_ = path("tokens");
};

/// Adds all sequences of the steps to those seen before; false if one has been seen.
bool are_new(
    std::set<Tokens>& seen, TokenSource& source, const Shape& shape, int first_step, int steps) {
  for (int step = first_step; step < first_step + steps; ++step) {
    const Tokens tokens = batch_of(source, shape, step, 0).tokens;
    for (std::int64_t at = 0; at < shape.tokens(); at += shape.seq)
      if (!seen.emplace(tokens.begin() + at, tokens.begin() + at + shape.seq).second)
        return false;
  }
  return true;
}

// A source that starts again after some steps trains on few sequences, and no loss of a short run
// tells.
TEST(Tokens, NoSequenceOfManyStepsComesTwice) {
  const Shape shape =
      shape_of(32000, 24, 48);  // of 48 sequences a step, as of many ranks and micro-batches
  TokenSource source(shape, "synthetic", 1), other(shape, "synthetic", 2);
  std::set<Tokens> seen;
  EXPECT_TRUE(are_new(seen, source, shape, 0, 300));
  for (const int far : {1 << 10, 1 << 16, 1 << 30})
    EXPECT_TRUE(are_new(seen, source, shape, far, 2)) << far;
  EXPECT_TRUE(are_new(seen, other, shape, 0, 20)) << "another seed";
}

TEST(Tokens, OfAStepDoNotDependOnHowItIsCut) {
  const auto first_nine = [](int at_a_time) {
    const Shape shape = shape_of(1000, 20, at_a_time);
    TokenSource source(shape, "synthetic", 1);
    Batch all;
    for (int first = 0; first < 9; first += at_a_time) {
      const Batch part = batch_of(source, shape, 4, first);
      all.tokens.insert(all.tokens.end(), part.tokens.begin(), part.tokens.end());
      all.targets.insert(all.targets.end(), part.targets.begin(), part.targets.end());
    }
    for (Tokens* some : {&all.tokens, &all.targets})
      some->resize(9 * 20);
    return all;
  };
  for (const int at_a_time : {3, 5})
    EXPECT_EQ(first_nine(at_a_time), first_nine(1));
}

TEST(Tokens, OfAVocabularyOfOneAreZeroAndPartsOfASequenceAreRefused) {
  const Shape shape = shape_of(1, 4, 1);
  TokenSource source(shape, "synthetic", 1);
  EXPECT_EQ(batch_of(source, shape, 0, 0).targets, Tokens(4, 0));
  Tokens tokens(7), targets(7), fewer(4);
  EXPECT_THROW(source.fill(tokens, targets, 0, 0, runs_of(shape)), LogicError);
  tokens.resize(8);
  EXPECT_THROW(source.fill(tokens, fewer, 0, 0, runs_of(shape)), LogicError);
}

TEST_F(TokenFile, BytesAreTokens) {
  std::string text;
  for (int i = 0; i < 256; ++i)
    text += static_cast<char>(i);
  write(text);
  const Shape shape = shape_of(256, 100, 2);
  TokenSource source(shape, path_, 1);
  std::set<std::int32_t> starts;
  for (int step = 0; step < 100; ++step) {
    const Batch batch = batch_of(source, shape, step, 0);
    for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
      EXPECT_EQ(batch.tokens[i], batch.tokens[i / 100 * 100] + static_cast<int>(i % 100));
      EXPECT_EQ(batch.targets[i], batch.tokens[i] + 1);
    }
    starts.insert(batch.tokens[0]);
  }
  EXPECT_GT(starts.size(), 50U);
  EXPECT_LE(*starts.rbegin(), 155);
}

TEST_F(TokenFile, UnusableFilesAreRefusedAndTheSmallestHasOnePlace) {
  const auto refused = [&](const std::string& data, std::int64_t vocab = 256) {
    EXPECT_THROW(TokenSource(shape_of(vocab, 3, 1), data, 1), InputError) << data;
  };
  for (const std::string& data :
      {path_ + ".absent", std::string("/tmp"), std::string(), std::string("/dev/zero")})
    refused(data);
  for (const char* text : {"", "abc"}) {
    write(text);
    refused(path_);
  }
  write("abcd");
  refused(path_, 255);
  const Shape shape = shape_of(256, 3, 1);
  TokenSource source(shape, path_, 1);
  EXPECT_EQ(batch_of(source, shape, 0, 0), (Batch{{'a', 'b', 'c'}, {'b', 'c', 'd'}}));
}

/// Order and starts of tokens.
std::pair<Tokens, Tokens> sorted(const Tokens& tokens, std::int64_t vocab) {
  Tokens order(tokens.size(), -1), starts(most_starts(vocab, std::ssize(tokens)), -1);
  starts.resize(sort_positions(order, starts, tokens, vocab));
  return {order, starts};
}

TEST(TokenIndex, OrdersPositionsStablyByToken) {
  std::mt19937 random(3);
  for (const auto& [vocab, count] :
      {std::pair{1, 1}, {1, 9}, {3, 74}, {101, 111}, {997, 13}, {2, 5}, {9, 3}}) {
    Tokens tokens(count), expected(count), begins;
    for (auto& token : tokens)
      token = static_cast<std::int32_t>(random() % vocab);
    std::iota(expected.begin(), expected.end(), 0);
    std::ranges::stable_sort(expected, {}, [&](std::int32_t p) { return tokens[p]; });
    for (int i = 0; i < count; ++i)
      if (i == 0 || tokens[expected[i]] != tokens[expected[i - 1]])
        begins.push_back(i);
    begins.push_back(count);
    EXPECT_EQ(sorted(tokens, vocab), std::pair(expected, begins)) << vocab << " " << count;
  }
  EXPECT_EQ(sorted({4, 0, 4, 2, 0}, 6), (std::pair<Tokens, Tokens>({1, 4, 3, 0, 2}, {0, 2, 3, 5})));
  EXPECT_EQ(sorted({2, 1, 0}, 9).second, (Tokens{0, 1, 2, 3})) << "all different: no room is left";
}
}  // namespace
}  // namespace minitaw::model
