// SPDX-License-Identifier: BSD-3-Clause
#include <random>
#include <set>
#include "base/checksum.hpp"
#include "base/philox.hpp"
#include "fixtures.hpp"
#include "model/data.hpp"

namespace minitaw::model {
namespace {
TEST(Philox, GivesAPublishedKnownAnswer) {
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      (Words<4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

using Tokens = std::vector<std::int32_t>;

Shape batch_shape(std::int64_t vocab, std::int64_t seq, std::int64_t micro_batch) {
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

// A source that starts again after some steps trains on few sequences, and no loss of a short run
// tells.
TEST(Tokens, NoSequenceOfManyStepsComesTwice) {
  // Of 48 sequences a step, as of many ranks and micro-batches.
  const Shape shape = batch_shape(32000, 24, 48);
  TokenSource source(shape, "synthetic", 1), other(shape, "synthetic", 2);
  std::set<Tokens> seen;
  std::size_t sequences = 0;
  const auto expect_new = [&](TokenSource& from, int first_step, int steps) {
    for (int step = first_step; step < first_step + steps; ++step) {
      const Tokens tokens = batch_of(from, shape, step, 0).tokens;
      for (auto at = tokens.begin(); at != tokens.end(); at += shape.seq)
        seen.emplace(at, at + shape.seq);
    }
    sequences += steps * shape.micro_batch;
    EXPECT_EQ(seen.size(), sequences) << first_step;
  };
  expect_new(source, 0, 300);
  for (const int far : {1 << 10, 1 << 16, 1 << 30})
    expect_new(source, far, 2);
  expect_new(other, 0, 20);
}

TEST(Tokens, OfAStepDoNotDependOnHowItIsCut) {
  const auto sequence = [](int number, int first, int at_a_time) {
    const Shape shape = batch_shape(1000, 20, at_a_time);
    TokenSource source(shape, "synthetic", 1);
    const auto [tokens, targets] = batch_of(source, shape, 4, first);
    const int begin = 20 * (number - first);
    return std::pair(
        Tokens(&tokens[begin], &tokens[begin] + 20), Tokens(&targets[begin], &targets[begin] + 20));
  };
  for (int number = 0; number < 9; ++number)
    for (const int at_a_time : {3, 5})
      EXPECT_EQ(
          sequence(number, number / at_a_time * at_a_time, at_a_time), sequence(number, number, 1));
}

TEST(Tokens, OfAVocabularyOfOneAreZeroAndPartsOfASequenceAreRefused) {
  const Shape shape = batch_shape(1, 4, 1);
  TokenSource source(shape, "synthetic", 1);
  EXPECT_EQ(batch_of(source, shape, 0, 0).targets, Tokens(4, 0));
  Tokens seven(7), eight(8);
  for (Tokens* tokens : {&seven, &eight})
    EXPECT_THROW(source.fill(*tokens, seven, 0, 0, runs_of(shape)), LogicError);
}

using TokenFile = test::InFolder;

TEST_F(TokenFile, BytesAreTokens) {
  std::string text;
  for (int i = 0; i < 256; ++i)
    text += static_cast<char>(i);
  const Shape shape = batch_shape(256, 100, 2);
  TokenSource source(shape, write("tokens", text), 1);
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

TEST_F(TokenFile, UnusableOnesAreRefusedAndTheSmallestHasOnePlace) {
  const Shape shape = batch_shape(256, 3, 1);
  for (const std::string& data : {folder_.string(), std::string(), write("short", "abc")})
    EXPECT_THROW(TokenSource(shape, data, 1), InputError) << data;
  TokenSource source(shape, write("tokens", "abcd"), 1);
  EXPECT_EQ(batch_of(source, shape, 0, 0), (Batch{{'a', 'b', 'c'}, {'b', 'c', 'd'}}));
}

/// The published sums of FNV-1a; a file longer than a block, whatever its parts.
TEST_F(TokenFile, IsKnownByItsSum) {
  EXPECT_EQ(data_sum("synthetic"), "");
  EXPECT_EQ(data_sum(write("empty", "")), "cbf29ce484222325");
  EXPECT_EQ(data_sum(write("letter", "a")), "af63dc4c8601ec8c");
  EXPECT_EQ(data_sum(write("word", "foobar")), "85944171f73967e8");
  std::string text(2'500'000, '\xe4');
  const std::string sum = data_sum(write("long", text));
  EXPECT_EQ(sum, Checksum().add("\xe4").add(text.substr(1)).text());
  text.back() = 'a';
  EXPECT_NE(sum, data_sum(write("long", text)));
  EXPECT_THROW(data_sum(folder_.string()), InputError);
}

/// Order and starts of tokens.
std::pair<Tokens, Tokens> sorted(const Tokens& tokens, std::int64_t vocab) {
  Tokens order(tokens.size(), -1), starts(most_starts(vocab, std::ssize(tokens)), -1);
  starts.resize(sort_positions(order, starts, tokens, vocab));
  return {order, starts};
}

TEST(TokenIndex, OrdersPositionsStablyByToken) {
  EXPECT_EQ(sorted({4, 0, 4, 2, 0}, 6), (std::pair<Tokens, Tokens>({1, 4, 3, 0, 2}, {0, 2, 3, 5})));
  EXPECT_EQ(sorted({0, 0, 0}, 1), (std::pair<Tokens, Tokens>({0, 1, 2}, {0, 3})));
  EXPECT_EQ(sorted({2, 1, 0}, 9).second, (Tokens{0, 1, 2, 3})) << "all different: no room is left";
}
}  // namespace
}  // namespace minitaw::model
