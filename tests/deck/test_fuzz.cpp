// SPDX-License-Identifier: BSD-3-Clause
#include <random>
#include "helpers.hpp"

namespace minitaw::deck {
namespace {
const std::string good = small + R"(# a sweep
schedule = ["ddp", "tawpipe:cco=off"]
groups = [1, 2, "1+1"]
dtype = "bf16"
tokens_per_micro_batch = "1K"
learning_rate = 1e-3
)";

const std::vector<std::string> pieces = {"[",
    "\"",
    "=",
    "\n",
    ",",
    "9999999G",
    "-1",
    "nan",
    "[a]\n",
    "#",
    "{}",
    "\xff",
    "\\u0000",
    "1979-05-27",
    "serial"};

/// Damages a text at one to three places.
std::string damaged(std::string text, std::mt19937& random) {
  const auto below = [&](std::size_t end) { return end == 0 ? 0 : random() % end; };
  for (std::size_t n = 1 + below(3); n > 0; --n) {
    const std::string& piece = pieces[below(pieces.size())];
    const std::size_t at = below(text.size());
    const std::size_t equals = text.find("= ", at);
    switch (below(4)) {
    case 0: text.insert(at, piece); break;
    case 1: text.erase(at, 1 + below(12)); break;
    case 2: text.replace(at, 1, 1, static_cast<char>(below(256))); break;
    default:  // a value that replaces another reaches deeper than damage to the syntax
      if (equals != text.npos)
        text.replace(equals + 2, text.find('\n', equals) - equals - 2, piece);
    }
  }
  return text;
}

/// A refusal is one line; anything else that is thrown fails the test.
bool accepted(const std::string& text, const std::vector<std::string>& overrides) {
  const std::string said =
      test::refusal_of([&] { EXPECT_FALSE(make(text, overrides).cases.empty()) << text; });
  EXPECT_EQ(said, printable(said, said.size())) << text;
  return said.empty();
}

TEST(Fuzz, DamagedDecksAndOverridesParseOrAreRefused) {
  const std::vector<std::string> overrides = {
      "seq= 1K,2K", "groups= 1+2", "schedule= tawpipe:cco=off", "heads= [4, 8]"};
  EXPECT_TRUE(accepted(good, {}));
  std::mt19937 random(20260718);
  int taken = 0;
  constexpr int rounds = 3000;
  for (int i = 0; i < rounds && !HasFailure(); ++i) {
    taken += accepted(damaged(good, random), {}) ? 1 : 0;
    accepted(small, {damaged(overrides[i % overrides.size()], random)});
  }
  EXPECT_GT(taken, rounds / 100) << "both sides must be reached";
  EXPECT_LT(taken, rounds / 2);
}
}  // namespace
}  // namespace minitaw::deck
